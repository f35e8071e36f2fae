"""Formatting of numbers, units, durations and sizes for people; parsing of length units.

Safe handling of text from files of other people.

A name, unit or description can contain characters that control a terminal, reverse a line, or begin
a formula in a spreadsheet. A path that should be a record can be a pipe without an end.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

#: Length units of a Volume in metres.
METRES = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "nm": 1e-9}

#: Full names of the units, as in NGFF.
FULL = {"m": "meter", "cm": "centimeter", "mm": "millimeter", "um": "micrometer", "nm": "nanometer"}
_NAMES = {
    **{unit: unit for unit in METRES},
    **{spelling: unit for unit, full in FULL.items()
       for spelling in (full, f"{full}s", full[:-2] + "re", full[:-2] + "res")},
    **dict.fromkeys(("µm", "μm", "micron", "microns", "\\u00b5m", "\\u03bcm"), "um"),
    **dict.fromkeys(("", "pixel", "pixels", "px", "voxel", "voxels"), "pixel"),
}  # fmt: skip
# units that are converted, because they are unusual for pores
_CONVERTED = {
    "inch": ("mm", 25.4), "in": ("mm", 25.4), '"': ("mm", 25.4), "inches": ("mm", 25.4),
    "a": ("nm", 0.1), "å": ("nm", 0.1), "angstrom": ("nm", 0.1), "pm": ("nm", 1e-3),
}  # fmt: skip


def unit_of(text: str) -> tuple[str, float] | None:
    """Return the unit for a spelling and the factor that converts to it; None if unknown.

    >>> unit_of("micron"), unit_of("inch"), unit_of("furlong")
    (('um', 1.0), ('mm', 25.4), None)
    """
    key = text.strip().lower()
    if key in _NAMES:
        return _NAMES[key], 1.0
    return _CONVERTED.get(key)


def readable_unit(unit: str, power: int = 1) -> str:
    """Return a length unit with typographic symbols, to some power; files keep the ASCII form.

    >>> readable_unit("um"), readable_unit("um", 3), readable_unit("pixel")
    ('µm', 'µm³', 'px')
    """
    sign = {"um": "µm", "pixel": "px"}.get(unit, unit)
    return sign + {1: "", 2: "²", 3: "³", -1: "⁻¹", -3: "⁻³"}[power]


def readable_number(value: float, digits: int = 3) -> str:
    """Return a number with a given count of significant digits, and rarely an exponent.

    >>> readable_number(1350.4), readable_number(999.96), readable_number(-0.01234)
    ('1,350', '1,000', '-0.0123')
    """
    rounded = float(f"{value:.{digits}g}")
    # large numbers with all zeros instead of an exponent
    return f"{rounded:,.0f}" if 10**digits <= abs(rounded) < 1e9 else f"{rounded:,.{digits}g}"


def readable_grey(value: float) -> str:
    """Return a grey value with four significant digits, or a large one in full.

    >>> readable_grey(14972), readable_grey(22820.4), readable_grey(-372.31)
    ('14972', '22820', '-372.3')
    """
    return f"{value:.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"


def readable_percent(share: float) -> str:
    """Return a fraction in per cent, with as few digits as needed.

    >>> readable_percent(0.386), readable_percent(0.0123), readable_percent(0.99996)
    ('39 %', '1.2 %', '99.996 %')
    """
    percent = 100 * share
    if 99 < abs(percent) < 100:
        # a fraction below 100 % must not be rounded to 100 %
        texts = (f"{percent:.{digits}g}" for digits in range(3, 18))
        return f"{next(text for text in texts if abs(float(text)) < 100)} %"
    return f"{percent:.0f} %" if abs(percent) >= 10 else f"{percent:.2g} %"


def percent_digits(share: float) -> str:
    """Return a measured fraction in per cent, to one decimal unless it is smaller.

    >>> percent_digits(0.0411), percent_digits(0.0003), percent_digits(1e-6), percent_digits(0)
    ('4.1', '0.03', '<0.01', '0.0')
    """
    percent = 100 * share
    if 0 < percent < 0.01:
        return "<0.01"
    return f"{percent:.2f}" if 0 < percent < 0.1 else f"{percent:.1f}"


def readable_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, in the singular or plural.

    >>> readable_count(1, "throat"), readable_count(1350, "patch", "patches")
    ('1 throat', '1,350 patches')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def readable_duration(seconds: float) -> str:
    """Return an approximate duration.

    >>> readable_duration(42.3), readable_duration(141), readable_duration(4900)
    ('42 s', '2 min 20 s', '1 h 20 min')
    """
    if seconds < 99.5:
        return f"{max(seconds, 1):.0f} s"
    # rounded to 10 s, or to 5 min above one hour
    small, large, unit, step = (1, 60, ("min", "s"), 10) if seconds < 3570 else (
        60, 3600, ("h", "min"), 5,
    )  # fmt: skip
    whole, rest = divmod(step * round(seconds / small / step), large // small)
    return f"{whole} {unit[0]}" + (f" {rest} {unit[1]}" if rest else "")


def readable_bytes(count: float) -> str:
    """Return a number of bytes with a unit, as 14.7 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        # larger counts would round to 1,000
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{readable_number(count)} TB"


def is_thousands(text: str) -> bool:
    """Return whether the comma of a number may separate thousands: 1,500, but not 0,500."""
    return bool(re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", text.strip()))


def listed(text: str) -> list[str]:
    """Return the numbers in a text, separated by commas, or by semicolons with decimal commas.

    >>> listed("5, 0.49"), listed("5; 0,49")
    (['5', '0.49'], ['5', '0.49'])
    """
    if ";" in text:
        return [item.strip().replace(",", ".") for item in text.split(";")]
    return [item.strip() for item in text.split(",")]


#: Largest size of a record, in bytes; one of 8,000 slices has a few megabytes.
LONGEST_RECORD = 2**26

#: Bytes of a table in which its separator and decimal commas are looked for.
_SAMPLE = 2**16

#: Largest length of the first line of a table, in bytes.
LONGEST_LINE = 2**20

# a no-break space, as between a number and its unit, is not printable in the sense of Python
_KEPT = "\n\t\xa0"
# characters that begin a formula in a spreadsheet
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_text(path: Path, longest: int = LONGEST_RECORD) -> str:
    """Return the text of an untrusted file.

    `longest`: largest accepted size, in bytes.
    Raises OSError if it cannot be read, is a pipe or a device, or is larger.
    """
    require_plain(path)
    if path.stat().st_size > longest:
        raise OSError(errno.EFBIG, f"it is larger than {longest:,} bytes", str(path))
    return decoded(path.read_bytes())


def decoded(content: bytes) -> str:
    r"""Return the text of bytes in UTF-8, with or without byte-order mark, UTF-16 or cp1252.

    >>> decoded("\ufeffµm".encode()), decoded("µm".encode("utf-16")), decoded("µm".encode("cp1252"))
    ('µm', 'µm', 'µm')
    """
    encoding = _encoding_of(content)
    return content.decode(encoding, "strict" if encoding == "utf-8-sig" else "replace")


def _encoding_of(content: bytes) -> str:
    """Return the encoding of a text: that of older programs of Windows if it is not Unicode."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def require_plain(path: Path) -> None:
    """Raise OSError if a path is a pipe or device, which may have no end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def read_table(path: Path, **how: Any) -> pd.DataFrame:
    """Return an untrusted CSV table, also one that a spreadsheet of another country saved.

    Columns are separated by commas, semicolons or tabs; with the latter two, numbers may have
    decimal commas. `how`: as for `pandas.read_csv`.
    Raises OSError if it cannot be read or is not a regular file; ValueError if it is not a table,
    or has implausibly many columns.
    """
    import pandas as pd

    require_plain(path)
    with path.open("rb") as file:
        start = file.readline(LONGEST_LINE + 1)
        if len(start) > LONGEST_LINE:
            raise ValueError(f"its first line is longer than {LONGEST_LINE:,} bytes")
        is_wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if b"\0" in start and not is_wide:
            raise ValueError("its first line contains zero bytes instead of text")
        file.seek(0)
        content = decoded(file.read(_SAMPLE)).splitlines()
    separator = max(",;\t", key=content[0].count) if content else ","
    has_commas = separator != "," and re.search(r"\d,\d", "\n".join(content[1:]))
    how = {"sep": separator, "decimal": "," if has_commas else ".", **how}
    try:
        try:
            return pd.read_csv(path, encoding="utf-16" if is_wide else "utf-8-sig", **how)
        except UnicodeDecodeError:
            return pd.read_csv(path, encoding="cp1252", encoding_errors="replace", **how)
    except (OverflowError, MemoryError) as error:
        raise ValueError(str(error)) from error


def harmless(text: str) -> str:
    r"""Return a text with unprintable characters escaped.

    >>> print(harmless("a \x1b[31mred\x1b[0m name"))
    a \x1b[31mred\x1b[0m name
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in _KEPT else each.encode("unicode_escape").decode()
        for each in text
    )


def encodable(text: str) -> str:
    """Return a file name with invalid UTF-8 bytes escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def file_name(text: str) -> str:
    """Return a text as a valid file name on any system, with ``_`` for invalid characters.

    >>> file_name("CT 1/2: foam · pores")
    'CT 1_2_ foam pores'
    """
    return re.sub(r"[^\w. -]", "_", text.replace(" · ", " "))


def on_one_line(text: str, longest: int) -> str:
    """Return a text on one line, without control characters, truncated if it is too long."""
    plain = harmless(" ".join(text.split()))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def in_figure(text: str) -> str:
    r"""Return a text for matplotlib, with dollar signs escaped, which would begin a formula.

    >>> in_figure("1 $ and 2 $")
    '1 \\$ and 2 \\$'
    """
    # matplotlib would warn about unprintable characters in the terminal
    return harmless(text).replace("$", r"\$")


def harmless_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with text that is safe in terminals and spreadsheets.

    Text that would be a formula gets an apostrophe in front; numbers are unchanged.
    """
    changed = {
        name: column.map(_harmless_cell)
        for name, column in table.items()
        if column.dtype.kind not in "biufcmM"
    }
    return table.assign(**{str(name): column for name, column in changed.items()})


def _harmless_cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = harmless(value)
    return f"'{text}" if value.startswith(_FORMULA) and not _is_number(value) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
