"""Headers of DICOM files: only the elements for geometry and grey values.

Nothing that identifies a patient is read.
"""

from __future__ import annotations

import functools
import math
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import HushporeError
from hushpore.base.formatting import on_one_line
from hushpore.io.dicom.geometry import Slice
from hushpore.io.dicom.pixels import DEFLATED, HEADER, Encoding, inflated
from hushpore.io.guards import captured_warnings, limits_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path
    from typing import BinaryIO, TypeAlias

    #: Image planes, and the name of each skipped file with the reason.
    Headers: TypeAlias = tuple[list[Slice], list[tuple[str, str]]]
    #: Returns an element of a frame, given its keyword and the functional group sequence with it.
    Lookup: TypeAlias = Callable[[str, str], Any]

# value representations that are decoded here; pydicom decodes all others
_TEXT = ("CS", "DS", "IS", "LO", "UI")
# escape to another character set, in which ASCII bytes stand for other letters
_ESCAPE = b"\x1b"
_WHOLE = {"US": False, "SS": True}
_DICOMDIR = "1.2.840.10008.1.3.10"
_LARGEST_IMAGE = 2**40  # bytes; a larger declared size means a damaged header
# implicit and explicit, little and big endian; not stated
_UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2", "")
# the only elements that are read; patient, institution and the rest stay in the file
_TAGS = [
    "BitsAllocated", "BitsStored", "Columns", "DoseGridScaling", "GridFrameOffsetVector", "HighBit",
    "ImageOrientationPatient", "ImagePositionPatient", "ImageType", "ImagerPixelSpacing",
    "InstanceNumber", "Modality", "ModalityLUTSequence", "NominalScannedPixelSpacing",
    "NumberOfFrames", "PerFrameFunctionalGroupsSequence", "PhotometricInterpretation",
    "PixelPaddingRangeLimit", "PixelPaddingValue", "PixelRepresentation", "PixelSpacing",
    "RescaleIntercept", "RescaleSlope", "RescaleType", "Rows", "SOPInstanceUID",
    "SamplesPerPixel", "SeriesDescription", "SeriesInstanceUID", "SeriesNumber",
    "SharedFunctionalGroupsSequence", "SliceLocation", "SliceThickness", "SpacingBetweenSlices",
    "WindowCenter", "WindowWidth",
]  # fmt: skip
# number of the pixel data element in its group: data type of float pixel data
_FLOATS = {0x0008: "f4", 0x0009: "f8"}
_PIXELS = 0x7FE0
# numbers with decimal points, joined by commas
_POINTS_APART = re.compile(r"[^,]*\.[^,]*(?:,[^,]*\.[^,]*)*,?")
_BATCH = 50  # headers per progress report
_UNDEFINED = 0xFFFFFFFF


class Header:
    """Elements of a data set, by keyword, decoded faster than by pydicom.

    `dataset`: as read from a file, with raw elements (bytes).
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def get(self, name: str, default: Any = None) -> Any:
        """Return a number, text, list of texts or sequence; the default for an empty element.

        Numbers stored as text stay text; see `numbers`.
        """
        tag, representation = _entry(name)
        element = self._dataset.get_item(tag)
        if element is None:
            return default
        content = element.value
        if isinstance(content, bytes):
            representation = element.VR or representation
            if representation in _TEXT and content.isascii() and _ESCAPE not in content:
                texts = content.decode("ascii").rstrip("\0 ").split("\\")
                content = [text.strip() for text in texts] if len(texts) > 1 else texts[0].strip()
            elif representation in _WHOLE and len(content) >= 2:
                return int.from_bytes(
                    content[:2],
                    "little" if element.is_little_endian else "big",
                    signed=_WHOLE[representation],
                )
            else:
                content = self._dataset[tag].value
        return default if content is None or content == "" else content


def first(dataset: Any, sequence: str) -> Any:
    """Return the first item of a sequence, or None if it has none."""
    items = dataset.get(sequence)
    return items[0] if items else None


def numbers(value: Any) -> list[float]:
    r"""Return the numbers of an element with one or more values; empty if any is not finite.

    >>> numbers(["1.5", "2"]), numbers("0,3"), numbers(None), numbers("many")
    ([1.5, 2.0], [0.3], [], [])
    >>> numbers("0.3\\0.4"), numbers("0.3, 0.4"), numbers("1,234.5")
    ([0.3, 0.4], [0.3, 0.4], [])
    """
    if value is None or value == "":
        return []
    many = value if hasattr(value, "__iter__") and not isinstance(value, str) else [value]
    try:
        found = [number for each in many for number in _numbers_in(each)]
    except (TypeError, ValueError):
        return []
    return found if all(math.isfinite(number) for number in found) else []


def _numbers_in(value: Any) -> list[float]:
    """Return the numbers of one value; text may hold several, as some programs write it."""
    if not isinstance(value, str):
        return [float(value)]
    texts = re.split(r"[\\;\s]+", value.strip(" \\;[]"))
    if all(_POINTS_APART.fullmatch(text) for text in texts):
        texts = [part for text in texts for part in text.split(",") if part]
    # some programs write decimals as their country does
    return [float(text.replace(",", ".")) for text in texts if text]


def number(value: Any, default: Any) -> float:
    """Return the first number of an element, else that of `default`, else 1."""
    found = numbers(value) or numbers(default)
    return found[0] if found else 1.0


def integer(value: Any) -> int | None:
    """Return the first number of an element, truncated to an integer, or None."""
    found = numbers(value)
    return int(found[0]) if found else None


@functools.cache
def _entry(name: str) -> tuple[Any, str]:
    from pydicom.datadict import dictionary_VR, tag_for_keyword
    from pydicom.tag import Tag

    tag = tag_for_keyword(name)
    assert tag is not None, name
    return Tag(tag), dictionary_VR(tag)


def is_dicomdir(path: Path) -> bool:
    """Return whether a DICOM file is a DICOMDIR, which contains no image itself."""
    import pydicom

    try:
        with captured_warnings("pydicom"):
            meta = pydicom.filereader.read_file_meta_info(path)
            return str(meta.get("MediaStorageSOPClassUID", "")) == _DICOMDIR
    except OSError:
        raise
    except Exception:
        return False


def read_headers(files: Sequence[Path]) -> Generator[float, None, Headers]:
    """Read the headers of DICOM files; yields the fraction read so far.

    `files`: files in any order.
    Returns: a slice for each greyscale image plane; the name of each other file, and the reason.
    """
    slices: list[Slice] = []
    left_out: list[tuple[str, str]] = []
    for start in range(0, len(files), _BATCH):
        # capturing warnings is global, so do not yield inside the block
        with captured_warnings("pydicom"):
            for path in files[start : start + _BATCH]:
                found, reason = _read_header(path)
                slices += found
                if reason:
                    left_out.append((path.name, reason))
        yield min((start + _BATCH) / len(files), 1.0)
    return slices, left_out


@functools.cache
def _tags() -> list[Any]:
    """Return the tags of the elements to read; pydicom would look them up for each file."""
    from pydicom.tag import Tag

    return [Tag(each) for each in _TAGS]


def _read_header(path: Path) -> tuple[list[Slice], str]:
    """Return the greyscale planes of a file, or the reason why there are none."""
    import pydicom

    try:
        with path.open("rb") as file:
            content = inflated(file, HEADER) or file
            header = pydicom.dcmread(
                content, stop_before_pixels=True, force=True, specific_tags=_tags()
            )
            if str(header.file_meta.get("MediaStorageSOPClassUID", "")) == _DICOMDIR:
                return [], ""
            values = Header(header)
            reason = _unusable(values)
            if reason:
                return [], reason
            return _slices(values, _encoding(header, values, path, content, file)), ""
    except HushporeError as error:
        return [], str(error)
    except (OSError, MemoryError):
        raise
    except Exception as error:
        # a damaged header can raise any error, which must not stop the other files
        return [], f"damaged header ({type(error).__name__})"


def _unusable(header: Header) -> str:
    """Return the reason why a data set is not a greyscale image; empty if it is one."""
    rows, columns, bits = _integers(header, "Rows", "Columns", "BitsAllocated")
    if rows is None or columns is None or bits is None:
        return f"no pixels ({header.get('Modality', 'document')})"
    frames = _frames(header)
    if bits not in (1, 8, 16, 32, 64):
        return f"{bits} bits per pixel; 8, 16, 32 or 64 are supported"
    if min(rows, columns, frames) < 1:
        return f"no pixels ({frames} x {rows} x {columns})"
    if rows * columns * frames * bits // 8 > _LARGEST_IMAGE:
        return f"impossible image size in the header ({frames} x {rows} x {columns})"
    colour = str(header.get("PhotometricInterpretation", "MONOCHROME2"))
    if header.get("SamplesPerPixel", 1) != 1 or not colour.startswith("MONOCHROME"):
        return f"colour image ({colour})"
    return ""


def _integers(header: Header, *names: str) -> list[int | None]:
    """Return elements as integers, also if they are stored as decimals or text."""
    return [integer(header.get(name)) for name in names]


def _frames(header: Header) -> int:
    # some writers state 0 for the one image that follows
    return integer(header.get("NumberOfFrames")) or 1


def _encoding(
    dataset: Any, header: Header, path: Path, content: BinaryIO, file: BinaryIO
) -> Encoding:
    """Determine where and how the pixel data are stored.

    `content`: positioned at the end of the header; either `file` or the inflated file.
    """
    is_deflated = content is not file
    syntax = DEFLATED if is_deflated else str(dataset.file_meta.get("TransferSyntaxUID", ""))
    _, little = dataset.original_encoding
    order = "<" if little else ">"
    at = content.tell()
    start = content.read(12)
    size = os.fstat(file.fileno()).st_size
    element = start[:4] if little else start[1::-1] + start[3:1:-1]
    group, which = int.from_bytes(element[:2], "little"), int.from_bytes(element[2:], "little")
    stated = _integers(header, "Rows", "Columns", "BitsAllocated")
    rows, columns, bits = (each or 0 for each in stated)
    signed = header.get("PixelRepresentation", 0) == 1
    kind = _FLOATS.get(which, f"{'i' if signed else 'u'}{max(bits // 8, 1)}")
    stored = integer(header.get("BitsStored")) or bits
    if not 0 < stored <= bits:
        stored = bits
    high = integer(header.get("HighBit"))
    if high is None or not stored - 1 <= high < bits:
        high = stored - 1
    # the transfer syntax in the header may be wrong, so test for a value representation
    explicit = start[4:6] in (b"OB", b"OW", b"OF", b"OD", b"UN")
    length = int.from_bytes(start[8:12] if explicit else start[4:8], "little" if little else "big")
    offset = at + (12 if explicit else 8)
    # leave these to pydicom: packed bits, big-endian bytes swapped in pairs, deflated files without
    # offsets, and contradictions: a compressed image always has an undefined length, an
    # uncompressed one never
    plain = syntax in _UNCOMPRESSED
    if is_deflated or bits == 1 or (not little and bits == 8):
        offset = -1
    elif len(start) < 8 or group != _PIXELS:
        offset = size  # no pixel data
    elif plain == (length == _UNDEFINED):
        offset = -1
    return Encoding(
        path=path,
        size=size,
        syntax=syntax,
        n_frames=_frames(header),
        shape=(rows, columns),
        dtype=np.dtype(f"{order}{kind}"),
        bits_stored=stored,
        high_bit=high,
        offset=offset,
        length=None if length == _UNDEFINED or offset < 0 else length,
        limits=limits_for(path, size),
    )


def _slices(header: Header, encoding: Encoding) -> list[Slice]:
    # one slice for all frames of an incomplete file; opening it reports the error
    n_frames = encoding.n_frames if encoding.is_complete else 1
    shared = first(header, "SharedFunctionalGroupsSequence")
    frames = header.get("PerFrameFunctionalGroupsSequence") or []
    offsets = numbers(header.get("GridFrameOffsetVector"))
    table = first(header, "ModalityLUTSequence")
    line = None if table is None else _line_of(table)
    kind_of_table = "" if table is None else str(table.get("ModalityLUTType", ""))
    facts = {**_facts(header), "curved": table is not None and line is None}
    slices = []
    for frame in range(n_frames):
        own = frames[frame] if frame < len(frames) else None
        value = _lookup(header, own, shared)
        place = numbers(value("ImagePositionPatient", "PlanePositionSequence"))
        position = (place[0], place[1], place[2]) if len(place) == 3 else None
        turned = numbers(value("ImageOrientationPatient", "PlaneOrientationSequence"))
        orientation = tuple(turned) if len(turned) == 6 and any(turned) else None
        if position and n_frames > 1 and own is None:
            if frame < len(offsets) and orientation is not None:
                # dose grids give the offsets from the first frame
                normal = np.cross(orientation[:3], orientation[3:])
                x, y, z = np.asarray(position) + normal * (offsets[frame] - offsets[0])
                position = float(x), float(y), float(z)
            else:
                position = None
        rescale = "PixelValueTransformationSequence"
        slope, intercept = line or (
            value(name, rescale) for name in ("RescaleSlope", "RescaleIntercept")
        )
        scaling = {
            "RescaleSlope": slope,
            "RescaleIntercept": intercept,
            "DoseGridScaling": header.get(
                "DoseGridScaling", "" if facts["modality"] == "RTDOSE" else None
            ),
        }
        windows = _windows(value)
        distance, distance_name = _distance(value)
        pixel_spacing = _pixel_spacing(value)
        location = numbers(header.get("SliceLocation"))
        slices.append(
            Slice(
                path=encoding.path,
                frame=frame,
                n_frames=n_frames,
                shape=encoding.shape,
                series=str(header.get("SeriesInstanceUID", "")),
                instance=str(header.get("SOPInstanceUID", "")),
                number=integer(header.get("InstanceNumber")),
                position=position,
                orientation=orientation,
                pixel_spacing=pixel_spacing,
                distance=distance,
                distance_name=distance_name,
                location=location[0] if location else None,
                encoding=encoding,
                slope=number(slope, header.get("DoseGridScaling", 1.0)),
                intercept=number(intercept, 0.0),
                facts={
                    **facts,
                    "no_spacing": "" if pixel_spacing else _why_no_spacing(value),
                    "windows": windows,
                    # scaling elements that are not numbers
                    "unscaled": [
                        name for name, stated in scaling.items()
                        if stated is not None and not numbers(stated)
                    ],
                    "calibrated": (
                        slope is not None and line is None and facts["modality"] == "CT"
                    ) or "HU" in (str(value("RescaleType", rescale)), kind_of_table),
                },
            )
        )  # fmt: skip
    return slices


def _line_of(table: Any) -> tuple[float, float] | None:
    """Return slope and intercept of a Modality LUT (PS3.3 C.11.1), or None if it is no line."""
    described, data = numbers(table.get("LUTDescriptor")), table.get("LUTData")
    values = np.frombuffer(data, "<u2") if isinstance(data, bytes) else np.asarray(data)
    steps = np.diff(values.astype(np.float64))
    if len(described) != 3 or not steps.size or steps[0] <= 0 or np.ptp(steps):
        return None
    return float(steps[0]), float(values[0] - steps[0] * described[1])


def _lookup(header: Header, own: Any, shared: Any) -> Lookup:
    """Return a function that looks up an element in functional groups, then in the header."""

    def value(name: str, sequence: str) -> Any:
        for each in (own, shared):
            item = None if each is None else first(each, sequence)
            if item is not None and item.get(name) is not None:
                return item.get(name)
        return header.get(name)

    return value


def _facts(header: Header) -> dict[str, Any]:
    """Return the elements common to a series, without anything that identifies a person."""
    image_type = str(header.get("ImageType", "")).upper()
    return {
        "modality": str(header.get("Modality", "")),
        "description": str(header.get("SeriesDescription", "")),
        "series_number": integer(header.get("SeriesNumber")),
        "localiser": "LOCALIZER" in image_type,
        "zero_frames": integer(header.get("NumberOfFrames")) == 0,
        "inverted": str(header.get("PhotometricInterpretation", "")) == "MONOCHROME1",
        "padding": integer(header.get("PixelPaddingValue")),
        "padding_limit": integer(header.get("PixelPaddingRangeLimit")),
    }


def _windows(value: Lookup) -> list[list[float]]:
    """Return the lowest and highest value of every display window in the header."""
    centres = numbers(value("WindowCenter", "FrameVOILUTSequence"))
    widths = numbers(value("WindowWidth", "FrameVOILUTSequence"))
    pairs = zip(centres, widths, strict=False)
    return [[centre - width / 2, centre + width / 2] for centre, width in pairs if width > 0]


def _pixel_spacing(value: Lookup) -> tuple[float, float] | None:
    for name in ("PixelSpacing", "NominalScannedPixelSpacing"):
        found = numbers(value(name, "PixelMeasuresSequence"))
        if len(found) in (1, 2) and min(found) > 0:
            # one number is that of both axes, as for ITK
            return found[0], found[-1]
    return None


def _why_no_spacing(value: Lookup) -> str:
    """Return what the header has in place of a pixel spacing, for a note."""
    stated = value("PixelSpacing", "PixelMeasuresSequence")
    if stated is not None:
        many = [stated] if isinstance(stated, str) else stated
        text = "\\".join(map(str, many)) if hasattr(many, "__iter__") else str(many)
        kind = "is not two lengths above zero" if numbers(stated) else "is not a number"
        return f"the header gives a pixel spacing that {kind} ({on_one_line(text, 40)!r})"
    pitch = numbers(value("ImagerPixelSpacing", "PixelMeasuresSequence"))
    if pitch:
        return (
            f"the header gives the pixel pitch of the detector (ImagerPixelSpacing, {pitch[0]:g} "
            "mm), which is not the pixel size in the sample"
        )
    return "the header gives no pixel spacing"


def _distance(value: Lookup) -> tuple[float | None, str]:
    """Return the slice distance and the keyword of its element."""
    for name in ("SpacingBetweenSlices", "SliceThickness"):
        found = numbers(value(name, "PixelMeasuresSequence"))
        if found and abs(found[0]) > 0:
            return abs(found[0]), name
    return None, ""
