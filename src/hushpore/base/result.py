"""What a job returns: the few things that everyone who asks for a job may count on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.base.volume import Volume


@dataclass(frozen=True)
class Offer:
    """A way on from what a result says: other settings, with which the job may be run again."""

    sentence: str  # what it is about, as the summary says it, or a sentence more
    link: str  # what is offered, in a few words
    changes: Mapping[str, Any]  # settings, by their names


@dataclass(frozen=True, eq=False)
class ResultFiles:
    """What a result is on disk, whoever writes it."""

    images: Mapping[str, Volume]  # ``<name>.tif``; of these the fingerprints are kept
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # ``<name>.csv``
    figures: Mapping[str, bytes] = field(default_factory=dict)  # ``<name>.png``
    # sets of arrays by their names, compressed: ``<name>.npz``
    arrays: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # further entries of ``result.json``
    provenance: Mapping[str, Any] = field(default_factory=dict)


class Result(Protocol):
    """What every job returns; most results hold more.

    A job whose entry in `hushpore.jobs.JOBS` says that it `gives` an image has that image as
    ``volume``, too: the next job of a chain works on it.
    """

    @property
    def summary(self) -> str:
        """The result in one sentence."""

    @property
    def timings(self) -> Mapping[str, float]:
        """Seconds by stage."""

    @property
    def provenance(self) -> dict[str, Any]:
        """What was done, to what and with what: see `hushpore.base.provenance.make_provenance`."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said while it ran."""

    def files(self) -> ResultFiles:
        """Return what is written of it."""
