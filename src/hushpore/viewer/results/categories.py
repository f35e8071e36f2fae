"""Columns that sort pores into a few kinds, and the colours of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from hushpore.pores.measures import measure_of

if TYPE_CHECKING:
    import numpy.typing as npt

#: Colours that the colour-blind tell apart (Okabe and Ito, 2008, https://jfly.uni-koeln.de/color).
PALETTE = (
    "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999",
)  # fmt: skip

#: Colour of what is of no kind, for its entry is missing.
MISSING = "#60606080"


class Category(NamedTuple):
    """A kind of pores."""

    word: str  # what it is called
    colour: str  # as ``#rrggbb``
    rows: npt.NDArray[np.bool_]  # (pores,), bool: which are of this kind


def is_categorical(column: pd.Series) -> bool:
    """Whether a column holds yes and no, or words of which there are no more than colours."""
    if column.dtype.kind in "uif":
        return False
    return bool(column.dtype.kind == "b" or column.nunique() <= len(PALETTE))


def categories_of(column: pd.Series) -> list[Category]:
    """Return the kinds that occur in a column, in order; of each at least one pore.

    Examples
    --------
    >>> kinds = categories_of(pd.Series([True, False, True], name="is_open"))
    >>> [(kind.word, int(kind.rows.sum())) for kind in kinds]
    [('closed', 1), ('open', 2)]
    """
    codes, values = pd.factorize(column, sort=True)
    # of yes and no each has its colour, also where the other does not occur
    places = values.astype(int) if column.dtype.kind == "b" else np.arange(len(values))
    kinds = [
        Category(_word(str(column.name), value), PALETTE[place], codes == code)
        for code, (value, place) in enumerate(zip(values, places, strict=True))
    ]
    if (codes < 0).any():
        kinds.append(Category("not known", MISSING, codes < 0))
    return kinds


def _word(column: str, value: Any) -> str:
    """Return what yes or no means in a column, or the value."""
    if isinstance(value, bool | np.bool_):
        return measure_of(column).words[int(value)]
    return str(value)
