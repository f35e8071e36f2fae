"""Errors for users, which say what to do, and registries that other packages extend."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from types import ModuleType


#: Message for an out-of-memory error without further information.
NO_MEMORY = "There was not enough memory. Close other programs, or crop or bin the scan."


class HushporeError(Exception):
    """Base of all errors explained to the user. Front ends show only the message."""


class InputError(HushporeError, ValueError):
    """Unusable data or an invalid setting."""


class NotTrustedError(InputError):
    """File that would use far more memory or time than its size suggests; needs consent."""


class OutputError(HushporeError, OSError):
    """Result that cannot be written to its target."""


class DeviceError(HushporeError, RuntimeError):
    """Requested device that is missing or does not work."""


class MemoryLimitError(HushporeError, MemoryError):
    """Work that does not fit into memory, even in the smallest pieces."""

    def __new__(cls, *args: object) -> Self:
        """Create the error; `MemoryError.__new__` cannot be called by name, as in unpickling."""
        return HushporeError.__new__(cls, *args)


class MissingPackageError(HushporeError, ImportError):
    """Missing optional package; the message gives the command that installs it."""


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an exception, or its type if there is none."""
    return str(error).partition("\n")[0] or type(error).__name__


def import_optional(package: str, purpose: str, extra: str = "") -> ModuleType:
    """Import an optional package.

    Parameters
    ----------
    package : str
        Name of the package.
    purpose : str
        What needs the package, for the message.
    extra : str, optional
        Extra of hushpore that installs it; empty to name the package itself.

    Raises
    ------
    MissingPackageError
        If the package is not installed; gives the command that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        wanted = f"'hushpore[{extra}]'" if extra else package
        raise MissingPackageError(
            f"{purpose} needs another package: pip install {wanted}"
        ) from error


T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """Registry of named entries: those of hushpore and those added by other installed packages.

    A package declares its entries in its ``pyproject.toml``: the name of an entry point of `group`
    is the key, its object the value. They are imported when the registry is first used, since their
    modules import hushpore themselves. An entry is skipped with a warning in the log if its import
    fails, its name is in use, or its type is wrong; the rest of hushpore works without it.

    Parameters
    ----------
    group : str
        Entry-point group without its prefix: ``"jobs"`` for ``hushpore.jobs``.
    kind : type
        Type of the entries.
    entries : dict
        Entries of hushpore itself.

    Examples
    --------
    >>> registry = Registry("examples", int, {"one": 1})
    >>> dict(registry)
    {'one': 1}
    """

    def __init__(self, group: str, kind: type[T], entries: dict[str, T]) -> None:
        self._group = ".".join(("hushpore", group))
        self._kind, self._entries = kind, entries
        self._is_complete = False

    def __getitem__(self, name: str) -> T:
        return self._all()[name]

    def __setitem__(self, name: str, entry: T) -> None:
        self._all()[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, T]:
        """Return all entries, importing those of other packages at the first call."""
        if not self._is_complete:
            self._is_complete = True  # set first: an imported package may use the registry
            for point in entry_points(group=self._group):
                try:
                    problem = self._add(point.name, point.load())
                except Exception as error:  # a foreign module may raise anything
                    problem = f"its import failed: {error}"
                if problem:
                    package = point.dist.name if point.dist else "a package"
                    logging.getLogger("hushpore").warning(
                        "%s (%s) of %s was left out: %s.", point.name, self._group, package, problem
                    )
        return self._entries

    def _add(self, name: str, entry: object) -> str:
        """Add an entry; returns the reason if it cannot be added, else an empty string."""
        if name in self._entries:
            return "hushpore or another package uses this name already"
        if not isinstance(entry, self._kind):
            return f"it is a {type(entry).__name__} instead of a {self._kind.__name__}"
        self._entries[name] = entry
        return ""
