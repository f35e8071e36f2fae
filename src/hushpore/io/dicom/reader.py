"""DICOM files to volumes: one for each series, in order, in HU and millimetres.

A single file is an image, or the directory of a disc, which says what of its files may be read.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.formatting import readable_count
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import Volume
from hushpore.io.dicom.geometry import Arrangement, Slice, arrange, group_by_series
from hushpore.io.dicom.header import is_dicomdir, read_headers
from hushpore.io.dicom.pixels import SeriesReader
from hushpore.io.folders import START, files_below, is_dicom, shortened
from hushpore.io.lazy_arrays import LEFT_OUT, PlaneStack
from hushpore.io.libraries import captured_warnings
from hushpore.io.loading import with_own_names

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path


_KINDS = {"i": "with sign", "u": "without sign"}
_INVERTED = "MONOCHROME1 (low values are white): the values were inverted."
# by DICOM PS3.3 C.7.6.3.1.2 the word tells how to show values, not what they mean
_KEPT = (
    "MONOCHROME1: the scanner shows low values as white. The values are HU and were kept, so that "
    "air stays the lowest."
)


def open_dicom(
    files: Sequence[Path], place: Path, strays: Sequence[Path] = ()
) -> Generator[float, None, list[Volume]]:
    """Find the series that some DICOM files hold, from their headers alone.

    Yields the share of the headers that was read so far.

    `files`: DICOM files in any order, of one or several series. `place`: the file or folder that
    the user named, for messages and names. `strays`: files beside them that are not DICOM, to be
    mentioned.
    Returns: one for each series, orientation and shape; localisers, colour images and reports are
    left out, which a note says. float32 HU where the files rescale, as `Scaled`, else the stored
    integers. The values lie on disk still, as `PlaneStack`. Nothing that identifies the patient is
    kept.
    Raises InputError if no file holds a greyscale image.
    """
    slices, left_out = yield from read_headers(files)
    groups = group_by_series(slices)
    kept = [each for each in groups if not each[0].facts["localiser"]]
    if kept:
        dropped = [item for each in groups if each[0].facts["localiser"] for item in each]
        left_out += [(item.path.name, "a localiser") for item in dropped]
        groups = kept
    if not groups:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out[:3])
        reasons = reasons or "There is the directory file of a disc alone; its images are missing"
        raise InputError(f"{place.name} holds no DICOM image that can be read. {reasons}.")
    volumes, failures = _opened(groups, place)
    if not volumes:
        raise failures[0]
    volumes = with_own_names(volumes)
    notes = _left_out_notes(left_out, strays)
    notes += [LEFT_OUT.format(failure) for failure in failures]
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


def _left_out_notes(left_out: list[tuple[str, str]], strays: Sequence[Path]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out:
        reasons.setdefault(reason, []).append(name)
    if strays:
        reasons["not DICOM"] = [path.name for path in strays]
    return [
        f"{readable_count(len(names), 'file')} left out, {reason}: {shortened(names)}."
        for reason, names in reasons.items()
    ]


def _opened(
    groups: Sequence[Sequence[Slice]], place: Path
) -> tuple[list[Volume], list[HushporeError]]:
    """Open every series; one that is damaged does not stop the others."""
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
    """Say of slices of one series where their headers contradict one another."""
    notes = []
    kinds = {(each.encoding.dtype.kind, each.encoding.bits_stored) for each in slices}
    if len(kinds) > 1:
        told = sorted(f"{bits} bits, {_KINDS.get(kind, 'decimals')}" for kind, bits in kinds)
        notes.append(
            f"The slices store their values in several ways ({'; '.join(told[:4])}): see whether "
            "the headers of some are damaged."
        )
    (line, count), *_ = Counter((each.slope, each.intercept) for each in slices).most_common()
    # some scanners give each slice a line of its own
    if len(slices) / 2 < count < len(slices):
        others = [each for each in slices if (each.slope, each.intercept) != line]
        notes.append(
            f"The values of {_files(others)} are scaled by {others[0].slope:g} and "
            f"{others[0].intercept:g}, those of other slices by {line[0]:g} and {line[1]:g}: see "
            "whether the headers of some are damaged."
        )
    return notes


def _contradictions(slices: Sequence[Slice]) -> list[str]:
    """Say where the header of a slice contradicts itself, or its pixels."""
    notes = []
    # a byte more makes a length even
    longer = [each for each in slices if each.encoding.rest > 1]
    if longer:
        notes.append(
            f"{_files(longer)}: {longer[0].encoding.rest:,} bytes of pixels more than the header "
            "states; see whether its shape, its number of frames and its type are right."
        )
    shifted = [each for each in slices if each.encoding.high_bit != each.encoding.bits_stored - 1]
    if shifted:
        encoding = shifted[0].encoding
        notes.append(
            f"{_files(shifted)}: by the header {encoding.bits_stored} bits of a value count, of "
            f"which the highest is number {encoding.high_bit + 1}; see whether that is right."
        )
    unscaled = [each for each in slices if each.facts["unscaled"]]
    if unscaled:
        names = ", ".join(unscaled[0].facts["unscaled"])
        notes.append(
            f"{_files(unscaled)}: what the values are to be scaled by is no number ({names}), and "
            "was left out."
        )
    odd = [each for each in slices if not _is_usual(each)]
    if odd:
        notes.append(
            f"{_files(odd)}: the values are scaled by {odd[0].slope:g} and {odd[0].intercept:g}; "
            "see whether the header is damaged."
        )
    return notes


def _is_usual(item: Slice) -> bool:
    """Whether larger stored values are larger grey values, all of which float32 can hold."""
    if not item.slope > 0 or item.encoding.dtype.kind == "f":
        return item.slope > 0
    ends = (item.slope * bound + item.intercept for bound in item.encoding.bounds)
    return all(abs(end) < float(np.finfo(np.float32).max) for end in ends)


def _files(slices: Sequence[Slice]) -> str:
    return shortened(list(dict.fromkeys(each.path.name for each in slices)))


def _stated(item: Slice, reader: SeriesReader, fact: str) -> list[float]:
    """Return what a header says of a stored value, as it comes out of the slice; else nothing."""
    stored = item.facts[fact]
    return [] if stored is None else reader.shown(item, [stored * item.slope + item.intercept])


def _padding_notes(
    slices: Sequence[Slice], reader: SeriesReader, paddings: Sequence[float]
) -> list[str]:
    """Say where a series is filled in with more than one value."""
    if len(paddings) > 1:
        return [
            f"The slices are said to be filled in with {len(paddings)} values, from "
            f"{paddings[0]:g} to {paddings[-1]:g}, as each is scaled in its own way: none is taken "
            "for that. Fill them in with one, or give a mask of the sample."
        ]
    limits = {value for item in slices for value in _stated(item, reader, "padding_limit")}
    others = sorted(limits - set(paddings))
    if not paddings or not others:
        return []
    ends = min(*paddings, *others), max(*paddings, *others)
    return [
        f"All values from {ends[0]:g} to {ends[1]:g} are said to be filled in; only "
        f"{paddings[0]:g} is taken for that."
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
        # soft tissue, lung, bone: the first is what the scanner shows
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
    """Open a DICOM file, or all that the directory file of a disc names; as `open_dicom`.

    Of a single file its own pixels are read, never those of its neighbours.
    """
    if not is_dicomdir(path):
        return (yield from open_dicom([path], path))
    files, notes = files_of(path)
    dicom = [file for file in files if _is_dicom(file)]
    others: list[Path] = []
    unnamed = _unnamed(dicom, path)
    if unnamed:
        notes.append(
            f"{path.name} does not name {readable_count(len(unnamed), 'DICOM file')} that "
            f"lie beside those it names ({shortened(unnamed)}); they were not read."
        )
    if not dicom:
        notes.append(f"{path.name} names no file that is there; its folder was searched.")
        root = path.parent.resolve()
        for file in files_below(path.parent):
            # a link that leads out of the folder is no more read here than by its name
            if file.resolve().is_relative_to(root):
                (dicom if _is_dicom(file) else others).append(file)
    volumes = yield from open_dicom(dicom, path.parent, others)
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


def _unnamed(named: list[Path], directory: Path) -> list[str]:
    """Return the DICOM files that lie in the folders of those that a directory names."""
    known = {*named, directory.resolve()}
    return [
        file.name
        for folder in sorted({file.parent for file in named})
        for file in sorted(folder.iterdir())
        if file not in known and not file.is_symlink() and file.is_file() and _is_dicom(file)
    ]


def _is_dicom(path: Path) -> bool:
    with path.open("rb") as file:
        return is_dicom(file.read(START), path)


def files_of(directory: Path) -> tuple[list[Path], list[str]]:
    """Return the files that a DICOMDIR names.

    Returns: those that are there. None lies outside the folder of the directory file, whatever it
    says: names that lead elsewhere, also by links, are refused; what was refused or is missing.
    """
    root = directory.parent.resolve()
    files: list[Path] = []
    outside, missing = [], []
    for name in _names(directory):
        # the resolved path decides, so that neither '..' nor a link leads out
        path = root.joinpath(*name).resolve()
        if not path.is_relative_to(root):
            outside.append("/".join(name))
        elif not path.is_file():
            missing.append("/".join(name))
        else:
            files.append(path)
    notes = [
        f"{directory.name} names {readable_count(len(names), 'file')} {where} "
        f"({shortened(names)}){end}."
        for names, where, end in (
            (outside, "outside its own folder", "; they were not read"),
            (missing, "not found", ""),
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
            # a damaged directory names nothing; the folder itself is searched then
            return names
    return names
