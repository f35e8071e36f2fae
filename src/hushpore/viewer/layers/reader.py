"""The reader plugin; it reads large files in a thread.

The module also has the commands that resample uneven slices and make hushpore the default reader.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari import current_viewer
from napari.layers import Image, Labels, Layer
from napari.settings import get_settings
from napari.utils.notifications import NotificationSeverity, show_warning

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io import load
from hushpore.io.folders import RAW, header_beside, sidecar_of
from hushpore.io.guards import CONSENT
from hushpore.io.loading import into_memory, split_notes
from hushpore.io.parts import is_uneven, resampling
from hushpore.io.raw import layout_by_name, why_misfit
from hushpore.io.registry import READERS
from hushpore.io.undefined import with_fill_value
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    READ,
    LayerData,
    known_of,
    layer_data,
    unwrapped,
    volume_of,
)
from hushpore.viewer.layers.layer_files import prefer_our_writers
from hushpore.viewer.layers.reading import collect_slice, is_slice, offer_series, slices_by
from hushpore.viewer.layers.visibility import (
    explain_unopened,
    show_new_scans,
    show_new_scans_later,
    show_scale_bar,
)
from hushpore.viewer.running.problem import (
    Problem,
    explain,
    notify_in_full,
    notify_note,
    notify_problem,
    offer_action,
)
from hushpore.viewer.running.status import LoadingTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hushpore.base.events import Job

#: Bytes on disk from which a file is read in a thread: with the contrast limits, 4 MB can take a
#: tenth of a second.
LARGE = 4_000_000

#: Minimum number of bytes that each file counts as, for its header.
EACH_FILE = 50_000

#: Number of files checked when several are opened as one.
_PEEK = 8

#: Patterns for napari's preferences: all folders, and DICOM files. napari's own dialog remembers a
#: folder by its full name only, and its preferences offer no pattern for all folders.
PATTERNS = ("*/", *READERS["dicom"].extensions)

#: Return value of a reader that adds no layers, or adds them later.
NO_LAYERS: list[Any] = [(None,)]


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], list[Any]] | None:
    """Return hushpore's reader for a file or folder, or None if there is none at that path.

    An unreadable file is accepted here, because napari would otherwise show an error without the
    reason; the reader then reports the reason and the remedy. Several paths (files opened as a
    stack) are accepted if each can be a slice.
    """
    if isinstance(path, str):
        return read_layers if os.path.exists(path) else None
    files = [Path(each) for each in itertools.islice(path, _PEEK)]
    return read_layers if files and all(map(slices_by, files)) else None


def read_layers(path: str | list[str]) -> list[Any]:
    """Read a file, a folder or the slices of a stack into one layer per series.

    Large files and single slices are read in a thread with progress in the activity dock; slices
    dropped together become one volume. Several series are listed in a dock, where the user chooses.
    Problems are shown as notifications.
    """
    prefer_our_writers()
    explain_unopened()
    viewer = current_viewer()
    several = getattr(viewer, "window", None) is not None
    if several and isinstance(path, str) and is_slice(viewer, path):
        collect_slice(viewer, path, read_in_thread)
        return NO_LAYERS
    if viewer is not None and size_of(path, LARGE) >= LARGE:
        read_in_thread(viewer, path)
        return NO_LAYERS
    try:
        volumes = hushpore.read_all(path)
        if several and _are_several(volumes):
            _found(viewer, _name(path), volumes)
            return NO_LAYERS
        found = _layers(volumes)
    except Exception as error:
        if viewer is None:
            raise
        _refused(viewer, path, explain(error))
        return NO_LAYERS
    if viewer is not None:
        show_scale_bar(viewer, [each["units"][-1] for _, each, _ in found])
        show_new_scans_later(viewer)
    _mention_notes(viewer, ((each["name"], each["metadata"]) for _, each, _ in found))
    return found


def read_in_thread(
    viewer: Any, path: str | list[str], trust: bool = False, then: Callable[[], None] = lambda: None
) -> None:
    """Read a file or folder in a thread, and add its layers afterwards.

    `trust`: whether to read it even if it needs far more memory than its size on disk. `then`:
    called after layers were added.
    """
    # napari's proxy of the viewer has no usable window
    viewer, name = unwrapped(viewer), _name(path)
    choosing = getattr(viewer, "window", None) is not None
    LoadingTask(
        f"Reading {name}",
        partial(_read, path, choosing, trust),
        partial(_found, viewer, name, then=then),
        partial(_refused, viewer, path, then=then),
    )


def _refused(
    viewer: Any, path: str | list[str], problem: Problem, then: Callable[[], None] = lambda: None
) -> None:
    """Show a problem; for a file that needs trust, with a button to open it anyway."""
    if not problem.needs_consent:
        if isinstance(path, str) and _lacks_header(path) and _has_window(viewer):
            # imported late, because few files need it
            from hushpore.viewer.layers.reading import offer_raw_import

            offer_raw_import(unwrapped(viewer), path)
            message = f"{_name(path)} has no header. Give its shape and data type in Raw import."
            if misfit := why_misfit(Path(path)):
                message = f"{_name(path)}: {misfit}. Copy it again, or correct Raw import."
            notify_problem(dataclasses.replace(problem, message=message))
            return
        notify_in_full(unwrapped(viewer), problem)
        return
    message = problem.message.replace(CONSENT, "Open it only if you trust its source.")
    offer_action(
        viewer,
        message,
        "Open anyway",
        lambda *_: read_in_thread(viewer, path, trust=True, then=then),
        NotificationSeverity.WARNING,
    )


def _lacks_header(path: str) -> bool:
    """Whether a file is probably raw voxels whose layout nothing states."""
    file = Path(path)
    is_raw = file.suffix.lower() in RAW and header_beside(file) is None and sidecar_of(file) is None
    return is_raw and file.is_file() and file.stat().st_size > 0 and layout_by_name(file) is None


def _has_window(viewer: Any) -> bool:
    return getattr(viewer, "window", None) is not None


def _name(path: str | list[str]) -> str:
    return Path(path).name if isinstance(path, str) else Path(path[0]).parent.name


def size_of(path: str | list[str], enough: int) -> int:
    """Return the total bytes of files, or of the files in a folder, up to about `enough`.

    Each file counts as at least `EACH_FILE`.
    """
    total = 0
    for file in _files_of(path) if isinstance(path, str) else path:
        total += max(Path(file).stat().st_size, EACH_FILE)
        if total >= enough:
            break
    return total


def _files_of(path: str) -> Iterator[str]:
    """Return a file, or those in a folder."""
    if not os.path.isdir(path):
        yield path
    for place, _, names in os.walk(path):
        yield from (os.path.join(place, name) for name in names)


def _read(path: str | list[str], choosing: bool, trust: bool) -> Job:
    """Return layers, or lazy volumes if the user must choose between several."""
    volumes = yield from load(path, lazy=True, trust=trust)
    if choosing and _are_several(volumes):
        return volumes
    return (yield from _loaded(volumes))


def _are_several(volumes: Sequence[Volume]) -> bool:
    """Whether there are several series; an image and its results count as one."""
    from hushpore.viewer.layers.result_folder import is_of_phases, is_thickness

    together = (is_thickness, is_of_phases, lambda each: each.holds_labels)
    alone = [each for each in volumes if not any(belongs(each) for belongs in together)]
    return len(alone) > 1


def _loaded(volumes: Sequence[Volume]) -> Job:
    loaded = yield from into_memory(volumes)
    # in the thread: for the first layer napari imports SciPy and loads units, and of lazy values it
    # reads a slice
    return [Layer.create(*each) for each in _layers(loaded)]


def _found(
    viewer: Any, name: str, found: list[Any], then: Callable[[], None] = lambda: None
) -> None:
    """Show layers, or a list of series to choose from."""
    if not found or not isinstance(found[0], Volume):
        _show(viewer, found, then)
        return

    def read(volumes: Sequence[Volume]) -> None:
        show = partial(_found, viewer, name, then=then)
        LoadingTask(f"Reading {name}", partial(_loaded, volumes), show)

    offer_series(viewer, name, found, read)


def _show(viewer: Any, layers: Sequence[Layer], then: Callable[[], None]) -> None:
    """Add layers to a viewer, and show their notes."""
    show_scale_bar(viewer, [layer.units[-1] for layer in layers])
    for layer in layers:
        viewer.add_layer(layer)
    show_new_scans(viewer, layers)
    _mention_notes(viewer, ((layer.name, layer.metadata) for layer in layers))
    if layers:
        then()


def _layers(volumes: Sequence[Volume]) -> list[LayerData]:
    """Return volumes as layers; layers that jobs hide are hidden unless they come alone."""
    from hushpore.viewer.results.pore_layer import LENGTHS, TRANSPORT

    found = [_layer(volume) for volume in volumes]
    for _, keywords, _ in found:
        hidden = not keywords.get("visible", True)
        hidden = hidden or not {LENGTHS, TRANSPORT}.isdisjoint(keywords["metadata"][METADATA_KEY])
        keywords["visible"] = len(found) == 1 or not hidden
    return found


def _layer(volume: Volume) -> LayerData:
    """Return a volume as a layer, with the contrast limits of the file, if any."""
    # imported late, because napari imports this module early, and this takes 60 ms
    from hushpore.viewer.layers.result_folder import (
        is_of_phases,
        labels_from_result,
        made_as_image,
        thickness_from_result,
    )

    of_result = labels_from_result(volume) or thickness_from_result(volume)
    if of_result is None and is_of_phases(volume):
        # imports the histogram, which other files do not need
        from hushpore.viewer.layers.result_folder import layer_of_phases

        of_result = layer_of_phases(volume)
    if of_result is not None:
        return of_result
    if volume.holds_labels:
        return _with_source(layer_data(volume, "labels"), _source_of(volume))
    if made_as_image(volume) is None:
        volume = with_fill_value(volume)
    chosen = {k: volume.metadata[k] for k in ("contrast_limits",) if k in volume.metadata}
    provenance, source = made_as_image(volume) or (None, _source_of(volume))
    return _with_source(layer_data(volume, provenance=provenance, **chosen), source)


def _source_of(volume: Volume) -> dict[str, Any]:
    """Return how a volume was read, with its name in the file, whatever its layer's name."""
    path = volume.source
    return {"path": path, "series": volume.name, "scan_shape": volume.shape} if path else {}


def _with_source(layer: LayerData, source: dict[str, Any]) -> LayerData:
    """Store in a layer how its scan was read."""
    layer[1]["metadata"][METADATA_KEY][READ] = source
    return layer


def _mention_notes(viewer: Any, found: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Show the notes of the reader once for all layers, with a button to resample uneven slices.

    Each layer is given by name and metadata, which also keep the notes.
    """
    layers = [(name, metadata[METADATA_KEY]) for name, metadata in found]
    shared, own = split_notes([known["notes"] for _, known in layers])
    uneven = [known for _, known in layers if "slice_positions" in known["metadata"]]
    pairs = zip(layers, own, strict=True)
    lines = [f"{name}: {' '.join(notes)}" for (name, _), notes in pairs if notes]
    # shared notes last: they matter least
    lines += [" ".join(shared)] if shared else []
    if lines and uneven and viewer is not None:
        offer_action(viewer, "\n".join(lines), "Resample", partial(_resample, viewer, uneven))
    elif lines:
        notify_note(viewer, "\n".join(lines))


def _resample(viewer: Any, uneven: Sequence[dict[str, Any]], *_: Any) -> None:
    """Resample the layers of a notification that still exist."""
    for layer in list(viewer.layers):
        if any(layer.metadata.get(METADATA_KEY) is known for known in uneven):
            resample(viewer, layer)


# ---- commands


def resample_selected() -> None:
    """Resample the selected layer (menu Layers > Data)."""
    viewer = current_viewer()
    if viewer is None:
        return
    layer = viewer.layers.selection.active
    if layer is None:
        show_warning("Select a layer to resample.")
    else:
        resample(viewer, layer)


def can_resample(layer: Any) -> bool:
    """Whether a layer is an image with unevenly spaced or missing slices."""
    try:
        return isinstance(layer, Image) and is_uneven(volume_of(layer))
    except InputError:
        return False


def resample(viewer: Any, layer: Any) -> None:
    """Add a copy of a layer with uneven slices, resampled to an even spacing in a thread."""
    if isinstance(layer, Labels):
        show_warning(
            f"{layer.name}: labels cannot be interpolated. Resample the scan and run the job again."
        )
        return
    if not can_resample(layer):
        show_warning(
            f"{layer.name}: nothing to resample. Only DICOM stacks with unevenly spaced or missing "
            "slices can be resampled."
        )
        return
    source = known_of(layer).get(READ) or {}
    work = partial(_resampled, volume_of(layer), tuple(layer.contrast_limits), source)
    LoadingTask(f"Resampling {layer.name}", work, viewer.add_layer)


def _resampled(volume: Volume, limits: tuple[float, float], source: dict[str, Any]) -> Job:
    even = yield from resampling(volume)
    if source:
        source = {**source, "resample": True, "scan_shape": even.shape}
    made = layer_data(even, contrast_limits=limits, name=f"{volume.name} resampled")
    return Layer.create(*_with_source(made, source))


def prefers_hushpore() -> bool:
    """Whether napari opens all folders and DICOM files with hushpore, without a question."""
    chosen = get_settings().plugins.extension2reader
    return all(chosen.get(pattern) == "hushpore" for pattern in PATTERNS)


def prefer_hushpore(preferred: bool = True) -> None:
    """Open all folders and DICOM files with hushpore, or let napari ask again."""
    plugins = get_settings().plugins
    others = {
        pattern: reader
        for pattern, reader in plugins.extension2reader.items()
        if pattern not in PATTERNS or reader != "hushpore"
    }
    ours = dict.fromkeys(PATTERNS, "hushpore") if preferred else {}
    plugins.extension2reader = {**others, **ours}
