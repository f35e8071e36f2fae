"""Porosity from grey values, which includes pores smaller than a voxel.

A voxel of grey value g holds a share of void (s - g) / (s - v), if v is the grey value of void and
s that of the solid. Its mean over the sample needs no threshold. Shares are not cut off at 0 and
1, because noise would then no longer cancel out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_grey
from hushpore.pores.void.components import AIR, SOLID
from hushpore.pores.void.threshold import GreyValues
from hushpore.pores.work import beyond_mask

if TYPE_CHECKING:
    from collections.abc import Generator

    from hushpore.base.arrays import Array, Mask
    from hushpore.pores.slabs import Stack
    from hushpore.pores.work import Work

#: Voxels that are worked on at a time.
_AT_A_TIME = 1 << 22

#: About as many values of each phase give its grey value.
_VALUES = 1 << 20


def find_subvoxel(work: Work, phase: Stack) -> Generator[float, None, dict[str, Any]]:
    """Find the porosity of the sample from its grey values.

    Parameters
    ----------
    work : Work
        The job. Grey values that its settings do not give are found: the median of the voxels whose
        six neighbours are of the same phase.
    phase : Stack
        (z, y, x), uint8: states of voxels, see `hushpore.pores.void.components`.

    Yields
    ------
    float
        Share that is done.

    Returns
    -------
    dict of str to float
        ``subvoxel_porosity``, ``void_grey`` and ``solid_grey``; empty if a grey value is neither
        given nor found, because a phase is nowhere thicker than two voxels. Voxels of the sample
        that touch its exterior are left out, since they hold air.

    Raises
    ------
    InputError
        If both grey values are equal.
    """
    values, depth = GreyValues(work.volume, work.slabs), work.shape[0]
    step = max(1, _AT_A_TIME // math.prod(work.shape[1:]))
    every = max(1, math.prod(work.shape) // _VALUES)
    found: dict[bool, list[Array]] = {True: [], False: []}
    total, count = 0.0, 0
    for first in range(0, depth, step):
        last = min(first + step, depth)
        low, high = max(first - 1, 0), min(last + 1, depth)
        state = phase.read(low, high)
        outside = state >= AIR
        if work.settings.sample_mask:
            outside |= beyond_mask(work, low, high)
        own = slice(first - low, last - low)
        is_void = (state != SOLID) & ~outside
        sample = ~_beside(outside)[own]
        grey = values.read(first, last)
        # slice by slice, so that the sum does not depend on the step
        for plane, kept in zip(grey, sample, strict=True):
            total += float(plane[kept].sum(dtype=np.float64))
        count += int(np.count_nonzero(sample))
        for phase_is_void, given in ((True, work.settings.void_grey),
                                     (False, work.settings.solid_grey)):  # fmt: skip
            if given is None:
                core = ~_beside(is_void != phase_is_void)[own] & sample
                found[phase_is_void].append(grey[core][::every])
        yield last / depth
    void = _grey_of(work.settings.void_grey, found[True])
    solid = _grey_of(work.settings.solid_grey, found[False])
    if void is None or solid is None or not count:
        return {}
    if void == solid:
        raise InputError(
            f"The grey values of void and solid must differ; both are {readable_grey(void)}. "
            "Set void_grey and solid_grey to the values of air and of solid without pores."
        )
    porosity = (solid - total / count) / (solid - void)
    return {"subvoxel_porosity": porosity, "void_grey": void, "solid_grey": solid}


def _beside(marked: Mask) -> Mask:
    """Return which voxels are marked or share a face with one that is (z, y, x)."""
    wide = marked.copy()
    for axis in range(3):
        low, high = np.moveaxis(wide, axis, 0), np.moveaxis(marked, axis, 0)
        low[1:] |= high[:-1]
        low[:-1] |= high[1:]
    return wide


def _grey_of(given: float | None, values: list[Array]) -> float | None:
    """Return the grey value of a phase; None if it is neither given nor found."""
    if given is not None:
        return float(given)
    own = np.concatenate(values)
    return float(np.median(own)) if own.size else None
