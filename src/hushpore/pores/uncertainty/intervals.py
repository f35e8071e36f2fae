"""Intervals of porosity, number of pores and median diameter, and what they are made of.

Three things that a figure may be wrong by are put together as the guide to uncertainty does it, by
the root of the sum of their squares, on each side of the figure by itself:

- *sampling*: the scan is a part of the material; by a bootstrap over its parts, times Student's t
  for as many parts;
- *threshold*: the segmentation is made again at both ends of the thresholds that the scan cannot
  tell apart; they are as likely as each other, of which 90 % are nine tenths of the way;
- *merge height*: likewise, from two thirds to one and a half of the height;
- *voxel size*, of flow alone: with widths of pores and throats a voxel larger and smaller.

Flow through a part of the scan from face to face differs from flow through the whole, so its
intervals have no part of sampling.

References
----------
JCGM 100 (2008), "Evaluation of measurement data: guide to the expression of uncertainty in
measurement". https://doi.org/10.59161/JCGM100-2008E
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.events import Progress, mapped
from hushpore.pores.flow.network import Network, NotSolvedError, formation_factor, permeability
from hushpore.pores.forms.registry import FORMS
from hushpore.pores.numbering import number_basins
from hushpore.pores.tables.measures import pore_columns, throat_columns
from hushpore.pores.tables.totals import INTERVALS
from hushpore.pores.uncertainty.band import is_cut_off, threshold_band
from hushpore.pores.uncertainty.subvolumes import Sample, bootstrap, curve, settled_at
from hushpore.pores.void.components import AIR
from hushpore.pores.void.grey import GreyValues
from hushpore.pores.watershed.merging import height_of
from hushpore.pores.work import beyond_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from hushpore.base.arrays import Array, Float64s, Int32s, Mask, UInt8s
    from hushpore.base.events import Event
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.uncertainty.band import Band
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.watershed.merging import Numbering
    from hushpore.pores.work import Work

#: Name of the stage in the progress bar.
STAGE = "intervals"

#: Voxels at most by which it is found which thresholds cannot be told apart.
SAMPLE = 1 << 24

#: Coverage of the intervals, also used for uniformly distributed contributions.
LEVEL = 0.9

#: Merge heights that are compared: multiples of the one that was taken.
HEIGHTS = (2 / 3, 3 / 2)


class Interval(NamedTuple):
    """Where a figure lies, and what that is made of.

    `parts`: by what they stem from, how far it goes below and above, as shares of the figure.
    """

    low: float
    high: float
    parts: dict[str, tuple[float, float]]


def combined(
    figure: float,
    error: float,
    parts: int,
    others: Mapping[str, Sequence[float]],
    most: float = math.inf,
) -> Interval:
    """Return the interval of a figure.

    `error`: its standard error by sampling, of as many `parts` of the scan; NaN where that is not
    known. `others`: by what they stem from, what the figure would be besides. `most`: that it can
    be.
    """
    from scipy import special

    sides: dict[str, tuple[float, float]] = {}
    if np.isfinite(error):
        around = float(special.stdtrit(parts - 1, (1 + LEVEL) / 2)) * error
        sides["sampling"] = (around, around)
    for name, values in others.items():
        low, high = min(*values, figure), max(*values, figure)
        sides[name] = (LEVEL * (figure - low), LEVEL * (high - figure))
    below, above = (math.hypot(*(each[side] for each in sides.values())) for side in (0, 1))
    shares = {name: (low / figure, high / figure) for name, (low, high) in sides.items()}
    return Interval(max(figure - below, 0.0), min(figure + above, most), shares)


class Merged(NamedTuple):
    """Basins, and which pores they are merged to."""

    graph: BasinGraph
    numbering: Numbering
    sample: int  # voxels of the sample

    def figures(self, volume: Volume) -> tuple[float, int, float | None]:
        """Return the figures that have intervals: as `INTERVALS` are in the record."""
        sizes = self.diameters(volume)
        voxels = int(self.graph.voxels[self.numbering.label_of > 0].sum())
        return voxels / self.sample, sizes.size, float(np.median(sizes)) if sizes.size else None

    def diameters(self, volume: Volume) -> Float64s:
        """Return the equivalent diameter of each pore."""
        voxels = np.bincount(self.numbering.label_of, self.graph.voxels)[1:]
        size = voxels * volume.voxel_size
        if volume.n_spatial == 2:
            return np.asarray(2 * np.sqrt(size / np.pi))
        return np.asarray(np.cbrt(6 * size / np.pi))

    def network(self, volume: Volume, settings: PoreSettings) -> Network:
        """Return the network that flow is computed on."""
        least = settings.minimum_shape_voxels
        throats = throat_columns(self.graph, self.numbering, volume)
        pores = pore_columns(self.graph, self.numbering, volume, throats, least)
        return Network.of(pores, throats, volume)


class Certainty(NamedTuple):
    """How sure the figures of a segmentation are."""

    intervals: dict[str, Interval]  # by `INTERVALS` and `FLOW` of `hushpore.pores.tables.totals`
    band: Band | None  # thresholds that cannot be told apart; None where there is no one threshold
    curve: dict[str, Float64s]  # see `hushpore.pores.uncertainty.subvolumes.curve`
    settled: float | None  # edge from which on a part is representative; None where it never is
    parts: int  # of the scan, that were drawn
    flow: dict[str, float]  # figures of flow, by the names of their intervals
    is_cut_off: bool = False  # whether grey values are, so that the band is too narrow

    @property
    def totals(self) -> dict[str, Any]:
        """What the record says."""
        totals: dict[str, Any] = {
            "rev_edge_length": self.settled,
            "bootstrap_parts": self.parts,
            **self.flow,
        }
        for name, each in self.intervals.items():
            totals |= {f"{name}_low": each.low, f"{name}_high": each.high}
        if self.band is not None:
            totals |= {"threshold_low": self.band.low, "threshold_high": self.band.high}
        totals["interval_parts"] = {name: each.parts for name, each in self.intervals.items()}
        return totals


def find_certainty(
    work: Work,
    phase: UInt8s,
    labels: Int32s,
    merged: Merged,
    threshold: float | None,
    again: Callable[[PoreSettings], Generator[Event, Any, Merged]],
) -> Generator[Event, None, Certainty | None]:
    """Find how sure the figures of a segmentation are; None where there is no pore.

    `phase`: (z, y, x), uint8; `AIR` and above is not of the sample. `labels`: (z, y, x), int32.
    `threshold`: that was taken; None where there is none, or one for each voxel. `again`:
    segments the same volume by other settings.
    """
    settings, volume = work.settings, work.volume
    graph, numbering = merged.graph, merged.numbering
    radius = height_of(graph, "auto", volume.n_spatial).radius
    if radius is None or not numbering.root.size:
        return None
    void, inside = labels > 0, phase < AIR
    if settings.sample_mask:
        # solid outside it is not of the sample either
        inside &= ~beyond_mask(work, 0, len(phase))
    places = np.stack(np.unravel_index(graph.peak[numbering.root], void.shape), axis=1)
    diameter = merged.diameters(volume)
    flat = volume.n_spatial == 2
    sample = Sample(
        void[0] if flat else void,
        inside[0] if flat else inside,
        places[:, -volume.n_spatial :],
        diameter,
        volume.spacing,
    )
    errors, parts = bootstrap(sample, 2 * radius * min(volume.spacing))
    yield Progress(STAGE, 1, 4, "", 0.96)
    found = curve(sample)
    settled = settled_at(found, float(min(np.array(volume.shape) * volume.spacing)))
    sampled = int(np.count_nonzero(inside))
    porosity = float(np.count_nonzero(void)) / sampled
    figures = porosity, diameter.size, float(np.median(diameter))
    others: list[dict[str, list[float]]] = [{}, {}, {}]
    networks: dict[str, list[Network]] = {}
    has_flow = _has_flow(settings, volume) and bool(inside.all())
    for other in _of_other_heights(merged, settings, volume):
        sizes = other.diameters(volume)
        others[1].setdefault("merge height", []).append(sizes.size)
        others[2].setdefault("merge height", []).append(float(np.median(sizes)))
        if has_flow:
            networks.setdefault("merge height", []).append(other.network(volume, settings))
    band, cut_off = None, False
    if threshold is not None:
        looked_at = _middle_slices(work, inside)
        cut_off = is_cut_off(*looked_at, threshold)
        band = threshold_band(*looked_at, threshold, radius)
        for number, end in enumerate(band, start=2):
            yield Progress(STAGE, number, 4, "", 0.95 + 0.01 * number)
            shift = end - threshold
            strict = None if settings.hysteresis is None else settings.hysteresis + shift
            how = dataclasses.replace(settings, threshold=end, hysteresis=strict, intervals=False)
            how = dataclasses.replace(how, local_thickness="none")
            found_there = yield from mapped(again(how), _at_work)
            for values, figure in zip(others, found_there.figures(volume), strict=True):
                if figure is not None:
                    values.setdefault("threshold", []).append(figure)
            if has_flow:
                networks.setdefault("threshold", []).append(found_there.network(volume, settings))
    # there is no more void than sample
    each = zip(INTERVALS, figures, errors, others, (1.0, math.inf, math.inf), strict=True)
    intervals = {
        name: combined(figure, error, parts, rest, most) for name, figure, error, rest, most in each
    }
    flow: dict[str, float] = {}
    if has_flow:
        flow, of_flow = flow_intervals(merged.network(volume, settings), networks, volume)
        intervals |= of_flow
    return Certainty(intervals, band, found, settled, parts, flow, cut_off)


def _of_other_heights(merged: Merged, settings: PoreSettings, volume: Volume) -> Iterator[Merged]:
    """Yield the pores by lower and higher merge heights; none if there is no merge height."""
    if settings.merging != "height" or settings.markers:
        return
    h = height_of(merged.graph, settings.merge_height, volume.n_spatial).merge_height
    for factor in HEIGHTS:
        how = dataclasses.replace(settings, merge_height=factor * h)
        yield merged._replace(numbering=number_basins(merged.graph, how, volume))


def flow_intervals(
    network: Network, others: Mapping[str, Sequence[Network]], volume: Volume
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return the figures of flow of a network, and their intervals from the segmentation.

    Parameters
    ----------
    network : Network
        Of a 3D volume that is all sample.
    others : mapping of str to sequence of Network
        By what they stem from, the networks of other segmentations of the same volume.
    volume : Volume
        For its voxel size: the inscribed ball of a pore or throat is measured within half a voxel
        of its radius.

    Returns
    -------
    figures : dict of str to float
        By names of `hushpore.pores.tables.totals.FLOW`, along axes where something flows.
    intervals : dict of str to Interval
        By the same names; without formation factors that are infinite in another segmentation.
    """
    voxel = volume.voxel_size ** (1 / 3)
    by_part = {**others, "voxel size": (network.widened(-voxel), network.widened(voxel))}
    try:
        figures = _flow(network)
        of_others = {name: [_flow(each) for each in part] for name, part in by_part.items()}
    except NotSolvedError:
        return {}, {}
    figures = {name: figure for name, figure in figures.items() if 0 < figure < math.inf}
    intervals = {}
    for name, figure in figures.items():
        values = {part: [each[name] for each in found] for part, found in of_others.items()}
        if all(math.isfinite(value) for part in values.values() for value in part):
            intervals[name] = combined(figure, math.nan, 0, values)
    return figures, intervals


def _flow(network: Network) -> dict[str, float]:
    """Return the figures of flow through a network, as `hushpore.pores.tables.totals.FLOW`."""
    found = {}
    for place, axis in enumerate("zyx"):
        found[f"permeability_{axis}"] = permeability(network, place)
        found[f"formation_factor_{axis}"] = formation_factor(network, place)
        found[f"breakthrough_diameter_{axis}"] = network.breakthrough(place).diameter
    return found


def _has_flow(settings: PoreSettings, volume: Volume) -> bool:
    """Whether a form of flow was chosen for a volume."""
    form = FORMS.get(settings.report_form)
    return volume.n_spatial == 3 and form is not None and form.has_drainage


def _middle_slices(work: Work, inside: Mask) -> tuple[Array, Mask]:
    """Return grey values by which it is told how sure a threshold is, and what is outside."""
    depth, *plane = inside.shape
    count = min(depth, max(1, SAMPLE // math.prod(plane)))
    first = (depth - count) // 2
    values = GreyValues(work.volume, work.slabs).read(first, first + count)
    return values, ~inside[first : first + count]


def _at_work(event: Event) -> Progress:
    """Return that something happens, which is all that is told of a job."""
    return Progress(STAGE, 0, 0, "", 0.97)
