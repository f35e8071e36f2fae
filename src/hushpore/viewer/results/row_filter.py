"""A filter of table rows in one line: ``volume > 20 and not is_open``.

The line is read as an expression over the columns and nothing else: names of columns, numbers,
arithmetic, comparisons, and, or, not and parentheses. Nothing in it is executed.
"""

from __future__ import annotations

import ast
import difflib
import operator
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    import pandas as pd

#: Characters of the longest line; a longer one could nest deeper than Python reads.
LONGEST = 1000

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
_WORDS = {"&": " and ", "&&": " and ", "|": " or ", "||": " or ", "~": " not "}
_HOW = "Write, for example: equivalent_diameter > 20 and not is_open"


def filter_rows(text: str, table: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Return which rows of a table pass a filter.

    `text`: comparisons of columns and numbers, joined by ``and``, ``or``, ``not`` (or ``& | ~``,
    which bind as loosely as the words) and parentheses. Empty lets every row pass. `table`: columns
    of numbers and of True and False.
    Returns: (rows,), bool. A comparison with a missing number (NaN) is false.
    Raises InputError if the line cannot be read, names no column, or does not come to yes or no.

    Examples
    --------
    >>> import pandas as pd
    >>> pores = pd.DataFrame({"volume": [1.0, 8.0, 27.0], "is_open": [True, True, False]})
    >>> filter_rows("volume > 2 & is_open", pores)
    array([False,  True, False])
    """
    if not text.strip():
        return np.ones(len(table), np.bool_)
    if len(text) > LONGEST:
        raise InputError(f"The filter has {len(text)} characters; up to {LONGEST} are read.")
    words = re.sub(r"&&?|\|\|?|~", lambda found: _WORDS[found.group()], text)
    try:
        tree = ast.parse(words.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        if re.search(r"[^=<>!]=[^=]", text):
            raise InputError("To compare for being equal, write == (two signs).") from None
        raise InputError(f"The filter cannot be read: {text.strip()}. {_HOW}") from None
    with np.errstate(all="ignore"):
        passing = _yes_or_no(tree.body, table)
    return np.broadcast_to(passing, len(table)).copy()


def _value(node: ast.expr, table: pd.DataFrame) -> Any:  # noqa: PLR0911 - one for each kind
    """Return what a part of the expression comes to: a number, or an array over the rows."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            # as an array of floats, so that no power of whole numbers can take for ever
            try:
                return np.asarray(value, np.bool_ if isinstance(value, bool) else np.float64)
            except OverflowError:
                raise InputError(
                    f"A number of {len(str(value))} digits is larger than any that is counted with "
                    "here: write at most 1e308."
                ) from None
        case ast.Name():
            return _column(node.id, table)
        case ast.BoolOp():
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            parts = [_yes_or_no(part, table) for part in node.values]
            return join.reduce([np.broadcast_to(part, len(table)) for part in parts])
        case ast.UnaryOp(op=ast.Not()):
            return ~_yes_or_no(node.operand, table)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            return _OPERATORS[type(node.op)](_number(node.operand, table))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            left, right = _number(node.left, table), _number(node.right, table)
            return _OPERATORS[type(node.op)](left, right)
        case ast.Compare() if all(type(op) in _OPERATORS for op in node.ops):
            values = [_value(part, table) for part in (node.left, *node.comparators)]
            pairs = zip(node.ops, values[:-1], values[1:], strict=True)
            found = [_OPERATORS[type(op)](left, right) for op, left, right in pairs]
            return np.logical_and.reduce([np.broadcast_to(each, len(table)) for each in found])
    raise InputError(f"'{ast.unparse(node)}' is not part of a filter. {_HOW}")


def _column(name: str, table: pd.DataFrame) -> npt.NDArray[Any]:
    if name not in table.columns:
        near = near_names(name, [str(column) for column in table.columns])
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(table)}."
        raise InputError(f"There is no column {name}: {hint}")
    values = table[name].to_numpy()
    if values.dtype.kind not in "buif":
        raise InputError(f"The column {name} holds words, not numbers.")
    return np.asarray(values, np.bool_ if values.dtype.kind == "b" else np.float64)


def near_names(name: str, names: Sequence[str], most: int = 3) -> list[str]:
    """Return the names that someone may have meant, the likeliest first.

    Those that are spelt nearly so, and those of which it is a part.

    Examples
    --------
    >>> near_names("diameter", ["volume", "equivalent_diameter", "inscribed_diameter"])
    ['inscribed_diameter', 'equivalent_diameter']
    """
    word = name.lower()
    spelt = difflib.get_close_matches(word, names, most)
    parts = [each for each in names if len(word) > 2 and (word in each or each in word)]
    return list(dict.fromkeys([*spelt, *parts]))[:most]


def _number(node: ast.expr, table: pd.DataFrame) -> Any:
    return np.asarray(_value(node, table), np.float64)


def _yes_or_no(node: ast.expr, table: pd.DataFrame) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.asarray(_value(node, table))
    if found.dtype != np.bool_:
        text = ast.unparse(node)
        raise InputError(f"'{text}' is a number; compare it with one, for example {text} > 10.")
    return found
