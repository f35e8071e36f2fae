"""Headers of DICOM files, reduced to what places and rescales a slice.

Nothing that identifies a patient is taken from a header.
"""

from __future__ import annotations

import functools
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import HushporeError
from hushpore.io.dicom.geometry import Slice
from hushpore.io.dicom.pixels import DEFLATED, HEADER, Encoding, inflated
from hushpore.io.input_limits import limits_for
from hushpore.io.libraries import captured_warnings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path
    from typing import BinaryIO, TypeAlias

    from hushpore.io.input_limits import InputLimits

    #: Planes, and the name of each file that holds none with the reason.
    Headers: TypeAlias = tuple[list[Slice], list[tuple[str, str]]]
    #: Returns a value of a frame, by its name and the sequence of functional groups that has it.
    Lookup: TypeAlias = Callable[[str, str], Any]

# value representations by how their bytes are read here; pydicom reads all others
_TEXT = ("CS", "DS", "IS", "LO", "UI")
# begins a change of the character set, after which bytes of ASCII stand for other letters
_ESCAPE = b"\x1b"
_WHOLE = {"US": False, "SS": True}
_DICOMDIR = "1.2.840.10008.1.3.10"
_LARGEST_IMAGE = 2**40  # bytes; beyond it a header is wrong, not a scan large
# implicit and explicit, little and big endian; none stated
_UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2", "")
# all that is read of a header: patient, institution and the rest stay in the file
_TAGS = [
    "BitsAllocated", "BitsStored", "Columns", "DoseGridScaling", "GridFrameOffsetVector", "HighBit",
    "ImageOrientationPatient", "ImagePositionPatient", "ImageType", "ImagerPixelSpacing",
    "InstanceNumber", "Modality", "NominalScannedPixelSpacing", "NumberOfFrames",
    "PerFrameFunctionalGroupsSequence", "PhotometricInterpretation", "PixelPaddingRangeLimit",
    "PixelPaddingValue", "PixelRepresentation", "PixelSpacing", "RescaleIntercept", "RescaleSlope",
    "RescaleType", "Rows", "SOPInstanceUID", "SamplesPerPixel", "SeriesDescription",
    "SeriesInstanceUID", "SeriesNumber", "SharedFunctionalGroupsSequence", "SliceThickness",
    "SpacingBetweenSlices", "WindowCenter", "WindowWidth",
]  # fmt: skip
# element of the pixels, without group: their kind of number where the header does not say
_FLOATS = {0x0008: "f4", 0x0009: "f8"}
_PIXELS = 0x7FE0
_ITEM = b"\xfe\xff\x00\xe0"  # the tag of an item of a sequence, little endian
_PIXEL_TAG = b"\xe0\x7f\x10\x00"  # that of pixels
_MANY_ITEMS = 50_000
_BATCH = 50  # headers from one report of progress to the next
_UNDEFINED = 0xFFFFFFFF


class Header:
    """The elements of a data set, by keyword.

    `dataset`: as read from a file; its elements are still bytes, which pydicom would turn into
    objects that check themselves.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def get(self, name: str, default: Any = None) -> Any:
        """Return a number, a text, a list of texts, a sequence, or the default where it is empty.

        Numbers that are written as text stay text; see `numbers`.
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
    """Return the first item of a sequence, or None where there is none."""
    items = dataset.get(sequence)
    return items[0] if items else None


def numbers(value: Any) -> list[float]:
    """Return the finite numbers of an element with one or several values, or an empty list.

    >>> numbers(["1.5", "2"]), numbers("3"), numbers(None), numbers("many")
    ([1.5, 2.0], [3.0], [], [])
    """
    if value is None or value == "":
        return []
    many = value if hasattr(value, "__iter__") and not isinstance(value, str) else [value]
    try:
        found = [float(each) for each in many]
    except (TypeError, ValueError):
        return []
    return found if all(math.isfinite(number) for number in found) else []


def number(value: Any, default: Any) -> float:
    """Return the first number of an element, or of `default`, or one."""
    found = numbers(value) or numbers(default)
    return found[0] if found else 1.0


def integer(value: Any) -> int | None:
    """Return the first number of an element without its decimals, or None."""
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
    """Whether a DICOM file is the directory of a disc, which holds no image itself."""
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
    """Read the headers of DICOM files; yields the share that was read so far.

    `files`: files in any order.
    Returns: one for each greyscale image plane; name of each file that holds none, and why.
    """
    slices: list[Slice] = []
    left_out: list[tuple[str, str]] = []
    for start in range(0, len(files), _BATCH):
        # nothing is yielded while messages are captured, which concerns the whole process
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
    """Return the tags of what is read, which pydicom would look up anew for each file."""
    from pydicom.tag import Tag

    return [Tag(each) for each in _TAGS]


def _read_header(path: Path) -> tuple[list[Slice], str]:
    """Return the greyscale planes of a file, or why there are none."""
    import pydicom

    try:
        with path.open("rb") as file:
            _require_few_items(file, limits_for(path))
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
        # any kind of error comes out of a damaged header; none may stop the other files
        return [], f"a damaged header ({type(error).__name__})"


def _require_few_items(file: BinaryIO, gate: InputLimits) -> None:
    """Refuse a header of more items than any has, each of which takes time; `file`: at its begin.

    Raises NotTrustedError if it has so many.
    """
    if gate.stored < _MANY_ITEMS * len(_ITEM):
        return
    count, length = 0, 1 << 16
    while piece := file.read(length):
        header, pixels, _ = piece.partition(_PIXEL_TAG)
        count, length = count + header.count(_ITEM), 1 << 20
        if pixels or count > _MANY_ITEMS:
            break
    file.seek(0)
    if count > _MANY_ITEMS:
        gate.require_few(count, "items in its header")


def _unusable(header: Header) -> str:
    """Return why a data set is not a greyscale image, or an empty string."""
    rows, columns, bits = _integers(header, "Rows", "Columns", "BitsAllocated")
    if rows is None or columns is None or bits is None:
        return f"no pixels ({header.get('Modality', 'document')})"
    frames = _frames(header)
    if bits not in (1, 8, 16, 32, 64):
        return f"{bits} bits a pixel, where 8, 16, 32 or 64 are usual"
    if min(rows, columns, frames) < 1:
        return f"no pixels ({frames} x {rows} x {columns})"
    if rows * columns * frames * bits // 8 > _LARGEST_IMAGE:
        return f"the header states an impossible size ({frames} x {rows} x {columns})"
    colour = str(header.get("PhotometricInterpretation", "MONOCHROME2"))
    if header.get("SamplesPerPixel", 1) != 1 or not colour.startswith("MONOCHROME"):
        return f"a colour image ({colour})"
    return ""


def _integers(header: Header, *names: str) -> list[int | None]:
    """Return numbers as the standard has them, also where they are stated as decimals or text."""
    return [integer(header.get(name)) for name in names]


def _frames(header: Header) -> int:
    stated = integer(header.get("NumberOfFrames"))
    return 1 if stated is None else stated


def _encoding(
    dataset: Any, header: Header, path: Path, content: BinaryIO, file: BinaryIO
) -> Encoding:
    """Find where and how the pixels are stored.

    `content`: stands where the header ends; it is the `file`, or what a deflated one expands to.
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
    # a stated syntax and the file may disagree; a value representation is a capital letter
    explicit = start[4:6] in (b"OB", b"OW", b"OF", b"OD", b"UN")
    length = int.from_bytes(start[8:12] if explicit else start[4:8], "little" if little else "big")
    offset = at + (12 if explicit else 8)
    # bits are packed, and big-endian bytes swapped in pairs; a deflated file has no offsets; a
    # compressed image always has a length that is not defined, and an uncompressed one never
    plain = syntax in _UNCOMPRESSED
    if is_deflated or bits == 1 or (not little and bits == 8):
        offset = -1
    elif len(start) < 8 or group != _PIXELS:
        offset = size  # no pixels
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
        gate=limits_for(path, size),
    )


def _slices(header: Header, encoding: Encoding) -> list[Slice]:
    # one stands for all where there cannot be so many; what is wrong is said when it is opened
    n_frames = encoding.n_frames if encoding.is_complete else 1
    shared = first(header, "SharedFunctionalGroupsSequence")
    frames = header.get("PerFrameFunctionalGroupsSequence") or []
    offsets = numbers(header.get("GridFrameOffsetVector"))
    facts = _facts(header)
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
                # offsets from the first frame, as dose grids state them
                normal = np.cross(orientation[:3], orientation[3:])
                x, y, z = np.asarray(position) + normal * (offsets[frame] - offsets[0])
                position = float(x), float(y), float(z)
            else:
                position = None
        rescale = "PixelValueTransformationSequence"
        slope = value("RescaleSlope", rescale)
        intercept = value("RescaleIntercept", rescale)
        scaling = {
            "RescaleSlope": slope,
            "RescaleIntercept": intercept,
            "DoseGridScaling": header.get(
                "DoseGridScaling", "" if facts["modality"] == "RTDOSE" else None
            ),
        }
        windows = _windows(value)
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
                pixel_spacing=_pixel_spacing(value),
                distance=_distance(value),
                encoding=encoding,
                slope=number(slope, header.get("DoseGridScaling", 1.0)),
                intercept=number(intercept, 0.0),
                facts={
                    **facts,
                    "windows": windows,
                    # what should scale the values, and is no number
                    "unscaled": [
                        name for name, stated in scaling.items()
                        if stated is not None and not numbers(stated)
                    ],
                    "calibrated": (slope is not None and facts["modality"] == "CT")
                    or str(value("RescaleType", rescale)) == "HU",
                },
            )
        )  # fmt: skip
    return slices


def _lookup(header: Header, own: Any, shared: Any) -> Lookup:
    """Return what finds a value in a frame's functional groups, the shared ones, or the header."""

    def value(name: str, sequence: str) -> Any:
        for each in (own, shared):
            item = None if each is None else first(each, sequence)
            if item is not None and item.get(name) is not None:
                return item.get(name)
        return header.get(name)

    return value


def _facts(header: Header) -> dict[str, Any]:
    """Collect what a series says of itself, leaving out whatever identifies a person."""
    image_type = str(header.get("ImageType", "")).upper()
    return {
        "modality": str(header.get("Modality", "")),
        "description": str(header.get("SeriesDescription", "")),
        "series_number": integer(header.get("SeriesNumber")),
        "localiser": "LOCALIZER" in image_type,
        "inverted": str(header.get("PhotometricInterpretation", "")) == "MONOCHROME1",
        "padding": integer(header.get("PixelPaddingValue")),
        "padding_limit": integer(header.get("PixelPaddingRangeLimit")),
    }


def _windows(value: Lookup) -> list[list[float]]:
    """Return the lowest and highest value of every window that the header proposes."""
    centres = numbers(value("WindowCenter", "FrameVOILUTSequence"))
    widths = numbers(value("WindowWidth", "FrameVOILUTSequence"))
    pairs = zip(centres, widths, strict=False)
    return [[centre - width / 2, centre + width / 2] for centre, width in pairs if width > 0]


def _pixel_spacing(value: Lookup) -> tuple[float, float] | None:
    for name in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        found = numbers(value(name, "PixelMeasuresSequence"))
        if len(found) == 2 and min(found) > 0:
            return found[0], found[1]
    return None


def _distance(value: Lookup) -> float | None:
    for name in ("SpacingBetweenSlices", "SliceThickness"):
        found = numbers(value(name, "PixelMeasuresSequence"))
        if found and abs(found[0]) > 0:
            return abs(found[0])
    return None
