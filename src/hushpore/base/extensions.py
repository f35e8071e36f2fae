"""Readers, exporters and jobs of other installed packages, found by their entry points."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """Entries by name: those of hushpore, and those that other installed packages add.

    A package names its entries in its ``pyproject.toml``: the name of an entry point of `group` is
    the key, its object the value. They are imported when the registry is first used, since their
    modules import hushpore themselves. An entry that fails to import, takes a name in use, or is of
    another type is left out with a warning in the log: the rest of hushpore works without it.

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
        """Return all entries, with those of other packages imported."""
        if not self._is_complete:
            self._is_complete = True  # first, since a package may look at the registry
            for point in entry_points(group=self._group):
                try:
                    problem = self._add(point.name, point.load())
                except Exception as error:  # whatever a foreign module raises
                    problem = f"its import failed: {error}"
                if problem:
                    package = point.dist.name if point.dist else "a package"
                    logging.getLogger("hushpore").warning(
                        "%s (%s) of %s was left out: %s.", point.name, self._group, package, problem
                    )
        return self._entries

    def _add(self, name: str, entry: object) -> str:
        """Add an entry; return why it cannot be added, or an empty string."""
        if name in self._entries:
            return "hushpore or another package uses this name already"
        if not isinstance(entry, self._kind):
            return f"it is a {type(entry).__name__} instead of a {self._kind.__name__}"
        self._entries[name] = entry
        return ""
