"""DICOM files to volumes: one for each series, in order, in HU and millimetres.

pydicom is imported when the first file is read, so that the library works without it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.base.volume import Volume
from hushpore.io.dicom_header import import_pydicom, read_headers
from hushpore.io.dicom_writer import write_series
from hushpore.io.geometry import Arrangement, Slice, arrange, group
from hushpore.io.messages import captured

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

__all__ = ["read_dicom", "write_series"]

_DECODERS = "pip install python-gdcm (or, for JPEG 2000, pylibjpeg pylibjpeg-openjpeg)"
_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_LONGEST_LIST = 3


def read_dicom(files: Sequence[Path], place: Path, strays: Sequence[Path] = ()) -> list[Volume]:
    """Read the series that some DICOM files hold.

    Parameters
    ----------
    files : sequence of Path
        DICOM files in any order, of one or several series.
    place : Path
        The file or folder that the user named, for messages and names.
    strays : sequence of Path, optional
        Files beside them that are not DICOM, to be mentioned.

    Returns
    -------
    list of Volume
        One for each series, orientation and shape; localisers, colour images and reports are left
        out, which a note says. float32 HU where the files rescale, else the stored integers.
        Nothing that identifies the patient is kept.

    Raises
    ------
    InputError
        If no file holds a greyscale image.
    MissingPackageError
        If pydicom, or a decoder for the compression, is not installed.
    """
    import_pydicom()
    with captured("pydicom"):
        slices, left_out = read_headers(files)
        groups, localisers = _without_localisers(group(slices))
        left_out += localisers
        if not groups:
            reasons = "; ".join(f"{name}: {why}" for name, why in left_out[:_LONGEST_LIST])
            raise InputError(f"{place.name} holds no DICOM image that can be read. {reasons}.")
        volumes, failures = _decoded(groups, place)
    if not volumes:
        raise failures[0]
    volumes = _with_own_names(volumes)
    notes = _left_out_notes(left_out, strays)
    notes += [f"A series was left out. {failure}" for failure in failures]
    return [volume.replace(volume.data, notes=[*notes, *volume.notes]) for volume in volumes]


def _without_localisers(
    groups: list[list[Slice]],
) -> tuple[list[list[Slice]], list[tuple[str, str]]]:
    kept = [each for each in groups if not each[0].facts["localiser"]]
    if not kept:
        return groups, []
    dropped = [each for each in groups if each[0].facts["localiser"]]
    return kept, [(item.path.name, "a localiser") for each in dropped for item in each]


def _left_out_notes(left_out: list[tuple[str, str]], strays: Sequence[Path]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out:
        reasons.setdefault(reason, []).append(name)
    if strays:
        reasons["not DICOM"] = [path.name for path in strays]
    return [
        f"{len(names)} file(s) left out, {reason}: {_some(names)}."
        for reason, names in reasons.items()
    ]


def _decoded(
    groups: Sequence[Sequence[Slice]], place: Path
) -> tuple[list[Volume], list[HushporeError]]:
    """Decode every series; one that is damaged does not stop the others."""
    volumes: list[Volume] = []
    failures: list[HushporeError] = []
    for part in [part for each in groups for part in arrange(each)]:
        try:
            volumes.append(_volume(part, _name(part, place, len(groups))))
        except HushporeError as error:
            failures.append(error)
    return volumes, failures


def _with_own_names(volumes: list[Volume]) -> list[Volume]:
    """Number those that would have the same name."""
    names = [volume.name for volume in volumes]
    return [
        volume
        if names.count(volume.name) == 1
        else volume.replace(
            volume.data, name=f"{volume.name} [{names[: index + 1].count(volume.name)}]"
        )
        for index, volume in enumerate(volumes)
    ]


def _name(part: Arrangement, place: Path, count: int) -> str:
    facts = part.slices[0].facts
    plain = place.resolve().stem if place.is_file() else place.resolve().name
    if count == 1:
        return plain
    words = [facts["description"]] if facts["description"] else []
    if facts["series_number"] is not None:
        words.append(f"series {facts['series_number']}")
    return " ".join(words) or plain


def _volume(part: Arrangement, name: str) -> Volume:
    first = part.slices[0]
    facts = part.slices[len(part.slices) // 2].facts
    values, said = _values(part.slices)
    notes = [*part.notes, *said]
    metadata: dict[str, Any] = {"modality": facts["modality"], **part.metadata}
    if facts["calibrated"]:
        metadata["value_unit"] = "HU"
    if facts["padding"] is not None:
        metadata["padding_value"] = facts["padding"] * first.slope + first.intercept
    if "contrast_limits" in facts:
        metadata["contrast_limits"] = facts["contrast_limits"]
    if facts["localiser"]:
        notes.append("This is a localiser (overview image), not a slice.")
    spacing, origin = part.spacing, part.origin
    if len(part.slices) == 1:
        values, spacing, origin = values[0], spacing[1:], origin[1:]  # type: ignore[assignment]
    return Volume(
        values,
        spacing=spacing,
        unit=part.unit,
        axes="zyx" if values.ndim == 3 else "yx",
        name=name,
        origin=origin,
        notes=notes,
        metadata=metadata,
    )


def _values(slices: Sequence[Slice]) -> tuple[npt.NDArray[Any], list[str]]:
    """Decode all slices into one array, rescaled where the headers say so."""
    notes: list[str] = []
    rescaled = any((item.slope, item.intercept) != (1.0, 0.0) for item in slices)
    values: npt.NDArray[Any] | None = None
    bounds = (0, 0)
    per_file: dict[Path, list[tuple[int, Slice]]] = {}
    for index, item in enumerate(slices):
        per_file.setdefault(item.path, []).append((index, item))
    for path, items in per_file.items():
        stored, bounds = _pixels(path, items[0][1])
        if values is None:
            dtype = np.dtype(np.float32) if rescaled else stored.dtype
            values = np.empty((len(slices), *slices[0].shape), dtype)
        elif not rescaled and stored.dtype != values.dtype:
            values = values.astype(np.result_type(values, stored))
        for index, item in items:
            plane = stored[item.frame]
            if rescaled:
                # float64 within a slice, so that 32-bit values round only once
                values[index] = plane.astype(np.float64) * item.slope + item.intercept
            else:
                values[index] = plane
    assert values is not None
    if slices[0].facts["inverted"]:
        if slices[0].facts["calibrated"]:
            notes.append(
                "MONOCHROME1: the scanner shows low values as white. The values are HU and were "
                "kept, so that air stays the lowest."
            )
        else:
            low, high = (each * slices[0].slope + slices[0].intercept for each in bounds)
            values = (low + high - values.astype(np.float64)).astype(values.dtype)
            notes.append("MONOCHROME1 (low values are white): the values were inverted.")
    return values, notes  # fmt: skip


def _pixels(path: Path, expected: Slice) -> tuple[npt.NDArray[Any], tuple[int, int]]:
    """Return the stored values of a file as (frames, rows, columns), and their possible range."""
    pydicom = import_pydicom()
    try:
        dataset = pydicom.dcmread(path, force=True)
        held = any(name in dataset for name in _PIXELS)
        if "TransferSyntaxUID" not in dataset.file_meta:
            explicit, little = dataset.original_encoding
            dataset.file_meta.TransferSyntaxUID = _syntax(bool(explicit), bool(little))
    except (OSError, MemoryError):
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    if not held:
        raise InputError(f"{path.name} holds no pixels: the header is there, the image is not.")
    _require_decoder(dataset, path)
    try:
        stored = np.asarray(dataset.pixel_array)
    except MemoryError:
        raise
    except RuntimeError as error:
        syntax = dataset.file_meta.TransferSyntaxUID
        raise InputError(
            f"The image in {path.name} ({syntax.name}) cannot be decoded: it is damaged, or it "
            f"needs a decoder that is not installed: {_DECODERS}"
        ) from error
    except Exception as error:
        # damaged files make pydicom and its decoders raise errors of any kind
        raise _damaged(path, error) from error
    shape = (expected.n_frames, *expected.shape)
    if stored.size != math.prod(shape):
        raise InputError(
            f"{path.name} holds {stored.size} pixels, but its header states "
            f"{' x '.join(str(n) for n in shape)}. Copy or export it again."
        )
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    signed = int(dataset.get("PixelRepresentation") or 0)
    bounds = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return stored.reshape(shape), bounds


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        f"The image in {path.name} is damaged or incomplete and cannot be decoded "
        f"({type(error).__name__}). Copy or export it again."
    )


def _syntax(explicit: bool, little: bool) -> Any:
    from pydicom import uid

    if not little:
        return uid.ExplicitVRBigEndian
    return uid.ExplicitVRLittleEndian if explicit else uid.ImplicitVRLittleEndian


def _require_decoder(dataset: Any, path: Path) -> None:
    from pydicom.pixels.decoders.base import get_decoder

    syntax = dataset.file_meta.TransferSyntaxUID
    if not syntax.is_transfer_syntax:
        raise InputError(f"{path.name} names a compression that does not exist ({syntax}).")
    if not syntax.is_compressed or syntax.is_deflated:
        return
    try:
        available = get_decoder(syntax).is_available
    except NotImplementedError:
        available = False
    if not available:
        raise MissingPackageError(
            f"{path.name} is compressed ({syntax.name}), and no decoder for that is installed: "
            f"{_DECODERS}"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LONGEST_LIST])
    more = len(names) - _LONGEST_LIST
    return shown if more <= 0 else f"{shown} and {more} more"
