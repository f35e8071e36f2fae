"""Pore results in the formats of other programs: a function for each kind of file.

Each is given where to write, which takes its place only when it is complete, and a `PoreResult`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.base.volume import Volume


@dataclass(frozen=True, eq=False)
class PoreResult:
    """What is known of a segmentation."""

    name: str  # a short name for tables and plots
    labels: Volume  # the labels; from a folder they stay on disk until they are asked for
    # the tables, see `hushpore.pores.tables.measures`
    pores: pd.DataFrame
    throats: pd.DataFrame
    provenance: dict[str, Any]  # the record of the segmentation

    @property
    def unit(self) -> str:
        """Of lengths."""
        return self.labels.unit

    @property
    def n_spatial(self) -> int:
        """2 or 3."""
        return self.labels.n_spatial
