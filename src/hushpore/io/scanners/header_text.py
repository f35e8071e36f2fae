"""Headers of scanners in INI text: sections of ``key = value``, and the settings of the scan."""

from __future__ import annotations

import codecs
import math
import re
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.safe_text import on_one_line, require_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    #: ``key -> value`` of each section, names in lower case.
    Sections = dict[str, dict[str, str]]

#: Maximum size of a header in bytes; logs of long scans have about 100 kB.
_LONGEST_HEADER = 1 << 22
#: Maximum length of a text setting in characters.
_LONGEST_TEXT = 80
#: Text of datos|x and other programs for a setting that nobody entered.
_NOT_ENTERED = ("unknown", "please define", "not defined", "undefined", "n/a")
_NUMBER = re.compile(r"[-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?")
#: Key in the metadata of a volume for the settings of the scanner.
SCANNER = "scanner"


def read_sections(path: Path) -> Sections:
    """Read the sections of a header in INI text.

    Parameters
    ----------
    path : Path
        A text file with ``[section]`` or ``{block}`` lines and ``key = value`` lines, in UTF-8,
        UTF-16 or a single-byte encoding.

    Returns
    -------
    dict
        For each section a dict of its keys, all names in lower case and with u for µ. A
        section within a block is named ``"block/section"``; keys before any section are in ``""``.
        Of a key that occurs twice in a section the first value counts.

    Raises
    ------
    OSError
        If the file cannot be read or is no plain file.
    """
    require_plain(path)
    with path.open("rb") as file:
        content = file.read(_LONGEST_HEADER)
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        # any bytes are text in Latin-1, which older programs of Windows write
        text = content.decode("utf-16", errors="replace") if wide else content.decode("latin-1")
    sections: Sections = {}
    block = section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("{") and line.endswith("}"):
            block, section = line[1:-1].strip().lower(), ""
        elif line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip().lower()
        elif "=" in line:
            key, _, value = line.partition("=")
            name = f"{block}/{section}" if block else section
            plain = key.strip().lower().replace("µ", "u").replace("μ", "u")
            sections.setdefault(name, {}).setdefault(plain, value.strip())
    return sections


def first_value(sections: Mapping[str, Mapping[str, str]], *keys: str) -> str:
    """Return the value of the first key that is found, in any section; empty if none is."""
    for key in keys:
        for section in sections.values():
            if section.get(key):
                return section[key]
    return ""


def number_of(text: str) -> float | None:
    """Return the number at the beginning of a text, with a decimal point or comma, or None.

    >>> number_of("12,5 um"), number_of("auto")
    (12.5, None)
    """
    found = _NUMBER.match(text.strip())
    number = float(found[0].replace(",", ".")) if found else math.nan
    return number if math.isfinite(number) else None


def whole_number(text: str, what: str, header: Path) -> int:
    """Return a whole number above zero; otherwise raises InputError with key and header."""
    number = number_of(text)
    if number is None or number < 1 or not number.is_integer():
        raise InputError(
            f"{header.name}: expected a whole number above zero for {what}, found {text!r}. Copy "
            "or export it again."
        )
    return int(number)


def sizes_of(texts: Iterable[str]) -> tuple[float, ...] | None:
    """Return lengths from texts, or None unless all are numbers above zero."""
    numbers = [number_of(text) for text in texts]
    found = tuple(number for number in numbers if number is not None and number > 0)
    return found if numbers and len(found) == len(numbers) else None


def settings_of(**values: Any) -> dict[str, Any]:
    """Return the scanner settings that a header states, as metadata of a volume.

    Parameters
    ----------
    **values
        By name, for example ``voltage_kv``, ``current_ua``, ``exposure_ms``, ``filter``: text
        from the header. Names that end in a unit are numbers. Empty text, placeholders such as
        ``Unknown``, and text without the number that is expected are left out.

    Returns
    -------
    dict
        ``{"scanner": {...}}``, or empty if nothing is stated.
    """
    said: dict[str, Any] = {}
    for name, value in values.items():
        text = str(value or "").strip()
        number = number_of(text)
        if not name.endswith(("_kv", "_ua", "_ms", "_deg", "_mm")):
            if text and not text.lower().startswith(_NOT_ENTERED):
                said[name] = on_one_line(text, _LONGEST_TEXT)
        elif number is not None:
            said[name] = number
    return {SCANNER: said} if said else {}
