"""Safe handling of text from files of other people.

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

    >>> file_name("CT 1/2: foam")
    'CT 1_2_ foam'
    """
    return re.sub(r"[^\w. -]", "_", text)


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


def as_csv(table: pd.DataFrame, path: Path | None = None, separator: str = ",") -> str | None:
    """Write a table as CSV with full precision, made safe by `harmless_table`.

    `path`: file to write; without it the text is returned.
    """
    found: str | None = harmless_table(table).to_csv(
        path, sep=separator, index=False, lineterminator="\n", encoding="utf-8"
    )
    return found


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
