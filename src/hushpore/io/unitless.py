"""Notes on voxel sizes without a unit, which are never used as lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def unitless_notes(steps: Sequence[float], unit: str = "") -> list[str]:
    """Return a note that a voxel size without a known unit is not used.

    Parameters
    ----------
    steps : sequence of float
        Voxel size in the file, along z, y, x.
    unit : str, optional
        Unit in the file, if it is not a known one.

    Returns
    -------
    list of str
        Empty if all numbers are 1, the usual placeholder.

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
