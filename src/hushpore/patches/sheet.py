"""A contact sheet: patches side by side, and under each what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

#: Pixels between tiles, and between the bands of a sheet.
GAP, BAND_GAP = 2, 8


@dataclass(frozen=True, eq=False)
class Sheet:
    """A picture of many patches.

    Each patch has a tile in every row of its band; bands follow one another down the sheet.
    """

    # float32, shape (y, x); the lowest value of the tiles where there is none
    image: npt.NDArray[np.float32]
    rows: tuple[str, ...]  # what the rows of a band show, from the top
    # int64: which patch each column is, from left to right, band by band
    patches: npt.NDArray[np.int64]
    tile: tuple[int, int]  # (y, x) of a tile
    columns: int  # patches in a band

    def box_of(self, patch: int) -> tuple[int, int, int, int] | None:
        """Return first and last pixel, (y, x, y, x), of all tiles of a patch, or None."""
        places = np.flatnonzero(self.patches == patch)
        if not len(places):
            return None
        y, x = _corner(int(places[0]), self.columns, self.tile, len(self.rows))
        return y, x, y + _depth(self.tile, len(self.rows)) - 1, x + self.tile[1] - 1

    def at(self, y: float, x: float) -> tuple[int, str] | None:
        """Return the patch and the row at a pixel, or None between the tiles."""
        height, width = self.tile
        depth = _depth(self.tile, len(self.rows))
        band, down = divmod(round(y), depth + BAND_GAP)
        column, across = divmod(round(x), width + GAP)
        row, inside = divmod(down, height + GAP)
        place = band * self.columns + column
        outside = not 0 <= column < self.columns or not 0 <= place < len(self.patches)
        if outside or row >= len(self.rows) or inside >= height or across >= width or band < 0:
            return None
        return int(self.patches[place]), self.rows[row]


def contact_sheet(
    rows: Mapping[str, npt.NDArray[Any]],
    patches: npt.NDArray[np.integer[Any]] | None = None,
    columns: int | None = None,
) -> Sheet:
    """Lay patches out side by side.

    `rows`: what to show of each patch, from the top: shape (n_patches, y, x), one shape for all.
    `patches`: the number of each patch, kept in the sheet; by default 0, 1, 2, ... `columns`:
    patches side by side; by default as many as make the sheet about square.
    """
    first = next(iter(rows.values()))
    count, *tile = first.shape
    numbers = np.arange(count) if patches is None else np.asarray(patches, np.int64)
    height, width = tile
    depth = _depth((height, width), len(rows))
    if columns is None:
        columns = max(1, round(np.sqrt(count * (depth + BAND_GAP) / (width + GAP))))
        # as many bands, evenly filled
        columns = -(-count // max(1, -(-count // columns)))
    columns = int(np.clip(columns, 1, max(count, 1)))
    bands = -(-count // columns)
    shape = (
        max(bands * (depth + BAND_GAP) - BAND_GAP, 1),
        max(columns * (width + GAP) - GAP, 1),
    )
    lowest = min((float(row.min()) for row in rows.values() if row.size), default=0.0)
    image = np.full(shape, lowest, np.float32)
    for place in range(count):
        y, x = _corner(place, columns, (height, width), len(rows))
        for number, row in enumerate(rows.values()):
            top = y + number * (height + GAP)
            image[top : top + height, x : x + width] = row[place]
    return Sheet(image, tuple(rows), numbers, (height, width), columns)


def _depth(tile: tuple[int, int], n_rows: int) -> int:
    return n_rows * (tile[0] + GAP) - GAP


def _corner(place: int, columns: int, tile: tuple[int, int], n_rows: int) -> tuple[int, int]:
    band, column = divmod(place, columns)
    return band * (_depth(tile, n_rows) + BAND_GAP), column * (tile[1] + GAP)
