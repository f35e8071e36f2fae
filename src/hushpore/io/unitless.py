"""Voxel sizes that a file gives without a unit: never used as if they had one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def unitless_notes(steps: Sequence[float], unit: str = "") -> list[str]:
    """Say of a voxel size without a known unit that it is not used.

    Parameters
    ----------
    steps : sequence of float
        The numbers that the file gives, along z, y, x.
    unit : str, optional
        The unit that it gives, if that is not known.

    Returns
    -------
    list of str
        Empty if all numbers are 1, which state nothing.

    Examples
    --------
    >>> unitless_notes((1, 1, 1))
    []
    """
    if all(step == 1 for step in steps) and not unit:
        return []
    numbers = [f"{step:.4g}" for step in steps]
    without = f"in the unknown unit {unit!r}" if unit else "without a unit"
    return [
        f"The file gives a voxel size of {' x '.join(numbers)} {without}, so lengths are in "
        f"voxels. Set the size with its unit: --voxel-size {','.join(numbers)}um, or in napari the "
        "field Voxel size."
    ]
