"""Pore results in the formats of other programs: a function for each kind of file.

Each is given where to write, which takes its place only when it is complete, and a `PoreTables`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.base.volume import Volume


class PoreTables(Protocol):
    """What is written of a segmentation: its labels, and a row for each pore and each throat."""

    @property
    def labels(self) -> Volume: ...  # noqa: D102

    @property
    def pores(self) -> pd.DataFrame: ...  # noqa: D102

    @property
    def throats(self) -> pd.DataFrame: ...  # noqa: D102
