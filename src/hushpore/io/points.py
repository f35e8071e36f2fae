"""Reading of point tables, as written by napari or a spreadsheet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.safe_text import read_table

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s

_EXPECTED = (
    "Expected one row per point with the columns z, y and x (or y and x), or axis-0, axis-1, ... "
    "as written by napari, in voxels."
)


def read_points(path: str | Path) -> Float64s:
    """Read points from a CSV file.

    `path`: table with the columns ``z``, ``y``, ``x``, or ``axis-0``, ``axis-1``, ...; other
    columns are ignored.
    Returns: float64, shape (n, 2) or (n, 3): voxel coordinates in z, y, x order.
    Raises InputError if the file cannot be read, lacks these columns, or contains a coordinate that
    is not a number.
    """
    import pandas as pd

    path = Path(path)
    try:
        table = read_table(path, skipinitialspace=True)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise InputError(f"{path.name} is not a table of points: {error}. {_EXPECTED}") from None
    lowered = {str(name).strip().lower(): name for name in table.columns}
    wanted = [name for name in "zyx" if name in lowered]
    if not {"y", "x"} <= set(wanted):
        wanted = sorted(name for name in lowered if re.fullmatch(r"axis-\d", name))
    if len(wanted) < 2:
        present = ", ".join(str(name) for name in table.columns)
        raise InputError(f"{path.name} has the columns {present}. {_EXPECTED}")
    columns = [pd.to_numeric(table[lowered[name]], errors="coerce") for name in wanted]
    points = np.stack([column.to_numpy(np.float64) for column in columns], axis=1)
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise InputError(
            f"{path.name}: a coordinate of point {row + 1} is not a number. {_EXPECTED}"
        )
    return points
