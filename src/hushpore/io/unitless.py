"""Voxel sizes with one unit for all axes, and notes on sizes without, which are not lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hushpore.base.formatting import METRES, unit_of

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


def in_one_unit(
    steps: Sequence[float], units: Sequence[str]
) -> tuple[tuple[float, ...], str] | None:
    """Return a voxel size in the unit of its last axis, and this unit.

    Parameters
    ----------
    steps : sequence of float
        Voxel size along z, y, x.
    units : sequence of str
        Unit of each axis, as written in a file.

    Returns
    -------
    tuple or None
        None if the unit of an axis is unknown or is pixels.

    Examples
    --------
    >>> in_one_unit((0.002, 1, 1), ("mm", "um", "micron")), in_one_unit((1, 1), ("", "um"))
    (((2.0, 1.0, 1.0), 'um'), None)
    """
    found = [unit_of(unit) for unit in units]
    known = [each for each in found if each is not None and each[0] != "pixel"]
    if len(known) < len(units):
        return None
    last = known[-1][0]
    return tuple(
        float(f"{step * factor * METRES[name] / METRES[last]:.12g}")
        if name != last
        else step * factor
        for step, (name, factor) in zip(steps, known, strict=True)
    ), last
