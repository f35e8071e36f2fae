"""Reading of DICOM files: one volume per series, slices in order, in HU and millimetres.

A single file is either an image or a DICOMDIR, which lists the files to read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.formatting import readable_count
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import Volume
from hushpore.io.dicom.geometry import Arrangement, Slice, arrange, group_by_series, join_alike
from hushpore.io.dicom.header import is_dicomdir, read_headers
from hushpore.io.dicom.pixels import SeriesReader
from hushpore.io.folders import START, files_below, is_dicom, shortened
from hushpore.io.guards import captured_warnings
from hushpore.io.lazy_arrays import LEFT_OUT, PlaneStack
from hushpore.io.loading import with_own_names

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path


_KINDS = {"i": "signed", "u": "unsigned"}
_INVERTED = "The values were inverted, because low values are white (MONOCHROME1)."
# by DICOM PS3.3 C.7.6.3.1.2, MONOCHROME1 describes the display of values, not their meaning
_KEPT = (
    "The values are HU and were not inverted, although the scanner shows low values as white "
    "(MONOCHROME1); air has the lowest value."
)


def open_dicom(
    files: Sequence[Path], place: Path, strays: Sequence[Path] = ()
) -> Generator[float, None, list[Volume]]:
    """Open the series in some DICOM files; only headers are read.

    Yields the fraction of the headers read so far.

    `files`: DICOM files in any order, of one or several series. `place`: file or folder given by
    the user, for messages and names. `strays`: files in the same folder that are not DICOM, for a
    note.
    Returns: one lazy volume (`PlaneStack`) per series, orientation and shape. Localisers, colour
    images and reports are skipped, with a note. Values are float32 HU (`Scaled`) if the files give
    slope and intercept, otherwise the stored integers. Nothing that identifies the patient is kept.
    Raises InputError if no file contains a greyscale image.
    """
    slices, left_out = yield from read_headers(files)
    groups = group_by_series(slices)
    kept = [each for each in groups if not each[0].facts["localiser"]]
    if kept:
        dropped = [item for each in groups if each[0].facts["localiser"] for item in each]
        left_out += [(item.path.name, "localiser") for item in dropped]
        groups = kept
    if not groups:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out[:3])
        reasons = reasons or "There is only a DICOMDIR; the images that it lists are missing"
        raise InputError(f"{place.name} contains no readable DICOM image. {reasons}.")
    groups, joined = join_alike(groups)
    volumes, failures = _opened(groups, place)
    if not volumes:
        raise failures[0]
    volumes = with_own_names(volumes)
    notes = [*joined, *_left_out_notes(left_out, strays)]
    notes += [LEFT_OUT.format(failure) for failure in failures]
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


def _left_out_notes(left_out: list[tuple[str, str]], strays: Sequence[Path]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out:
        reasons.setdefault(reason, []).append(name)
    if strays:
        reasons["not DICOM"] = [path.name for path in strays]
    return [
        f"{readable_count(len(names), 'file')} skipped ({reason}): {shortened(names)}."
        for reason, names in reasons.items()
    ]


def _opened(
    groups: Sequence[Sequence[Slice]], place: Path
) -> tuple[list[Volume], list[HushporeError]]:
    """Open every series; a damaged one does not stop the others."""
    volumes: list[Volume] = []
    failures: list[HushporeError] = []
    for part in [part for each in groups for part in arrange(each)]:
        try:
            volumes.append(_volume(part, _name(part, place, len(groups))))
        except HushporeError as error:
            failures.append(error)
    return volumes, failures


def _name(part: Arrangement, place: Path, count: int) -> str:
    facts = part.slices[0].facts
    plain = place.resolve().stem if place.is_file() else place.resolve().name
    if count == 1:
        return plain
    words = [facts["description"]] if facts["description"] else []
    if facts["series_number"] is not None:
        words.append(f"series {facts['series_number']}")
    return " ".join(words) or plain


def _differences(slices: Sequence[Slice]) -> list[str]:
    """Return notes on contradictions between the headers of the slices of a series."""
    notes = []
    kinds = {(each.encoding.dtype.kind, each.encoding.bits_stored) for each in slices}
    if len(kinds) > 1:
        types = sorted(f"{bits} bits, {_KINDS.get(kind, 'float')}" for kind, bits in kinds)
        notes.append(
            f"The slices have different data types ({'; '.join(types[:4])}); check whether some "
            "headers are damaged."
        )
    (line, count), *_ = Counter((each.slope, each.intercept) for each in slices).most_common()
    # some scanners give each slice its own slope and intercept
    if len(slices) / 2 < count < len(slices):
        others = [each for each in slices if (each.slope, each.intercept) != line]
        notes.append(
            f"Rescale slope and intercept are {others[0].slope:g} and {others[0].intercept:g} in "
            f"{_files(others)}, but {line[0]:g} and {line[1]:g} in most slices; check whether some "
            "headers are damaged."
        )
    return notes


def _contradictions(slices: Sequence[Slice]) -> list[str]:
    """Return notes on slices with headers that contradict themselves or the pixel data."""
    notes = []
    # one byte more is padding to an even length
    longer = [each for each in slices if each.encoding.rest > 1]
    if longer:
        notes.append(
            f"{_files(longer)}: {longer[0].encoding.rest:,} more bytes of pixel data than the "
            "header describes; check rows, columns, frames and bit depth."
        )
    shifted = [each for each in slices if each.encoding.high_bit != each.encoding.bits_stored - 1]
    if shifted:
        encoding = shifted[0].encoding
        notes.append(
            f"{_files(shifted)}: the header gives {encoding.bits_stored} stored bits but bit "
            f"{encoding.high_bit} as the highest; check that this is correct."
        )
    unscaled = [each for each in slices if each.facts["unscaled"]]
    if unscaled:
        names = ", ".join(unscaled[0].facts["unscaled"])
        notes.append(
            f"{_files(unscaled)}: {names} is not a number and was ignored; check the grey values."
        )
    if curved := [each for each in slices if each.facts["curved"]]:
        notes.append(
            f"{_files(curved)}: the table of grey values in the header (Modality LUT) is no "
            "straight line and was not applied; thresholds are those of the stored values."
        )
    if zero := [each for each in slices if each.facts["zero_frames"]]:
        notes.append(f"{_files(zero)}: NumberOfFrames is 0; the file was read as one image.")
    odd = [each for each in slices if not _is_usual(each)]
    if odd:
        notes.append(f"{_files(odd)}: {_unusual_scaling(odd[0])}; the header may be damaged.")
    return notes


def _is_usual(item: Slice) -> bool:
    """Return whether the slope is positive and all grey values fit into float32."""
    if not item.slope > 0 or item.encoding.dtype.kind == "f":
        return item.slope > 0
    ends = (item.slope * bound + item.intercept for bound in item.encoding.bounds)
    return all(abs(end) < float(np.finfo(np.float32).max) for end in ends)


def _unusual_scaling(item: Slice) -> str:
    if item.slope == 0:
        return f"the rescale slope is 0, so every value becomes {item.intercept:g}"
    return f"the rescale slope is {item.slope:g} and the intercept {item.intercept:g}"


def _files(slices: Sequence[Slice]) -> str:
    return shortened(list(dict.fromkeys(each.path.name for each in slices)))


def _stated(item: Slice, reader: SeriesReader, fact: str) -> list[float]:
    """Return a stored value in the header as a grey value of the slice; empty if there is none."""
    stored = item.facts[fact]
    return [] if stored is None else reader.shown(item, [stored * item.slope + item.intercept])


def _padding_notes(
    slices: Sequence[Slice], reader: SeriesReader, paddings: Sequence[float]
) -> list[str]:
    """Return a note on a series with more than one padding value."""
    if len(paddings) > 1:
        return [
            f"The slices have {len(paddings)} padding values ({paddings[0]:g} to "
            f"{paddings[-1]:g}), because each has its own rescale slope and intercept; none was "
            "used as padding. Give a mask of the sample."
        ]
    limits = {value for item in slices for value in _stated(item, reader, "padding_limit")}
    others = sorted(limits - set(paddings))
    if not paddings or not others:
        return []
    ends = min(*paddings, *others), max(*paddings, *others)
    return [
        f"The header declares a range of padding values ({ends[0]:g} to {ends[1]:g}); only "
        f"{paddings[0]:g} is used as padding."
    ]


def _volume(part: Arrangement, name: str) -> Volume:
    first = part.slices[0]
    facts = part.slices[len(part.slices) // 2].facts
    reader = SeriesReader(part.slices)
    notes = list(part.notes)
    if facts["inverted"]:
        notes.append(_INVERTED if reader.inverted else _KEPT)
    metadata: dict[str, Any] = {"modality": facts["modality"], **part.metadata}
    if facts["calibrated"]:
        metadata["value_unit"] = "HU"
    paddings = sorted({value for item in part.slices for value in _stated(item, reader, "padding")})
    if len(paddings) == 1:
        (metadata["padding_value"],) = paddings
    notes += _padding_notes(part.slices, reader, paddings)
    if windows := [reader.shown(first, ends) for ends in facts["windows"]]:
        # for example soft tissue, lung and bone: the scanner shows the first
        metadata["contrast_limits"] = windows[0]
        metadata["windows"] = windows
    if facts["localiser"]:
        notes.append("This is a localiser (overview image), not a slice.")
    notes += _differences(part.slices) + _contradictions(part.slices)
    # a single slice has no z axis
    numbers = np.arange(len(part.slices)) if len(part.slices) > 1 else np.array(0)
    axes = "zyx" if numbers.ndim else "yx"
    values: PlaneStack | Scaled = PlaneStack(numbers, first.shape, reader.dtype, reader)
    lines = [(item.slope, item.intercept) for item in part.slices]
    if any(line != (1.0, 0.0) for line in lines):
        values = Scaled(values, *zip(*lines, strict=True))
    return Volume(
        values,
        spacing=part.spacing[-len(axes) :],
        unit=part.unit,
        axes=axes,
        name=name,
        origin=part.origin[-len(axes) :],
        notes=notes,
        metadata=metadata,
    )


def open_dicom_file(path: Path) -> Generator[float, None, list[Volume]]:
    """Open a DICOM file, or all files listed in a DICOMDIR; as `open_dicom`.

    A single file is opened alone, without the other slices of its series.
    """
    if not is_dicomdir(path):
        return (yield from open_dicom([path], path))
    files, notes = files_of(path)
    dicom = [file for file in files if _is_dicom(file)]
    others: list[Path] = []
    unnamed = _unnamed(dicom, path)
    if unnamed:
        notes.append(
            f"{readable_count(len(unnamed), 'DICOM file')} in the same folders are not listed in "
            f"{path.name} and were not read ({shortened(unnamed)})."
        )
    if not dicom:
        notes.append(f"No file listed in {path.name} exists; its folder was searched instead.")
        root = path.parent.resolve()
        for file in files_below(path.parent):
            # links out of the folder are not followed, as for listed files
            if file.resolve().is_relative_to(root):
                (dicom if _is_dicom(file) else others).append(file)
    volumes = yield from open_dicom(dicom, path.parent, others)
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


def _unnamed(named: list[Path], directory: Path) -> list[str]:
    """Return the unlisted DICOM files in the folders of the files listed in a DICOMDIR."""
    listed = {*named, directory.resolve()}
    return [
        file.name
        for folder in sorted({file.parent for file in named})
        for file in sorted(folder.iterdir())
        if file not in listed and not file.is_symlink() and file.is_file() and _is_dicom(file)
    ]


def _is_dicom(path: Path) -> bool:
    with path.open("rb") as file:
        return is_dicom(file.read(START), path)


def files_of(directory: Path) -> tuple[list[Path], list[str]]:
    """Return the files listed in a DICOMDIR.

    Returns: the files that exist and are inside the folder of the DICOMDIR, links followed; and
    notes on the listed files that are outside it or missing.
    """
    root = directory.parent.resolve()
    files: list[Path] = []
    outside, missing = [], []
    for name in _names(directory):
        # the resolved path decides, so that neither '..' nor a link escapes
        path = root.joinpath(*name).resolve()
        if not path.is_relative_to(root):
            outside.append("/".join(name))
        elif not path.is_file():
            missing.append("/".join(name))
        else:
            files.append(path)
    notes = [
        f"{directory.name} lists {readable_count(len(names), 'file')} {where} ({shortened(names)})."
        for names, where in (
            (outside, "outside its own folder, which were not read"),
            (missing, "that does not exist" if len(missing) == 1 else "that do not exist"),
        )
        if names
    ]
    return list(dict.fromkeys(files)), notes


def _names(directory: Path) -> list[list[str]]:
    import pydicom

    names = []
    with captured_warnings("pydicom"):
        try:
            records = pydicom.dcmread(directory, force=True).get("DirectoryRecordSequence") or []
            for record in records:
                name = record.get("ReferencedFileID")
                if name:
                    parts = [name] if isinstance(name, str) else [str(part) for part in name]
                    names.append([part for part in parts if "\0" not in part])
        except OSError:
            raise
        except Exception:
            # a damaged DICOMDIR lists nothing; the folder is searched then
            return names
    return names
