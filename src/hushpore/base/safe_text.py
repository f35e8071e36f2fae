"""Text that comes from files of others: read with care, and made harmless where it leaves.

A name, a unit or a description can hold characters that command a terminal, turn a line around, or
that a spreadsheet takes for a formula. What is named like a record can be a pipe without an end.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

#: Bytes that a record may have; one of 8,000 slices has some megabytes.
LONGEST_RECORD = 2**26

#: Bytes that the first line of a table may have.
LONGEST_LINE = 2**20

_KEPT = "\n\t"
# what a spreadsheet begins a formula with
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def read_text(path: Path, longest: int = LONGEST_RECORD) -> str:
    """Return the text of a file that others may have put there.

    `longest`: bytes that it may have.
    Raises OSError if it cannot be read, is a pipe or a device, or is longer; ValueError if it is no
    UTF-8.
    """
    require_plain(path)
    if path.stat().st_size > longest:
        raise OSError(errno.EFBIG, f"it is larger than the {longest:,} bytes of any", str(path))
    return path.read_text(encoding="utf-8")


def require_plain(path: Path) -> None:
    """Raise OSError where a file is a pipe, a device or the like, which may have no end."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is no plain file", os.fspath(path))


def read_table(path: Path, **how: Any) -> pd.DataFrame:
    """Return a CSV table that others may have made.

    `how`: as for `pandas.read_csv`.
    Raises OSError if it cannot be read or is no plain file; ValueError if it is no table, or has
    more columns than any.
    """
    import pandas as pd

    require_plain(path)
    with path.open("rb") as file:
        start = file.readline(LONGEST_LINE + 1)
    if len(start) > LONGEST_LINE:
        raise ValueError(f"its first line is longer than {LONGEST_LINE:,} bytes")
    if b"\0" in start:
        raise ValueError("there are zeros in its first line; expected text in UTF-8")
    try:
        return pd.read_csv(path, **how)
    except (OverflowError, MemoryError) as error:
        raise ValueError(str(error)) from error


def harmless(text: str) -> str:
    r"""Return a text in which characters that are not to be seen are written as their codes.

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
    """Return a name of a file in which bytes that are no text in UTF-8 are written as codes."""
    return text.encode("utf-8", "backslashreplace").decode()


def file_name(text: str) -> str:
    """Return a text as the name of a file on any system: what may not stand in one is ``_``.

    >>> file_name("CT 1/2: foam")
    'CT 1_2_ foam'
    """
    return re.sub(r"[^\w. -]", "_", text)


def on_one_line(text: str, longest: int) -> str:
    """Return a text without line breaks and other such characters, cut where it is too long."""
    plain = harmless(" ".join(text.split()))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def in_figure(text: str) -> str:
    r"""Return a text as matplotlib draws it literally: a dollar would begin a formula there.

    >>> in_figure("1 $ and 2 $")
    '1 \\$ and 2 \\$'
    """
    # of characters that it has no shape for matplotlib warns in the terminal
    return harmless(text).replace("$", r"\$")


def harmless_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose texts no terminal obeys, and no spreadsheet computes.

    What would be taken for a formula is preceded by an apostrophe; numbers stay as they are.
    """
    changed = {
        name: column.map(_harmless_cell)
        for name, column in table.items()
        if column.dtype.kind not in "biufcmM"
    }
    return table.assign(**{str(name): column for name, column in changed.items()})


def as_csv(table: pd.DataFrame, path: Path | None = None, separator: str = ",") -> str | None:
    """Write a table as text, numbers in full precision; made harmless by `harmless_table`.

    `path`: where to; without one it is returned.
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
