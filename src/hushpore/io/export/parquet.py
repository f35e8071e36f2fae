"""The tables of a pore result as Parquet, by pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.io.export import PoreTables


def write_pores(path: Path, result: PoreTables) -> None:
    """Write the table of the pores."""
    result.pores.to_parquet(path, index=False)


def write_throats(path: Path, result: PoreTables) -> None:
    """Write the table of the throats."""
    result.throats.to_parquet(path, index=False)
