"""napari's way to hushpore's readers: refuses fast, and reads large files in a thread.

Also what the user may ask of what was read, or will be: an even spacing, and to be asked no more.
"""

from __future__ import annotations

import itertools
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari import current_viewer
from napari.layers import Image, Labels, Layer
from napari.settings import get_settings
from napari.utils.notifications import (
    NotificationSeverity,
    show_info,
    show_warning,
)

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io import load
from hushpore.io.input_limits import CONSENT
from hushpore.io.loading import into_memory, split_notes
from hushpore.io.registry import READERS
from hushpore.io.resample import is_uneven, resampling
from hushpore.io.undefined import with_fill_value
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    LayerData,
    known_of,
    layer_data,
    unwrapped,
    volume_of,
)
from hushpore.viewer.layers.lineage import READ
from hushpore.viewer.layers.series_chooser import offer_series
from hushpore.viewer.layers.slice_grouping import collect_slice, is_slice, slices_by
from hushpore.viewer.layers.visibility import present, present_next, show_scale_bar
from hushpore.viewer.layers.writer import prefer_our_writers
from hushpore.viewer.running.preloading import start_once_drawn
from hushpore.viewer.running.problem import Problem, explain, notify_problem, offer_action
from hushpore.viewer.running.redraw import run_in_steps
from hushpore.viewer.running.status import FontWarmup, LoadingTask
from hushpore.viewer.running.worker import JobWorker, calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hushpore.base.events import Job

#: Bytes on disk from which a file is read in a thread: with pictures to look for contrast in, 4 MB
#: can take a tenth of a second.
LARGE = 4_000_000

#: Bytes that each further file counts as, for its header is read too.
EACH_FILE = 50_000

#: Files looked at where several are opened as one.
_PEEK = 8

#: Patterns as napari's preferences have them: every folder, and DICOM files. napari's own dialog
#: remembers a folder by its full name alone, and its preferences take no pattern for all of them.
PATTERNS = ("*/", *READERS["dicom"].extensions)

#: Modules of the widgets that are likely opened once there is a scan.
NEXT_WIDGETS = ("hushpore.viewer.denoise.widget", "hushpore.viewer.segment.widget")

#: The worker that imports them: a connection to a bound method does not keep it.
_importing: list[JobWorker] = []

#: What a reader returns when there is nothing to add, or not yet.
NO_LAYERS: list[Any] = [(None,)]


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], list[Any]] | None:
    """Return hushpore's reader for a file or folder, or None if there is none at that path.

    A file that cannot be read is not refused here, where napari would show an error of its own
    without the reason: the reader says why, and what to do. Several paths, which napari gives if a
    user opens files as a stack, are taken if each can be a slice of one.
    """
    if isinstance(path, str):
        return read_layers if os.path.exists(path) else None
    files = [Path(each) for each in itertools.islice(path, _PEEK)]
    return read_layers if files and all(map(slices_by, files)) else None


def read_layers(path: str | list[str]) -> list[Any]:
    """Read a file, a folder or the slices of a stack into one layer a series.

    What is large, and single slices in any case, is read in a thread, with progress in the activity
    dock, and its layers are added when they are there; slices that are dropped together are one
    volume. Where there are several series, a list of them is docked in the window, and those are
    opened that the user ticks. What cannot be read is said in a notification.
    """
    prefer_our_writers()
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
        present_next(viewer)
        _import_next_widgets(viewer)
    _mention_notes(viewer, ((each["name"], each["metadata"]) for _, each, _ in found))
    return found


def read_in_thread(
    viewer: Any,
    path: str | list[str],
    trust: bool = False,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Read a file or folder while the window goes on, and add its layers when they are there.

    `trust`: whether the user wants it read even where it takes far more memory than its bytes.
    `then`: called once they are; not where there are none.
    """
    # the proxy that napari gives to a widget has no window that Qt would take
    viewer, name = unwrapped(viewer), _name(path)
    choosing = getattr(viewer, "window", None) is not None
    if choosing:
        # the label of the scale bar
        FontWarmup(viewer.window._qt_window)
    LoadingTask(
        f"Reading {name}",
        partial(_read, path, choosing, trust),
        partial(_found, viewer, name, then=then),
        partial(_refused, viewer, path, then=then),
    )


def _import_next_widgets(viewer: Any) -> None:
    """Import in a thread what would stop the window for 0.2 s when the first widget is opened."""
    window = getattr(viewer, "window", None)
    if window is not None and any(name not in sys.modules for name in NEXT_WIDGETS):
        work = partial(calling, lambda: [import_module(name) for name in NEXT_WIDGETS])
        _importing[:] = [JobWorker(work, "hushpore imports")]
        start_once_drawn(window._qt_window, _importing[0])


def _refused(
    viewer: Any,
    path: str | list[str],
    problem: Problem,
    then: Callable[[], None] = lambda: None,
) -> None:
    """Say what went wrong; of a file that the user may trust, offer to open it all the same."""
    if not problem.needs_consent:
        notify_problem(problem)
        return
    message = problem.message.replace(CONSENT, "Open it only if you know where it is from.")
    offer_action(
        viewer,
        message,
        "Open it all the same",
        lambda *_: read_in_thread(viewer, path, trust=True, then=then),
        NotificationSeverity.WARNING,
    )


def _name(path: str | list[str]) -> str:
    return Path(path).name if isinstance(path, str) else Path(path[0]).parent.name


def size_of(path: str | list[str], enough: int) -> int:
    """Return the bytes of files, or of the files in a folder, until there are `enough`.

    Each counts for `EACH_FILE` at least.
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
    """Return layers; or volumes on disk, where there are several and the user is to choose."""
    volumes = yield from load(path, lazy=True, trust=trust)
    if choosing and _are_several(volumes):
        return volumes
    return (yield from _loaded(volumes))


def _are_several(volumes: Sequence[Volume]) -> bool:
    """Whether there is something to choose: an image and what was found in it belong together."""
    from hushpore.viewer.layers.result_folder import is_of_phases, is_thickness

    together = (is_thickness, is_of_phases, lambda each: each.holds_labels)
    alone = [each for each in volumes if not any(belongs(each) for belongs in together)]
    return len(alone) > 1


def _loaded(volumes: Sequence[Volume]) -> Job:
    loaded = yield from into_memory(volumes)
    # made in the thread, because napari reads SciPy and a table of units with its first layer,
    # and of values on disk a slice
    return [Layer.create(*each) for each in _layers(loaded)]


def _found(
    viewer: Any, name: str, found: list[Any], then: Callable[[], None] = lambda: None
) -> None:
    """Show layers, or a list of series to choose from."""
    if not found or not isinstance(found[0], Volume):
        window, work = getattr(viewer, "window", None), _show(viewer, found, then)
        if window is None:
            list(work)
        else:
            run_in_steps(window._qt_window, work)
        return

    def read(volumes: Sequence[Volume]) -> None:
        show = partial(_found, viewer, name, then=then)
        LoadingTask(f"Reading {name}", partial(_loaded, volumes), show)

    offer_series(viewer, name, found, read)


def _show(viewer: Any, layers: Sequence[Layer], then: Callable[[], None]) -> Iterator[None]:
    """Add layers to a viewer, each in a turn of its own, and say what is odd about them."""
    show_scale_bar(viewer, [layer.units[-1] for layer in layers])
    yield
    for number, layer in enumerate(layers, 1):
        viewer.add_layer(layer)
        if number == len(layers):
            # what was there before goes as the last one comes
            present(viewer, layers)
        yield
    _import_next_widgets(viewer)
    _mention_notes(viewer, ((layer.name, layer.metadata) for layer in layers))
    if layers:
        then()


def _layers(volumes: Sequence[Volume]) -> list[LayerData]:
    """Return volumes as layers; what was hidden as it was made is where it comes with others."""
    from hushpore.viewer.results.pore_layer import LENGTHS

    found = [_layer(volume) for volume in volumes]
    for _, keywords, _ in found:
        hidden = not keywords.get("visible", True)
        hidden = hidden or bool(keywords["metadata"][METADATA_KEY].get(LENGTHS))
        keywords["visible"] = len(found) == 1 or not hidden
    return found


def _layer(volume: Volume) -> LayerData:
    """Return a volume as a layer, with the contrast that the scanner's operator chose."""
    # napari asks this module what a file is; what takes 60 ms to import waits for the reading
    from hushpore.viewer.layers.result_folder import (
        is_of_phases,
        labels_from_result,
        made_as_image,
        thickness_from_result,
    )

    of_result = labels_from_result(volume) or thickness_from_result(volume)
    if of_result is None and is_of_phases(volume):
        # needs the histogram's drawing, which no other file does
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
    """Return how a volume was read: whatever its layer is called later, by its name in the file."""
    path = volume.source
    return {"path": path, "series": volume.name, "shape": volume.shape} if path else {}


def _with_source(layer: LayerData, source: dict[str, Any]) -> LayerData:
    """Let a layer know how its scan was read."""
    layer[1]["metadata"][METADATA_KEY][READ] = source
    return layer


def _mention_notes(viewer: Any, found: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Say what the reader met, once for all layers; of uneven slices, offer to resample them.

    Each layer is given as its name and its metadata; the notes also stay in those.
    """
    layers = [(name, metadata[METADATA_KEY]) for name, metadata in found]
    shared, own = split_notes([known["notes"] for _, known in layers])
    uneven = [known for _, known in layers if "slice_positions" in known["metadata"]]
    pairs = zip(layers, own, strict=True)
    lines = [f"{name}: {' '.join(notes)}" for (name, _), notes in pairs if notes]
    # last, for what was left out matters least, and napari shortens what is long
    lines += [" ".join(shared)] if shared else []
    if lines and uneven and viewer is not None:
        offer_action(viewer, "\n".join(lines), "Resample", partial(_resample, viewer, uneven))
    elif lines:
        show_info("\n".join(lines))


def _resample(viewer: Any, uneven: Sequence[dict[str, Any]], *_: Any) -> None:
    """Resample the layers that a note was about, as far as they are still there."""
    for layer in list(viewer.layers):
        if any(layer.metadata.get(METADATA_KEY) is known for known in uneven):
            resample(viewer, layer)


# ---- what the user asks for


def resample_selected() -> None:
    """Resample the selected layer; the command of the menu Layers > Data."""
    viewer = current_viewer()
    if viewer is None:
        return
    layer = viewer.layers.selection.active
    if layer is None:
        show_warning("Select the layer whose slices are to be resampled.")
    else:
        resample(viewer, layer)


def can_resample(layer: Any) -> bool:
    """Whether a layer is an image that knows that its slices are unevenly spaced or missing."""
    try:
        return isinstance(layer, Image) and is_uneven(volume_of(layer))
    except InputError:
        return False


def resample(viewer: Any, layer: Any) -> None:
    """Add a layer beside one of uneven slices that has an even spacing, made in a thread."""
    if isinstance(layer, Labels):
        show_warning(
            f"{layer.name}: labels cannot be interpolated. Resample the scan that they are of, and "
            "run the job again on that."
        )
        return
    if not can_resample(layer):
        show_warning(
            f"{layer.name}: nothing to resample. Only stacks of DICOM files whose slices are "
            "unevenly spaced or missing know the places of their slices."
        )
        return
    source = known_of(layer).get(READ) or {}
    work = partial(_resampled, volume_of(layer), tuple(layer.contrast_limits), source)
    LoadingTask(f"Resampling {layer.name}", work, viewer.add_layer)


def _resampled(volume: Volume, limits: tuple[float, float], source: dict[str, Any]) -> Job:
    even = yield from resampling(volume)
    if source:
        source = {**source, "resample": True, "shape": even.shape}
    made = layer_data(even, contrast_limits=limits, name=f"{volume.name} even")
    return Layer.create(*_with_source(made, source))


def prefer_hushpore() -> None:
    """Open folders and DICOM files with hushpore from now on, without napari's question."""
    plugins = get_settings().plugins
    ours = dict.fromkeys(PATTERNS, "hushpore")
    plugins.extension2reader = {**plugins.extension2reader, **ours}
    show_info(
        "Folders and DICOM files are opened with hushpore from now on. "
        "Preferences > Plugins lists this choice, and there it can be taken back."
    )
