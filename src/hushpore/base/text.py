"""Text that comes from files of others, made harmless where it leaves the program.

A name, a unit or a description can hold characters that command a terminal, turn a line around, or
that a spreadsheet takes for a formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

_KEPT = "\n\t"
# what a spreadsheet begins a formula with
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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


def on_one_line(text: str, longest: int) -> str:
    """Return a text without line breaks and other such characters, cut where it is too long."""
    plain = harmless(" ".join(text.split()))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"


def in_figure(text: str) -> str:
    r"""Return a text as matplotlib draws it literally: a dollar would begin a formula there.

    >>> in_figure("1 $ and 2 $")
    '1 \\$ and 2 \\$'
    """
    return text.replace("$", r"\$")


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
