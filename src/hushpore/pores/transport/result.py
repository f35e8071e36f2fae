"""Result of transport through a phase: values along each axis, maps of the flux, profiles."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.base.arrays import Float32s, Float64s
    from hushpore.base.volume import Volume

#: Titles of the maps in a result, by the start of their names.
MAPS = {"flux": "diffusive flux", "speed": "flow speed"}


class Solution(NamedTuple):
    """Diffusion or flow along one axis.

    `value`: effective conductivity, in the unit of those of the phases; or permeability, in the
    square of the unit of the spacing. `flux`: (z, y, x), float32: magnitude of the flux or velocity
    over its mean along the axis in the volume. `profile`: (slices along the axis,), float64: mean
    concentration or pressure, between 1 at the first face and 0 at the last. `iterations`: of the
    solver. `residual`: of diffusion, over the right side; of flow, relative change of the value.
    """

    value: float
    flux: Float32s
    profile: Float64s
    iterations: int
    residual: float


@dataclass(frozen=True, eq=False)
class Transport:
    """Result of `hushpore.transport`.

    Attributes
    ----------
    volume : Volume
        The input.
    totals : dict of str to float or None
        For each axis, such as z, what was asked for: ``effective_diffusivity_z`` (relative to a
        conductivity of 1), ``voxel_tortuosity_factor_z`` (mean conductivity over effective one;
        porosity over relative diffusivity for one phase), ``voxel_formation_factor_z`` (highest
        conductivity over effective one; the MacMullin number of an electrode) and
        ``voxel_permeability_z`` (unit of the volume, squared). None if nothing connects the faces.
    steps : dict of str to dict
        For each solution, such as ``"diffusion_z"``: ``iterations`` and the ``residual`` at the
        end.
    maps : dict of str to numpy.ndarray
        float32, in the shape of the volume, such as ``"flux_z"`` and ``"speed_z"``: magnitude of
        the local flux or velocity over the mean along that axis in the whole volume; 0 where
        nothing flows.
    profiles : dict of str to numpy.ndarray
        For each solution: mean concentration or pressure in each slice along its axis, between 1
        at the first face and 0 at the last.
    """

    volume: Volume
    totals: dict[str, float | None]
    steps: dict[str, dict[str, float]]
    maps: dict[str, Float32s] = field(repr=False)
    profiles: dict[str, Float64s] = field(repr=False)

    @property
    def record(self) -> dict[str, Any]:
        """Totals, and iterations and residuals, for the record of a job."""
        return {**self.totals, "transport": self.steps}

    @cached_property
    def profile(self) -> pd.DataFrame:
        """Profiles as a table: ``transport``, ``axis``, ``slice``, ``position``, ``level``."""
        import pandas as pd

        found = [pd.DataFrame(columns=["transport", "axis", "slice", "position", "level"])]
        for name, level in self.profiles.items():
            kind, _, axis = name.partition("_")
            place, number = self.volume.axes.index(axis), np.arange(level.size)
            position = self.volume.origin[place] + self.volume.spacing[place] * number
            rows = {"slice": number, "position": position, "level": level}
            found.append(pd.DataFrame({"transport": kind, "axis": axis, **rows}))
        return pd.concat(found[1:] or found, ignore_index=True)

    @property
    def map_volumes(self) -> dict[str, Volume]:
        """Maps as volumes with the spacing and origin of the input, by name."""
        return {
            name: self.volume.derived(values, f"{self.volume.name} {map_title(name)}")
            for name, values in self.maps.items()
        }

    def resized(self, volume: Volume) -> Transport:
        """Return the result for another voxel size of the same shape."""
        ratio = float(volume.spacing[0] / self.volume.spacing[0])
        totals = {
            name: value * ratio**2 if value is not None and "permeability" in name else value
            for name, value in self.totals.items()
        }
        return dataclasses.replace(self, volume=volume, totals=totals)


def is_map(name: str) -> bool:
    """Whether an image of a result has the name of a map."""
    kind, _, axis = name.partition("_")
    return kind in MAPS and axis in ("z", "y", "x")


def map_title(name: str) -> str:
    """Return the title of a map by its name.

    >>> map_title("flux_z")
    'diffusive flux along z'
    """
    kind, _, axis = name.partition("_")
    return f"{MAPS[kind]} along {axis}"


def without_transport(totals: Mapping[str, Any]) -> dict[str, Any]:
    """Return the totals of a record without those of transport in the voxels."""
    starts = "effective_diffusivity", "voxel_", "transport"
    return {name: value for name, value in totals.items() if not name.startswith(starts)}
