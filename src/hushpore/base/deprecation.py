"""Names of before, which work for one version more and say what they are called now."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def renamed_keywords(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function take keywords by the names that they had.

    Parameters
    ----------
    **names : str
        The name of now, by that of before.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> T:
            for old in names.keys() & given.keys():
                warnings.warn(
                    f"{function.__name__}: {old!r} is called {names[old]!r} now, and will not be "
                    "understood in the next version.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                given[names[old]] = given.pop(old)
            return function(*args, **given)

        return call

    return decorate
