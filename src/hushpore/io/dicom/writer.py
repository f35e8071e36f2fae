"""Writing of a volume as a DICOM CT series, one file per slice."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError, OutputError, import_optional
from hushpore.base.formatting import METRES, on_one_line
from hushpore.io.guards import captured_warnings
from hushpore.io.output_target import check_target, is_link, new_directory

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume

_SLICE_NAME = re.compile(r"slice_\d{4,}\.dcm")
_LONGEST = 64  # largest length of a description, in characters
_LOW = -32768  # range of int16, in which CT values are stored
_HIGH = 32767


def write_series(
    volume: Volume,
    folder: str | os.PathLike[str],
    *,
    seed: int | None = None,
    description: str = "",
    overwrite: bool = False,
) -> Path:
    """Write a volume as a CT series in millimetres.

    `volume`: 3D values. Integers are stored exactly if they fit into int16; floating-point values
    are stored as int16 with slope and intercept, rounded to 1/65535 of their range. `folder`: new
    or empty folder, written atomically. `seed`: for reproducible identifiers; by default they are
    random. `description`: SeriesDescription; by default the name of the volume. `overwrite`:
    replace a series written by this function.
    Returns: the folder.
    Raises InputError if the volume is not 3D, its spacing has no unit of length, or it contains NaN
    or infinity; OutputError if the folder cannot be written or is not empty; MissingPackageError if
    pydicom is not installed.
    """
    spacing, origin = _millimetres(volume)
    values = np.asarray(volume.data)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise InputError(
            f"{volume.name} contains NaN or infinite values, which DICOM cannot store. Replace "
            "them with a number first."
        )
    import_optional("pydicom", "DICOM")
    target = check_target(folder, overwrite, replaceable=_require_series)
    stored, slope, intercept = _stored(values)
    from pydicom.uid import generate_uid

    def identifier(*what: Any) -> Any:
        sources = None if seed is None else ["hushpore", str(seed), *map(str, what)]
        return generate_uid(entropy_srcs=sources)

    with (
        new_directory(target, overwrite, replaceable=_require_series) as part,
        captured_warnings("pydicom"),
    ):
        dataset = _common(identifier, spacing)
        text = on_one_line(description or volume.name, _LONGEST)
        # DICOM separates values by backslashes
        dataset.SeriesDescription = text.replace("\\", "_")
        dataset.RescaleSlope, dataset.RescaleIntercept = slope, intercept
        dataset.Rows, dataset.Columns = volume.shape[1:]
        for index, plane in enumerate(stored):
            dataset.SOPInstanceUID = identifier("slice", index)
            dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
            dataset.InstanceNumber = index + 1
            position = (origin[2], origin[1], origin[0] + index * spacing[0])
            dataset.ImagePositionPatient = [_decimal(value) for value in position]
            dataset.PixelData = np.ascontiguousarray(plane, dtype="<i2").tobytes()
            dataset.save_as(part / f"slice_{index + 1:04d}.dcm", enforce_file_format=True)
    return target


def _common(identifier: Callable[..., Any], spacing: tuple[float, ...]) -> Any:
    """Return a data set with the elements common to all slices."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.SOPClassUID = CTImageStorage
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = identifier("study"), identifier("series")
    dataset.FrameOfReferenceUID = identifier("frame of reference")
    # type 2 elements: required, but empty, as there is no patient
    for name in (
        "StudyDate", "StudyTime", "AccessionNumber", "ReferringPhysicianName", "PatientName",
        "PatientID", "PatientBirthDate", "PatientSex", "StudyID", "Manufacturer",
        "PositionReferenceIndicator", "AcquisitionNumber", "KVP",
    ):  # fmt: skip
        setattr(dataset, name, None if name in ("AcquisitionNumber", "KVP") else "")
    dataset.Modality, dataset.SeriesNumber = "CT", 1
    dataset.ImageType = ["DERIVED", "SECONDARY", "AXIAL"]
    dataset.PatientPosition = "HFS"
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    dataset.SliceThickness = dataset.SpacingBetweenSlices = _decimal(spacing[0])
    dataset.PixelSpacing = [_decimal(spacing[1]), _decimal(spacing[2])]
    dataset.RescaleType = "HU"
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated = dataset.BitsStored = 16
    dataset.HighBit, dataset.PixelRepresentation = 15, 1
    return dataset


def _millimetres(volume: Volume) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if volume.axes != "zyx" or 0 in volume.shape:
        raise InputError(
            f"A DICOM series needs a volume with axes zyx; got {volume.axes}, shape {volume.shape}."
        )
    if max(volume.shape[1:]) > 65535:
        raise InputError(f"A DICOM slice has at most 65535 rows and columns; got {volume.shape}.")
    if volume.unit not in METRES:
        raise InputError(
            f"A DICOM series needs the voxel size in a unit of length; got {volume.unit!r}. "
            "Set it, for example Volume(data, spacing=(0.05, 0.05, 0.05), unit='mm')."
        )
    factor = METRES[volume.unit] / METRES["mm"]
    if volume.unit == "mm":
        return volume.spacing, volume.origin
    return tuple(s * factor for s in volume.spacing), tuple(o * factor for o in volume.origin)


def _stored(values: Array) -> tuple[npt.NDArray[np.int16], str, str]:
    """Return int16 values, and slope and intercept as DICOM text."""
    low, high = float(values.min()), float(values.max())
    if values.dtype.kind in "bui":
        if low >= _LOW and high <= _HIGH:
            return values.astype(np.int16), "1", "0"
        if high - low <= _HIGH - _LOW:
            shift = round(low) - _LOW
            return (values.astype(np.int64) - shift).astype(np.int16), "1", _decimal(shift)
    slope = _decimal((high - low) / (_HIGH - _LOW) or 1.0)
    # the intercept of a constant image is its value, however small beside the slope
    intercept = _decimal(low - float(slope) * _LOW if high > low else low)
    scaled = np.rint((values.astype(np.float64) - float(intercept)) / float(slope))
    return np.clip(scaled, _LOW, _HIGH).astype(np.int16), slope, intercept


def _decimal(value: float) -> str:
    """Return a number as text of at most 16 characters, the limit of DICOM."""
    from pydicom.valuerep import format_number_as_ds

    return str(format_number_as_ds(float(value)))


def _require_series(folder: Path) -> None:
    foreign = [
        item.name
        for item in folder.iterdir()
        if not _SLICE_NAME.fullmatch(item.name) or is_link(item) or item.is_dir()
    ]
    if foreign:
        raise OutputError(
            f"{folder} was not replaced: it contains files that do not belong to a series written "
            f"by hushpore ({', '.join(sorted(foreign)[:3])}). Choose another folder."
        )
