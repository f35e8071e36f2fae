"""A finished segmentation, as the forms of the fields see it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from hushpore.base.formatting import METRES
from hushpore.pores.flow import Network, drainage_columns
from hushpore.pores.forms.sample_map import SampleMap
from hushpore.pores.tables.totals import LARGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.arrays import Array, Float64s, UInt8s
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

T = TypeVar("T")


class NotMeasuredError(Exception):
    """A form asks for something that the result does not hold; says why, and what to do."""


class Interval(NamedTuple):
    """A value with its 90 % interval."""

    value: float
    low: float
    high: float

    def mapped(self, function: Callable[[float], float]) -> Interval:
        """Return the interval of a function that rises or falls throughout."""
        low, high = sorted((function(self.low), function(self.high)))
        return Interval(function(self.value), low, high)


def value_of(found: float | Interval) -> float:
    """Return a value without its interval."""
    return found.value if isinstance(found, Interval) else found


@dataclass(frozen=True, eq=False)
class Findings:
    """A finished segmentation, as forms see it.

    Attributes
    ----------
    totals : mapping
        The totals of the record.
    pores, throats : mapping of str to numpy.ndarray
        Columns of the tables.
    volume : Volume
        What was segmented, for spacing and unit; its values are not read.
    settings : PoreSettings
        How it was segmented.
    void : numpy.ndarray, optional
        (z, y, x), not 0 in void; None if it is not in one place, as on a cluster.
    phases : numpy.ndarray, optional
        In place of `void`, the phases at the points of a `SampleMap`.
    form_to_choose : str
        If not empty, slow figures are taken from `known` alone, and the reason for one that is not
        there asks for this form.
    known : dict
        Slow figures so far, by name; shared with copies.
    """

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return a slow figure, computed at its first use.

        Raises NotMeasuredError if it is not known and is not to be computed.
        """
        if name not in self.known:
            if self.form_to_choose:
                choice = f"Set Report form to {self.form_to_choose}."
                raise NotMeasuredError(f"Not computed, because it takes time. {choice}")
            self.known[name] = compute()
        found: T = self.known[name]
        return found

    totals: Mapping[str, Any]
    pores: Mapping[str, Array]
    throats: Mapping[str, Array]
    volume: Volume
    settings: PoreSettings
    void: Array | None = field(default=None, repr=False)
    phases: UInt8s | None = field(default=None, repr=False)
    form_to_choose: str = ""
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    def total(self, name: str, otherwise: str = "") -> float:
        """Return a total of the record.

        Raises NotMeasuredError if it is not there, with the reason `otherwise` or that of the form.
        """
        value = self.totals.get(name)
        if value is None or math.isnan(value):
            raise NotMeasuredError(otherwise)
        return float(value)

    def thickness(self, name: str) -> float:
        """Return a total of local thickness."""
        return self.total(
            name, "Not measured. Set Local thickness to Pores and solid (--local-thickness both)."
        )

    def with_interval(self, name: str) -> float | Interval:
        """Return a total, with its interval if the record has one."""
        return self.with_ends(name, self.total(name))

    def with_ends(self, name: str, value: float) -> float | Interval:
        """Return a value with the interval of a total, if the record has it."""
        ends = [self.totals.get(f"{name}_{end}") for end in ("low", "high")]
        if any(end is None for end in ends):
            return value
        return Interval(value, *(float(end) for end in ends if end is not None))

    def of_largest_size(self, value: float, power: int) -> float | Interval:
        """Return a value with the interval of a power of the diameter of the largest pore."""
        parts = self.totals.get("interval_parts", {}).get(LARGEST)
        if not parts:
            return value
        below, above = (math.hypot(*(part[side] for part in parts.values())) for side in (0, 1))
        return Interval(value, value * max(1 - below, 0.0) ** power, value * (1 + above) ** power)

    def of_surfaces(self, depth: float) -> float | Interval:
        """Return a depth with its interval: surfaces move with the threshold, on average by void.

        With air around the sample, its surface moves as far as that of the pores.
        """
        moved = self.totals.get("interval_parts", {}).get("porosity", {}).get("threshold")
        surface = self.totals.get("specific_surface")
        if not moved or not surface:
            return depth
        way = self.totals["porosity"] / surface * (2 if self.totals.get("exterior_share") else 1)
        return Interval(depth, max(depth - moved[1] * way, 0.0), depth + moved[0] * way)

    def require_all_void(self) -> None:
        """Raise NotMeasuredError unless surfaces and lengths are those of all the void."""
        if self.settings.pore_type != "all":
            raise NotMeasuredError(
                f"Only {self.settings.pore_type} pores were segmented. Set Pore type to All "
                "(--pore-type all)."
            )

    def require_3d(self) -> None:
        """Raise NotMeasuredError for an image."""
        if self.volume.n_spatial != 3:
            raise NotMeasuredError("Defined in 3D; this is an image.")

    @cached_property
    def sample(self) -> float:
        """Volume of the sample."""
        return float(self.totals["sample_voxels"]) * self.volume.voxel_size

    @property
    def solid_share(self) -> float | Interval:
        """Solid over sample volume, with the interval of the porosity if both agree."""
        void = self.void_share
        return void.mapped(lambda share: 1 - share) if isinstance(void, Interval) else 1 - void

    @cached_property
    def void_share(self) -> float | Interval:
        """All void over sample volume, with the interval of the porosity if both agree."""
        void = float(self.totals["open_porosity"] + self.totals["closed_porosity"])
        porosity = self.with_interval("porosity")
        if isinstance(porosity, Interval) and math.isclose(porosity.value, void, abs_tol=1e-9):
            return porosity
        return void

    @property
    def sample_map(self) -> SampleMap:
        """Points of the volume, for depths below the surface of the sample.

        Raises NotMeasuredError if it is not known which voxels are of the sample.
        """
        self.require_3d()
        self.require_all_void()
        in_air = bool(self.totals.get("exterior_share"))
        threshold = self.totals.get("threshold")
        is_void = self.volume.dtype == np.bool_
        mask = self.volume.auxiliary_of(self.settings, "sample_mask")
        if in_air and mask is None and self.volume.holds_labels and not is_void:
            raise NotMeasuredError(
                "The air around the sample is found in the scan, which is not part of a stored "
                "result. Segment the scan again."
            )
        if (
            in_air
            and mask is None
            and (
                (threshold is None and not is_void)
                or self.settings.hysteresis is not None
                or self.totals.get("padding_value") is not None
            )
        ):
            raise NotMeasuredError(
                "With air around the sample it takes one threshold, without hysteresis, and no "
                "padding. Crop the scan to the sample."
            )
        if self.phases is not None:
            how = partial(SampleMap.of_phases, self.phases, self.volume, in_air=in_air, mask=mask)
            return self.once("sample_map", how)
        assert self.void is not None, "one of both is given"
        how = partial(
            SampleMap.of,
            self.void,
            self.volume,
            in_air=in_air,
            threshold=None if is_void else threshold,
            bright=self.totals.get("pores_are") == "bright"
            or self.settings.are_bright(self.volume.dtype),
            mask=mask,
        )
        return self.once("sample_map", how)

    def depths(self) -> Float64s:
        """Return how deep the edge of each pore is below the surface of the sample (pores,).

        Raises NotMeasuredError if that is not known, or there are no pores.
        """
        self.column("volume")
        if not self.totals.get("exterior_share"):
            return self.column("face_distance")
        origin, spacing = np.asarray(self.volume.origin), np.asarray(self.volume.spacing)
        centres = np.stack([self.pores[f"centroid_{axis}"] for axis in "zyx"], axis=-1)
        depth = self.sample_map.depth_at((centres - origin) / spacing, spacing)
        # of a pore the edge is nearer than the centre
        radius = np.asarray(self.pores["equivalent_diameter"], np.float64) / 2
        found: Float64s = np.maximum(depth - radius, 0.0)
        return found

    @property
    def network(self) -> Network:
        """Pores and throats as a network, for flow from face to face.

        Raises NotMeasuredError if the volume is an image, or is not all sample.
        """
        self.require_3d()
        if self.totals.get("exterior_share"):
            raise NotMeasuredError(
                "Flow is computed from face to face of a volume that is all sample. Crop the scan."
            )
        how = partial(Network.of, self.pores, self.throats, self.volume)
        return self.once("network", how)

    @property
    def drainage(self) -> dict[str, Float64s]:
        """The drainage curve, see `hushpore.pores.flow.drainage_columns`."""
        how = partial(drainage_columns, self.network, METRES.get(self.volume.unit))
        return self.once("drainage", how)

    def column(self, name: str) -> Float64s:
        """Return the values of a column of pores, without empty ones.

        Raises NotMeasuredError if there are none.
        """
        values: Float64s = np.asarray(self.pores[name], np.float64)
        values = values[np.isfinite(values)]
        if not values.size:
            raise NotMeasuredError("It needs at least one pore.")
        return values
