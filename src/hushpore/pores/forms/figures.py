"""Figures that the tables of the forms name, each of a finished segmentation."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.formatting import METRES
from hushpore.pores.flow import (
    capillary_pressure,
    formation_factor,
    permeability,
    threshold_diameter,
)
from hushpore.pores.forms.findings import Findings, Interval, NotMeasuredError, value_of
from hushpore.pores.topology import solid_euler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.arrays import Float64s

#: A ball's diameter over the mean chord of its mean section, (pi / 4)**-2, as ASTM D3576 has it.
CHORD_TO_DIAMETER = 16 / np.pi**2

#: Square metres in a darcy.
DARCY = 9.869233e-13

_NOT_THROUGH = "No void is connected from face to face along this axis."


def sample(findings: Findings) -> float:
    """Return the volume of the sample."""
    return findings.sample


def solid_share(findings: Findings) -> float | Interval:
    """Return solid over sample volume."""
    return findings.solid_share


def void_share(findings: Findings) -> float | Interval:
    """Return all void over sample volume."""
    return findings.void_share


def total(findings: Findings, name: str) -> float:
    """Return a total of the record."""
    return findings.total(name)


def total_with_interval(findings: Findings, name: str) -> float | Interval:
    """Return a total of the record, with its interval if there is one."""
    return findings.with_interval(name)


def total_of_all_void(findings: Findings, name: str) -> float:
    """Return a total that has to be of all the void."""
    findings.require_all_void()
    return findings.total(name)


def thickness(findings: Findings, name: str) -> float:
    """Return a total of local thickness."""
    return findings.thickness(name)


def pore_density(findings: Findings) -> float | Interval:
    """Return the number of pores over sample volume."""
    findings.require_3d()
    count = findings.with_interval("count")
    if isinstance(count, Interval):
        return count.mapped(lambda number: number / findings.sample)
    return count / findings.sample


def mean_of_pores(findings: Findings, column: str) -> float:
    """Return the mean of a column of pores."""
    return float(findings.column(column).mean())


# bone


def solid_volume(findings: Findings) -> float:
    """Return the volume of the solid."""
    return findings.sample * value_of(findings.solid_share)


def surface(findings: Findings) -> float:
    """Return the surface between void and solid."""
    return findings.sample * total_of_all_void(findings, "specific_surface")


def connectivity_density(findings: Findings) -> float:
    """Return the connectivity of the solid over sample volume."""
    findings.require_3d()
    findings.require_all_void()
    if findings.totals.get("exterior_share"):
        raise NotMeasuredError(
            "Counted in a volume that is all sample; here its surroundings were excluded. Crop the "
            "scan to the region of interest."
        )
    if findings.void is None:
        raise NotMeasuredError("Not counted on a cluster. Segment the scan on one machine.")
    euler_number = int(findings.total("euler_number"))
    faces_only = findings.settings.connectivity == "faces"
    compute = partial(solid_euler, findings.void, euler_number, faces_only=faces_only)
    return findings.once("solid_euler", compute).connectivity / findings.sample


def trabecular_number(findings: Findings) -> float:
    """Return 1 over the sum of the mean thicknesses of solid and void."""
    return 1 / (findings.thickness("solid_thickness") + findings.thickness("void_thickness"))


def degree_of_anisotropy(findings: Findings) -> float:
    """Return the longest over the shortest mean intercept length."""
    return 1 / (1 - total_of_all_void(findings, "anisotropy"))


def plate_thickness(findings: Findings) -> float:
    """Return the thickness of plates with the specific surface of the solid."""
    return 2 / total_of_all_void(findings, "solid_specific_surface")


def plate_number(findings: Findings) -> float:
    """Return the number of plates per length with the surface of the sample."""
    return total_of_all_void(findings, "specific_surface") / 2


def plate_rod_index(findings: Findings) -> float:
    """Return the mean thickness of the solid times its specific surface."""
    solid = findings.thickness("solid_thickness")
    return solid * total_of_all_void(findings, "solid_specific_surface")


# foam and bread


def chord(findings: Findings, axis: str) -> float:
    """Return the mean distance from one cell wall to the next along an axis."""
    findings.require_all_void()
    if axis == "z":
        findings.require_3d()
    reason = "No wall is crossed along this axis."
    return sum(
        findings.total(f"{phase}_chord_length_{axis}", reason) for phase in ("void", "solid")
    )


def cell_size(findings: Findings, axis: str) -> float:
    """Return the cell size along an axis, which ASTM D3576 derives from the mean chord."""
    return CHORD_TO_DIAMETER * chord(findings, axis)


def _cell_sizes(findings: Findings) -> Sequence[float]:
    return [cell_size(findings, axis) for axis in "zyx"[-findings.volume.n_spatial :]]


def mean_cell_size(findings: Findings) -> float:
    """Return the mean of the cell sizes along the axes."""
    return float(np.mean(_cell_sizes(findings)))


def shape_anisotropy(findings: Findings) -> float:
    """Return the largest over the smallest cell size along the axes."""
    sizes = _cell_sizes(findings)
    return max(sizes) / min(sizes)


def open_share(findings: Findings) -> float:
    """Return open over all void."""
    void = findings.totals["open_porosity"] + findings.totals["closed_porosity"]
    if not void:
        raise NotMeasuredError("There are no cells.")
    return float(findings.totals["open_porosity"] / void)


def mean_diameter_by_volume(findings: Findings) -> float:
    """Return the mean equivalent diameter, weighted by volume."""
    diameter, volume = findings.column("equivalent_diameter"), findings.column("volume")
    return float((diameter * volume).sum() / volume.sum())


def variation_of_diameter(findings: Findings) -> float:
    """Return the coefficient of variation of the equivalent diameter."""
    diameter = findings.column("equivalent_diameter")
    return float(diameter.std() / diameter.mean())


def elongation(findings: Findings) -> float:
    """Return the median of major over intermediate axis length."""
    return float(np.median(1 / findings.column("elongation_ratio")))


def share_of_largest_tenth(findings: Findings) -> float:
    """Return the share of the volume of all pores that is in the largest tenth of them."""
    volume = np.sort(findings.column("volume"))
    return float(volume[-max(1, round(volume.size / 10)) :].sum() / volume.sum())


def closed_cells(findings: Findings) -> float:
    """Return the share of the pores, by number, that are not open."""
    is_open = np.asarray(findings.pores["is_open"], bool)
    if not is_open.size:
        raise NotMeasuredError("There are no cells.")
    return float(1 - is_open.mean())


# casting


def _largest_pore(findings: Findings) -> int:
    """Return the row of the pore of the largest volume."""
    volume = np.asarray(findings.pores["volume"])
    if not volume.size:
        raise NotMeasuredError("There are no pores.")
    return int(volume.argmax())


def of_largest_pore(findings: Findings, column: str) -> float:
    """Return a column of the pore of the largest volume."""
    value = float(findings.pores[column][_largest_pore(findings)])
    if np.isnan(value):
        raise NotMeasuredError("The largest pore has too few voxels for its shape.")
    return value


def size_of_largest_pore(findings: Findings, column: str) -> float | Interval:
    """Return the diameter or volume of the largest pore, with its interval."""
    power = findings.volume.n_spatial if column == "volume" else 1
    return findings.of_largest_size(of_largest_pore(findings, column), power)


def extent_of_largest_pore(findings: Findings) -> float:
    """Return the diagonal of the bounding box of the largest pore."""
    row, spacing = _largest_pore(findings), findings.volume.spacing
    squares = [
        (np.float64(findings.pores[f"bbox_{axis}_stop"][row]
                    - findings.pores[f"bbox_{axis}_start"][row]) * step) ** 2
        for axis, step in zip("zyx"[-len(spacing) :], spacing, strict=True)
    ]  # fmt: skip
    return float(np.sqrt(sum(squares)))


def depth_of_largest_pore(findings: Findings) -> float | Interval:
    """Return the depth of the largest pore below the surface of the sample."""
    depths = findings.depths()
    return findings.of_surfaces(float(depths[_largest_pore(findings)]))


def smallest_depth(findings: Findings) -> float | Interval:
    """Return the smallest depth of a pore below the surface of the sample."""
    return findings.of_surfaces(float(findings.depths().min()))


def smallest_distance(findings: Findings) -> float:
    """Return the smallest distance between the centres of two pores."""
    return float(findings.column("nearest_distance").min())


def count_from(findings: Findings, millimetres: str) -> float:
    """Return the number of pores of at least this equivalent diameter."""
    factor = {"mm": 1.0, "um": 1e-3, "cm": 10.0, "nm": 1e-6, "m": 1e3}.get(findings.volume.unit)
    if factor is None:
        raise NotMeasuredError("The voxel size is not known. Set it (Voxel size, --voxel-size).")
    diameter = np.asarray(findings.pores["equivalent_diameter"]) * factor
    return float(np.count_nonzero(diameter >= float(millimetres)))


# rock and electrode


def median_pore_radius(findings: Findings) -> float:
    """Return the median inscribed radius of pores."""
    return float(np.median(findings.column("inscribed_diameter"))) / 2


def _throat_radii(findings: Findings) -> Float64s:
    radii: Float64s = np.asarray(findings.throats["inscribed_diameter"], np.float64) / 2
    radii = radii[np.isfinite(radii)]
    if not radii.size:
        raise NotMeasuredError("There are no throats.")
    return radii


def median_throat_radius(findings: Findings) -> float:
    """Return the median inscribed radius of throats."""
    return float(np.median(_throat_radii(findings)))


def pore_throat_ratio(findings: Findings) -> float:
    """Return the mean ratio of the radii of pores and of the throats that join them."""
    _throat_radii(findings)
    pore = np.asarray(findings.pores["inscribed_diameter"], np.float64)
    ends = np.stack([findings.throats["pore_1"], findings.throats["pore_2"]], axis=-1)
    ends = np.searchsorted(findings.pores["label"], ends)  # labels of corrected pores have gaps
    ratio = pore[ends].mean(axis=1) / findings.throats["inscribed_diameter"]
    ratio = ratio[np.isfinite(ratio)]
    if not ratio.size:
        raise NotMeasuredError("No pore has enough voxels for its shape.")
    return float(ratio.mean())


def breakthrough(findings: Findings, axis: str) -> float | Interval:
    """Return the diameter of the largest ball that passes along an axis."""
    name, network = f"breakthrough_diameter_{axis}", findings.network
    diameter = findings.once(name, lambda: network.breakthrough("zyx".index(axis)).diameter)
    if not diameter:
        raise NotMeasuredError(_NOT_THROUGH)
    return findings.with_ends(name, diameter)


def _flow(findings: Findings, function: Callable[..., float], axis: str) -> float | Interval:
    """Return permeability or formation factor along an axis, with its interval."""
    name = f"{function.__name__}_{axis}"
    value = findings.once(name, partial(function, findings.network, "zyx".index(axis)))
    if not value or not np.isfinite(value):
        raise NotMeasuredError(_NOT_THROUGH)
    return findings.with_ends(name, value)


def network_factor(findings: Findings, axis: str) -> float | Interval:
    """Return the formation factor of the network along an axis."""
    return _flow(findings, formation_factor, axis)


def _metres(findings: Findings) -> float:
    if findings.volume.unit not in METRES:
        raise NotMeasuredError("The voxel size is not known. Set it (Voxel size, --voxel-size).")
    return METRES[findings.volume.unit]


def network_permeability(findings: Findings, axis: str) -> float | Interval:
    """Return the permeability of the network along an axis."""
    return _flow(findings, permeability, axis)


def over_voxels(findings: Findings, figure: str, total: str, axis: str) -> float:
    """Return a figure of the network along an axis over a total that was solved in the voxels."""
    of_voxels = findings.total(total)
    return value_of(_NETWORK[figure](findings, axis)) / of_voxels


def millidarcy(findings: Findings, name: str) -> float:
    """Return a total of permeability."""
    return findings.total(name) * 1e3 * _metres(findings) ** 2 / DARCY


def permeability_in_millidarcy(findings: Findings, axis: str) -> float | Interval:
    """Return the permeability of the network along an axis."""
    value = network_permeability(findings, axis)
    factor = 1e3 * _metres(findings) ** 2 / DARCY
    if isinstance(value, Interval):
        return value.mapped(lambda length_squared: factor * length_squared)
    return factor * value


def drained_diameter(findings: Findings) -> float:
    """Return the throat diameter at which half of the void is entered from all faces."""
    diameter = threshold_diameter(findings.drainage, 0.5)
    if np.isnan(diameter):
        raise NotMeasuredError("Less than 50% of the void is reached from the faces.")
    return diameter


def mercury_pressure(findings: Findings) -> float:
    """Return the pressure in MPa at which mercury has entered half of the void."""
    return capillary_pressure(drained_diameter(findings) * _metres(findings)) / 1e6


def solid_fraction(findings: Findings) -> float:
    """Return 1 less the porosity."""
    return 1 - value_of(findings.void_share)


def network_tortuosity_factor(findings: Findings, axis: str) -> float:
    """Return the formation factor of the network times the porosity."""
    return value_of(network_factor(findings, axis)) * value_of(findings.void_share)


def bruggeman_exponent(findings: Findings, axis: str) -> float:
    """Return the exponent in tortuosity factor = porosity^-exponent."""
    porosity = value_of(findings.void_share)
    if not 0 < porosity < 1:
        raise NotMeasuredError("Not defined without pores, or without solid.")
    factor = findings.totals.get(f"voxel_tortuosity_factor_{axis}")
    if factor is None:
        factor = network_tortuosity_factor(findings, axis)
    return -math.log(factor) / math.log(porosity)


_NETWORK = {"network_factor": network_factor, "network_permeability": network_permeability}
