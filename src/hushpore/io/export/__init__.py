"""Export of pore results to other programs: one function per file format.

Each function takes a temporary path, which is renamed when the file is complete, and a
`PoreResult`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from hushpore.base.volume import Volume


@dataclass(frozen=True, eq=False)
class PoreResult:
    """Result of a segmentation."""

    name: str  # a short name for tables and plots
    labels: Volume  # labels; lazy if read from a folder
    # tables, see `hushpore.pores.tables.measures`
    pores: pd.DataFrame
    throats: pd.DataFrame
    provenance: dict[str, Any]  # record of the segmentation
    form: pd.DataFrame | None = None  # report form, if there is one
    # returns the sheets of its workbook, by name
    sheets: Callable[[PoreResult], Mapping[str, pd.DataFrame]] | None = None

    @property
    def unit(self) -> str:
        """Unit of lengths."""
        return self.labels.unit

    @property
    def n_spatial(self) -> int:
        """Number of spatial axes, 2 or 3."""
        return self.labels.n_spatial
