"""Headers of DICOM files, reduced to what places and rescales a slice.

Nothing that identifies a patient is taken from a header.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import MissingPackageError
from hushpore.io.geometry import Slice
from hushpore.io.messages import captured

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

_DICOMDIR = "1.2.840.10008.1.3.10"
_LARGEST_IMAGE = 2**40  # bytes; beyond it a header is wrong, not a scan large


def import_pydicom() -> ModuleType:
    """Import pydicom, which the library works without until a DICOM file is met.

    Raises
    ------
    MissingPackageError
        If it is not installed.
    """
    try:
        import pydicom
    except ImportError as error:
        raise MissingPackageError("DICOM files need a further package: pip install pydicom") from (
            error
        )
    return pydicom


def is_dicomdir(path: Path) -> bool:
    """Whether a DICOM file is the directory of a disc, which holds no image itself."""
    pydicom = import_pydicom()
    try:
        with captured("pydicom"):
            meta = pydicom.filereader.read_file_meta_info(path)
            return str(meta.get("MediaStorageSOPClassUID", "")) == _DICOMDIR
    except OSError:
        raise
    except Exception:
        return False


def read_headers(files: Sequence[Path]) -> tuple[list[Slice], list[tuple[str, str]]]:
    """Read the headers of DICOM files.

    Parameters
    ----------
    files : sequence of Path
        Files in any order.

    Returns
    -------
    slices : list of Slice
        One for each greyscale image plane.
    left_out : list of tuple of str
        Name of each file that holds none, and why.

    Raises
    ------
    MissingPackageError
        If pydicom is not installed.
    """
    pydicom = import_pydicom()
    slices: list[Slice] = []
    left_out: list[tuple[str, str]] = []
    for path in files:
        try:
            header = pydicom.dcmread(path, stop_before_pixels=True, force=True)
            if str(header.file_meta.get("MediaStorageSOPClassUID", "")) == _DICOMDIR:
                continue
            reason = _unusable(header)
            found = [] if reason else _slices(header, path)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            # any kind of error comes out of a damaged header; none may stop the other files
            reason, found = f"a damaged header ({type(error).__name__})", []
        if reason:
            left_out.append((path.name, reason))
        slices += found
    return slices, left_out


def _unusable(header: Any) -> str:
    """Return why a data set is not a greyscale image, or an empty string."""
    if "Rows" not in header or "Columns" not in header or "BitsAllocated" not in header:
        kind = header.get("Modality") or "document"
        return f"no pixels ({kind})"
    rows, columns = int(header.Rows), int(header.Columns)
    frames = _whole(header.get("NumberOfFrames")) or 1
    if min(rows, columns, frames) < 1:
        return f"no pixels ({frames} x {rows} x {columns})"
    if rows * columns * frames * int(header.BitsAllocated) // 8 > _LARGEST_IMAGE:
        return f"the header states an impossible size ({frames} x {rows} x {columns})"
    colour = str(header.get("PhotometricInterpretation", "MONOCHROME2"))
    if int(header.get("SamplesPerPixel") or 1) != 1 or not colour.startswith("MONOCHROME"):
        return f"a colour image ({colour})"
    return ""


def _slices(header: Any, path: Path) -> list[Slice]:
    n_frames = _whole(header.get("NumberOfFrames")) or 1
    shared = _first(header, "SharedFunctionalGroupsSequence")
    frames = header.get("PerFrameFunctionalGroupsSequence") or []
    offsets = _numbers(header.get("GridFrameOffsetVector"))
    facts = _facts(header)
    slices = []
    for frame in range(n_frames):
        own = frames[frame] if frame < len(frames) else None
        value = _Lookup(header, shared, own)
        position = _triple(value("ImagePositionPatient", "PlanePositionSequence"))
        orientation = _six(value("ImageOrientationPatient", "PlaneOrientationSequence"))
        if position and n_frames > 1 and own is None:
            position = _offset(position, orientation, offsets, frame)
        rescale = "PixelValueTransformationSequence"
        slope = value("RescaleSlope", rescale)
        intercept = value("RescaleIntercept", rescale)
        window = _window(value)
        slices.append(
            Slice(
                path=path,
                frame=frame,
                n_frames=n_frames,
                shape=(int(header.Rows), int(header.Columns)),
                series=str(header.get("SeriesInstanceUID", "")),
                instance=str(header.get("SOPInstanceUID", "")),
                number=_whole(header.get("InstanceNumber")),
                position=position,
                orientation=orientation,
                pixel_spacing=_pixel_spacing(value),
                distance=_distance(value),
                slope=_number(slope, header.get("DoseGridScaling", 1.0)),
                intercept=_number(intercept, 0.0),
                facts={
                    **facts,
                    **({"contrast_limits": window} if window else {}),
                    "calibrated": (slope is not None and facts["modality"] == "CT")
                    or str(value("RescaleType", rescale)) == "HU",
                },
            )
        )  # fmt: skip
    return slices


class _Lookup:
    """Finds a value in a frame's functional groups, in the shared ones, or in the header."""

    def __init__(self, header: Any, shared: Any, own: Any) -> None:
        self._header = header
        self._groups = [each for each in (own, shared) if each is not None]

    def __call__(self, name: str, sequence: str) -> Any:
        for each in self._groups:
            item = _first(each, sequence)
            if item is not None and item.get(name) is not None:
                return item.get(name)
        return self._header.get(name)


def _facts(header: Any) -> dict[str, Any]:
    """Collect what a series says of itself, leaving out whatever identifies a person."""
    image_type = [str(word).upper() for word in header.get("ImageType") or []]
    return {
        "modality": str(header.get("Modality", "")),
        "description": str(header.get("SeriesDescription", "") or ""),
        "series_number": _whole(header.get("SeriesNumber")),
        "localiser": "LOCALIZER" in image_type,
        "inverted": str(header.get("PhotometricInterpretation", "")) == "MONOCHROME1",
        "padding": _whole(header.get("PixelPaddingValue")),
    }


def _window(value: _Lookup) -> list[float] | None:
    centre = _numbers(value("WindowCenter", "FrameVOILUTSequence"))
    width = _numbers(value("WindowWidth", "FrameVOILUTSequence"))
    if not centre or not width or not width[0] > 0:
        return None
    return [centre[0] - width[0] / 2, centre[0] + width[0] / 2]


def _pixel_spacing(value: _Lookup) -> tuple[float, float] | None:
    for name in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        found = _numbers(value(name, "PixelMeasuresSequence"))
        if len(found) == 2 and min(found) > 0:
            return found[0], found[1]
    return None


def _distance(value: _Lookup) -> float | None:
    for name in ("SpacingBetweenSlices", "SliceThickness"):
        found = _numbers(value(name, "PixelMeasuresSequence"))
        if found and abs(found[0]) > 0:
            return abs(found[0])
    return None


def _offset(
    position: tuple[float, float, float],
    orientation: tuple[float, ...] | None,
    offsets: list[float],
    frame: int,
) -> tuple[float, float, float] | None:
    """Place a frame of an image that states offsets from its first one, as dose grids do."""
    if frame >= len(offsets) or orientation is None:
        return None
    normal = np.cross(orientation[:3], orientation[3:])
    x, y, z = np.asarray(position) + normal * (offsets[frame] - offsets[0])
    return float(x), float(y), float(z)


def _first(dataset: Any, sequence: str) -> Any:
    items = dataset.get(sequence)
    return items[0] if items else None


def _numbers(value: Any) -> list[float]:
    """Return the finite numbers of an element with one or several values, or an empty list."""
    if value is None or value == "":
        return []
    many = value if hasattr(value, "__iter__") and not isinstance(value, str) else [value]
    try:
        numbers = [float(each) for each in many]
    except (TypeError, ValueError):
        return []
    return numbers if all(math.isfinite(number) for number in numbers) else []


def _number(value: Any, default: Any) -> float:
    found = _numbers(value) or _numbers(default)
    return found[0] if found else 1.0


def _whole(value: Any) -> int | None:
    found = _numbers(value)
    return int(found[0]) if found else None


def _triple(value: Any) -> tuple[float, float, float] | None:
    found = _numbers(value)
    return (found[0], found[1], found[2]) if len(found) == 3 else None


def _six(value: Any) -> tuple[float, ...] | None:
    found = _numbers(value)
    return tuple(found) if len(found) == 6 and any(found) else None
