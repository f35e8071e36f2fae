"""Connectivity of the solid, from the Euler number of the void and the outer faces of the volume.

For a box B that is void V and solid S, chi(S) = 1 + chi(V) - chi(V on the surface of B) if void is
connected over the 26 neighbours of a voxel: the surface between both counts half in each, apart
from the rims where faces cut it. So the six faces are all that has to be looked at once the Euler
number of the void is known. What the volume adds to the Euler number of the larger structure that
it was cut from is then chi(S) less half of that of its faces, plus a quarter of that of its edges,
less an eighth of that of its corners (Odgaard and Gundersen).

References
----------
A. Odgaard and H. J. G. Gundersen (1993), "Quantification of connectivity in cancellous bone, with
special emphasis on 3-D reconstructions", Bone 14, 173-182.
https://doi.org/10.1016/8756-3282(93)90245-6
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hushpore.base.arrays import Array, Mask


class SolidEuler(NamedTuple):
    """Euler numbers of the solid."""

    whole: int  # of the solid in the volume
    added: float  # what the volume adds to that of the structure that it was cut from

    @property
    def connectivity(self) -> float:
        """Loops that the volume adds: 1 less its Euler number, as in Conn.D of bone."""
        return 1 - self.added


def solid_euler(void: Array, euler_number: int, *, faces_only: bool) -> SolidEuler:
    """Return the Euler numbers of the solid of a volume without air around the sample.

    Parameters
    ----------
    void : numpy.ndarray
        (z, y, x), not 0 where void is; its outer faces are read.
    euler_number : int
        Of the void, as `hushpore.pores.topology.euler.find_euler_number` counts it.
    faces_only : bool
        Whether void is connected over the 6 faces of a voxel; solid is then over its 26 neighbours,
        else over 6.

    Returns
    -------
    SolidEuler
        Of the solid.

    Examples
    --------
    A bar through the volume has no loop:

    >>> void = np.ones((5, 5, 5), bool)
    >>> void[:, 2, 2] = False
    >>> solid_euler(void, 0, faces_only=False).whole
    1
    """
    planes = [np.asarray(void.take(end, axis)) != 0 for axis in range(3) for end in (0, -1)]
    rows = [plane.take(end, axis) for plane in planes for axis in range(2) for end in (0, -1)]
    corners = [void[place] != 0 for place in product((0, -1), repeat=3)]
    # each edge of the volume is an edge of two faces
    void_on_surface = (
        sum(_of_plane(plane ^ faces_only, closed=True) for plane in planes)
        - sum(_of_row(row ^ faces_only) for row in rows) // 2
        + sum(bool(corner) ^ faces_only for corner in corners)
    )
    sign = -1 if faces_only else 1
    whole = euler_number + sign * (1 - void_on_surface)
    added = (
        whole
        - sum(_of_plane(~plane, closed=faces_only) for plane in planes) / 2
        + sum(_of_row(~row) for row in rows) / 8
        - sum(not corner for corner in corners) / 8
    )
    return SolidEuler(whole, added)


def _of_plane(mask: Mask, *, closed: bool) -> int:
    """Return the Euler number of a plane; closed: connected over 8 neighbours, else over 4."""
    if closed:
        wide = np.pad(mask, 1)
        upright, across = wide[1:] | wide[:-1], wide[:, 1:] | wide[:, :-1]
        corners = upright[:, 1:] | upright[:, :-1]
    else:
        upright, across = mask[1:] & mask[:-1], mask[:, 1:] & mask[:, :-1]
        corners = upright[:, 1:] & upright[:, :-1]
    # of closed voxels corners are points; of open ones voxels are, and corners are squares
    return int(mask.sum()) - int(upright.sum()) - int(across.sum()) + int(corners.sum())


def _of_row(mask: Mask) -> int:
    """Return how many runs of voxels a row has."""
    return int(np.count_nonzero(np.diff(mask.astype(np.int8), prepend=0) == 1))
