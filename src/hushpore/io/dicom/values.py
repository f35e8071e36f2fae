"""Values of DICOM elements, from their bytes: all that a series needs, in a third of the time."""

from __future__ import annotations

import functools
import math
from typing import Any

# value representations by how their bytes are read here; pydicom reads all others
_TEXT = ("CS", "DS", "IS", "LO", "UI")
# begins a change of the character set, after which bytes of ASCII stand for other letters
_ESCAPE = b"\x1b"
_WHOLE = {"US": False, "SS": True}


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
