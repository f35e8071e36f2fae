"""Headers as nearly all scanners write them, read without pydicom in a tenth of its time.

They lie within the first bytes of a file, element after element in order of their tags, little
endian, each with its length. Where anything is otherwise, or a wanted value needs more than its own
bytes, nothing is found here, and pydicom reads the header.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from hushpore.io.dicom.values import NUMBERS, TEXTS, representation_of

if TYPE_CHECKING:
    from collections.abc import Set

#: Bytes of a file within which a header is looked for.
BEGINNING = 1 << 14
_IMPLICIT, _EXPLICIT = "1.2.840.10008.1.2", "1.2.840.10008.1.2.1"
# compressed pixels: the header before them is explicit
_COMPRESSED = ("1.2.840.10008.1.2.4.", "1.2.840.10008.1.2.5")
_META = 132  # where the meta information begins, with its own length
_MEDIA, _SYNTAX = 0x00020002, 0x00020010
_PIXELS = (0x7FE00008, 0x7FE00009, 0x7FE00010)
#: Bytes at which an element of pixels begins, at most, with their length.
_PIXEL_HEADER = 12
# tags of the meta information, and of what follows it
_OF_META, _OF_DATA = (0x00020000, 0x0002FFFF), (0x0007FFFF, 0x7FDFFFFF)
# value representations whose lengths have 2 bytes, and 4
_SHORT = frozenset(b"AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split())
_LONG = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())
# of an element: group, number, representation, length; of one without a representation its length
_ELEMENT, _TAG, _LENGTH = struct.Struct("<HH2sH"), struct.Struct("<HH"), struct.Struct("<L")


class Element(NamedTuple):
    """An element, with the names that pydicom has for its parts."""

    value: bytes
    VR: str
    is_little_endian: bool = True


class PlainHeader(NamedTuple):
    """The wanted elements of a header, as `hushpore.io.dicom.values.Header` takes a data set."""

    elements: dict[int, Element]
    media: str  # UID of what the file is, and that of its transfer syntax
    syntax: str
    end: int  # where the element of the pixels begins

    def get_item(self, tag: int) -> Any:
        """Return an element, or None where it is not there or empty."""
        return self.elements.get(tag)


def plain_header(start: bytes, wanted: Set[int]) -> PlainHeader | None:
    """Return the elements of some tags, or None where the header is not as plain as that.

    `start`: the first bytes of a file.
    """
    # the length of the meta information is its first element
    if start[128:_META] != b"DICM" or start[_META : _META + 8] != b"\2\0\0\0UL\4\0":
        return None
    try:
        begin = _META + 12
        end = begin + _LENGTH.unpack_from(start, begin - 4)[0]
        meta, at = _elements(start, begin, end, {_MEDIA, _SYNTAX}, _OF_META, explicit=True)
        syntax = _uid(meta, _SYNTAX)
        explicit = syntax == _EXPLICIT or syntax.startswith(_COMPRESSED)
        if at != end or not (explicit or syntax == _IMPLICIT):
            return None
        rest = len(start) - _PIXEL_HEADER
        elements, at = _elements(start, end, rest, wanted, _OF_DATA, explicit=explicit)
        is_whole = _tag(*_TAG.unpack_from(start, at)) in _PIXELS
    except (LookupError, ValueError, struct.error):
        return None
    return PlainHeader(elements, _uid(meta, _MEDIA), syntax, at) if is_whole else None


def _elements(
    start: bytes,
    at: int,
    end: int,
    wanted: Set[int],
    tags: tuple[int, int],
    *,
    explicit: bool,
) -> tuple[dict[int, Element], int]:
    """Return wanted elements up to the end or the pixels, and where the one after the last begins.

    `tags`: all are above the first of these and up to the second.
    Raises ValueError, LookupError, struct.error where elements are not plain.
    """
    found: dict[int, Element] = {}
    before, most = tags
    while at < end:
        group, which, representation, length = _ELEMENT.unpack_from(start, at)
        tag = _tag(group, which)
        if tag in _PIXELS:
            break
        # in a sequence without a length, and in bytes that are no header, they are in no order
        if not before < tag <= most:
            raise ValueError("The tags are in no order.")
        before = tag
        if not explicit:
            if representation.isupper():
                raise ValueError("It may be explicit all the same.")
            length, begin = _LENGTH.unpack_from(start, at + 4)[0], at + 8
        elif representation in _SHORT:
            begin = at + 8
        elif representation in _LONG:
            length, begin = _LENGTH.unpack_from(start, at + 8)[0], at + 12
        else:
            raise ValueError("It has no representation.")
        at = begin + length
        if at > end:
            raise ValueError("It goes on behind what was read.")
        if length and tag in wanted:
            kind = representation.decode() if explicit else representation_of(tag)
            value = start[begin:at]
            if not ((kind in TEXTS and value.isascii()) or (kind in NUMBERS and length >= 2)):
                raise ValueError("Its bytes alone do not say what it is.")
            found[tag] = Element(value, kind)
    return found, at


def _tag(group: int, which: int) -> int:
    return group << 16 | which


def _uid(elements: dict[int, Element], tag: int) -> str:
    return elements[tag].value.decode().rstrip("\0 ") if tag in elements else ""
