"""Mean chord lengths of void and solid, and degree of anisotropy from mean intercept lengths.

The surface estimate counts the walls along lines of voxels in 13 directions (4 in 2D). They also
give the mean chord length of void and solid in each direction, and the mean intercept length from
one wall to the next. An ellipsoid, the fabric tensor, is fitted to the intercept lengths.

References
----------
W. J. Whitehouse (1974), "The quantitative morphology of anisotropic trabecular bone", Journal of
Microscopy 101, 153-168. https://doi.org/10.1111/j.1365-2818.1974.tb03878.x

T. P. Harrigan and R. W. Mann (1984), "Characterization of microstructural anisotropy in orthotropic
materials using a second rank tensor", Journal of Materials Science 19, 761-767.
https://doi.org/10.1007/BF00540446
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.geometry.surface import DIRECTIONS

if TYPE_CHECKING:
    from hushpore.base.arrays import Float64s, Int64s
    from hushpore.base.volume import Volume


def intercept_totals(walls: Int64s, void: int, sample: int, volume: Volume) -> dict[str, Any]:
    """Return the mean chord lengths along the axes, and the degree of anisotropy.

    `walls`: (13,), int64: void-solid pairs of neighbouring voxels inside the volume, in the order
    of `DIRECTIONS`. `void`, `sample`: number of void and of sample voxels. `volume`: 2D or 3D, for
    its shape and spacing.
    Returns: by the names of `hushpore.pores.tables.totals.TOTALS`; None without walls.
    """
    n_spatial = volume.n_spatial
    in_image = DIRECTIONS[:, 0] == 0
    used = np.flatnonzero(in_image) if n_spatial == 2 else np.arange(len(DIRECTIONS))
    directions = DIRECTIONS[used][:, -n_spatial:]
    # voxels with a neighbour in the direction
    pairs = np.prod(np.maximum(np.array(volume.shape) - np.abs(directions), 0), axis=1)
    steps = directions * np.asarray(volume.spacing)
    step = np.linalg.norm(steps, axis=1)
    length = step * pairs / math.prod(volume.shape)
    found: dict[str, Any] = {}
    for phase, voxels in (("void", void), ("solid", sample - void)):
        for axis, name in enumerate("zyx"[-n_spatial:]):
            at = int(np.flatnonzero(np.abs(directions).sum(axis=1) == 1)[axis])
            count = int(walls[used[at]])
            # a chord has two ends, which are walls except at the faces of the volume
            chord = 2 * voxels * float(length[at]) / count if count and voxels else None
            found[f"{phase}_chord_length_{name}"] = chord
    is_seen = length > 0
    per_length = walls[used][is_seen] / (sample * length[is_seen])
    units = steps[is_seen] / step[is_seen, None]
    found["anisotropy"] = _anisotropy(per_length, units)
    return found


def _anisotropy(per_length: Float64s, units: Float64s) -> float | None:
    """Return 1 - shortest / longest axis of the ellipsoid of mean intercept lengths.

    `per_length`: walls per unit length, by direction. `units`: (directions, axes).
    """
    n_axes = units.shape[1]
    row, column = np.triu_indices(n_axes)
    if not per_length.any() or len(units) < len(row):
        return None
    twice = np.where(row == column, 1.0, 2.0)
    design = units[:, row] * units[:, column] * twice
    # 1 / length**2 = n' M n
    fitted = np.linalg.lstsq(design, per_length**2)[0]
    tensor = np.zeros((n_axes, n_axes))
    tensor[row, column] = tensor[column, row] = fitted
    values = np.linalg.eigvalsh(tensor)
    if values[-1] <= 0:
        return None
    return float(1 - math.sqrt(max(values[0], 0.0) / values[-1]))
