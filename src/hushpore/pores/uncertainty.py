"""Uncertainty intervals of porosity, number of pores and median diameter, and the REV curve.

The contributions are combined as in the guide to uncertainty, by the root of the sum of their
squares, separately above and below the figure:

- *sampling*: the scan is a part of the material; by a bootstrap over its parts, times Student's t
  for as many parts;
- *threshold*: the segmentation is repeated at both ends of the range of thresholds that the scan
  cannot tell apart (`hushpore.pores.threshold_band`); they are equally likely, so that 90 % of them
  are nine tenths of the range;
- *merge height*: likewise, from two thirds to one and a half of the height;
- *voxel size*, of flow alone: with widths of pores and throats a voxel larger and smaller.

Flow through a part of the scan from face to face differs from flow through the whole, so its
intervals have no part of sampling.

The REV curve: figures of parts of a scan by their size.

References
----------
JCGM 100 (2008), "Evaluation of measurement data: guide to the expression of uncertainty in
measurement". https://doi.org/10.59161/JCGM100-2008E

H. R. Kuensch (1989), "The jackknife and the bootstrap for general stationary observations".
https://doi.org/10.1214/aos/1176347265
J. Bear (1972), "Dynamics of Fluids in Porous Media", section 1.3, on the representative
elementary volume.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.events import Progress, mapped
from hushpore.pores.flow import Network, NotSolvedError, formation_factor, permeability
from hushpore.pores.forms.tables import has_drainage
from hushpore.pores.numbering import number_basins
from hushpore.pores.tables.measures import pore_columns, throat_columns
from hushpore.pores.tables.totals import INTERVALS, LARGEST
from hushpore.pores.threshold_band import Band, is_cut_off, shares_of_void, threshold_band
from hushpore.pores.void.components import AIR
from hushpore.pores.void.threshold import GreyValues
from hushpore.pores.watershed.merging import height_of
from hushpore.pores.work import beyond_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from hushpore.base.arrays import Array, Float64s, Int32s, Int64s, Mask, UInt8s
    from hushpore.base.events import Event
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.watershed.graph import BasinGraph
    from hushpore.pores.watershed.merging import Numbering
    from hushpore.pores.work import Work


#: Typical diameters of pores that a part of the bootstrap is wide at least: parts are then nearly
#: independent of each other.
WIDE = 2.0

#: Parts along an axis at most.
_MOST = 6

#: Parts of a scan, from two of which no spread is told: Student's t of one degree of freedom would
#: make the interval of a porosity of 94 % go from 61 to 127 %.
FEWEST_PARTS = 3

#: Draws of the bootstrap.
DRAWS = 400

#: Cells along the shortest edge of the scan, of which the cubes of the curve are made.
CELLS = 16

#: From the edge on from which the spread of porosity is below this share of it, it has settled.
SETTLED = 0.1


@dataclass(frozen=True, eq=False)
class Sample:
    """A segmentation, as far as parts of it are looked at.

    `void`, `sample`: bool, of the shape of the volume: pores, and the sample that they are in.
    `places`: (pores, axes): the voxel of each pore's peak. `diameter`: (pores,). `spacing`: along
    each axis.
    """

    void: Mask
    sample: Mask
    places: Int64s
    diameter: Float64s
    spacing: tuple[float, ...]


def bootstrap(sample: Sample, diameter: float) -> tuple[Float64s, int]:
    """Return the standard errors that stem from the scan being a part of the material only.

    Parts of the scan are drawn with replacement, `DRAWS` times, and their figures put together. Of
    few parts the spread is enlarged by n / (n - 1).

    `diameter`: the typical one of the pores, in the unit of the spacing.
    Returns: (3,): standard errors of porosity, number of pores and median diameter, and how many
    parts there are; NaN where the scan is too small for `FEWEST_PARTS`.
    """
    extent = np.array(sample.void.shape) * sample.spacing
    # never more of them along an axis than slices
    counts = [
        int(np.clip(along // (WIDE * diameter), 1, min(_MOST, length)))
        for along, length in zip(extent, sample.void.shape, strict=True)
    ]
    bounds = [
        np.arange(n) * length // n for n, length in zip(counts, sample.void.shape, strict=True)
    ]
    void, whole = (_sums(each, bounds).ravel() for each in (sample.void, sample.sample))
    part = np.zeros(len(sample.places), np.int64)
    for n, starts, place in zip(counts, bounds, sample.places.T, strict=True):
        part = part * n + np.searchsorted(starts, place, side="right") - 1
    pores = np.bincount(part, minlength=void.size)
    used = np.flatnonzero(whole)
    n = used.size
    if n < FEWEST_PARTS or not len(part):
        return np.full(3, np.nan), n
    # the same scan gives the same interval
    drawn = np.random.default_rng(0).integers(0, n, (DRAWS, n))
    times = np.stack([np.bincount(used[each], minlength=void.size) for each in drawn])
    order = np.argsort(sample.diameter)
    part, sizes = part[order], sample.diameter[order]
    medians = np.empty(DRAWS)
    for draw, weight in enumerate(times):
        up_to = np.cumsum(weight[part])
        middle = np.searchsorted(up_to, up_to[-1] / 2)
        medians[draw] = sizes[min(int(middle), sizes.size - 1)]
    volume = np.maximum(times @ whole, 1)
    figures = times @ void / volume, times @ pores / volume * whole.sum(), medians
    spread = [float(np.std(each, ddof=1)) for each in figures]
    return np.array(spread) * math.sqrt(n / (n - 1)), n


def curve(sample: Sample) -> dict[str, Float64s]:
    """Return porosity and pores in a volume, of cubes of the sample by their edge.

    Of each edge all cubes that lie on a grid of cells, where at least half of each is sample.
    Returns: by names: ``edge`` in the unit of the spacing; how many ``cubes``; of ``porosity`` and
    of ``density``, pores in a unit of volume, mean, and 5 and 95 per cent quantiles (``_low``,
    ``_high``).
    """
    extent = np.array(sample.void.shape) * sample.spacing
    edge = float(extent.min()) / CELLS
    cell = [max(1, round(edge / step)) for step in sample.spacing]
    cells = [length // size for length, size in zip(sample.void.shape, cell, strict=True)]
    kept = tuple(slice(0, n * size) for n, size in zip(cells, cell, strict=True))
    bounds = [np.arange(n) * size for n, size in zip(cells, cell, strict=True)]
    void, whole = (_sums(each[kept], bounds) for each in (sample.void, sample.sample))
    pores = np.zeros(cells, np.int64)
    within = (sample.places < np.array([part.stop for part in kept])).all(axis=1)
    np.add.at(pores, tuple((sample.places[within] // cell).T), 1)
    voxel = math.prod(sample.spacing)
    full = math.prod(cell)
    rows = []
    for width in range(1, min(cells) + 1):
        a, b, c = (_moving(each, width) for each in (void, whole, pores))
        used = 2 * b >= full * width ** len(cells)
        if not used.any():
            continue
        size = width * float(np.mean(np.array(cell) * sample.spacing))
        row = [size, np.count_nonzero(used)]
        for figure in (a[used] / b[used], c[used] / (b[used] * voxel)):
            row += [figure.mean(), *np.quantile(figure, [0.05, 0.95])]
        rows.append(row)
    names = ("edge", "cubes", *(f"{f}{end}" for f in ("porosity", "density") for end in ENDS))
    return dict(zip(names, np.array(rows, np.float64).reshape(-1, len(names)).T, strict=True))


#: What a figure of the curve has.
ENDS = ("", "_low", "_high")


def settled_at(found: dict[str, Float64s], extent: float) -> float | None:
    """Return the edge from which on the porosity of cubes has settled; None where it has not.

    That is where nine cubes in ten lie within `SETTLED` of the mean, up to half the `extent` of the
    scan: of larger ones there are too few that do not overlap.
    """
    looked_at = found["edge"] <= extent / 2
    spread = np.maximum(
        found["porosity_high"] - found["porosity"], found["porosity"] - found["porosity_low"]
    )[looked_at]
    wide = spread > SETTLED * found["porosity"][looked_at]
    first = int(np.flatnonzero(wide)[-1]) + 1 if wide.any() else 0
    return float(found["edge"][first]) if first < wide.size else None


def _sums(values: Mask, bounds: Sequence[Int64s]) -> Int64s:
    """Return how much of each box is true; `bounds`: where boxes begin, along each axis."""
    ends = [*bounds[0][1:], len(values)]
    # `reduceat` would take all values as int64 first
    summed: Int64s = np.stack(
        [values[a:b].sum(axis=0, dtype=np.int64) for a, b in zip(bounds[0], ends, strict=True)]
    )
    for axis, starts in enumerate(bounds[1:], start=1):
        summed = np.add.reduceat(summed, starts, axis=axis)
    return summed


def _moving(values: Int64s, width: int) -> Int64s:
    """Return the sums over all cubes of cells, `width` along each axis."""
    total = np.pad(values, [(1, 0)] * values.ndim)
    for axis in range(values.ndim):
        total = np.cumsum(total, axis=axis)
    result = np.zeros([n - width + 1 for n in values.shape], np.int64)
    for ends in itertools.product((0, 1), repeat=values.ndim):
        corner = total[
            tuple(
                slice(end * width, end * width + n)
                for end, n in zip(ends, result.shape, strict=True)
            )
        ]
        result += (-1) ** (values.ndim - sum(ends)) * corner
    return result


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

    def figures(self, volume: Volume) -> tuple[float | None, ...]:
        """Return the figures that have intervals: as `INTERVALS` in the record, and `LARGEST`."""
        sizes = self.diameters(volume)
        voxels = int(self.graph.voxels[self.numbering.label_of > 0].sum())
        of_sizes = (float(np.median(sizes)), float(sizes.max())) if sizes.size else (None, None)
        return voxels / self.sample, sizes.size, *of_sizes

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

    # by `INTERVALS` and `FLOW` of `hushpore.pores.tables.totals`, and `LARGEST`
    intervals: dict[str, Interval]
    band: Band | None  # plausible thresholds; None without a single threshold
    curve: dict[str, Float64s]  # see `hushpore.pores.uncertainty.curve`
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
            if name != LARGEST:
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
    """Find the intervals of the figures of a segmentation; None without pores.

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
    figures = porosity, diameter.size, float(np.median(diameter)), float(diameter.max())
    others: list[dict[str, list[float]]] = [{}, {}, {}, {}]
    networks: dict[str, list[Network]] = {}
    has_flow = _has_flow(settings, volume) and bool(inside.all())
    for other in _of_other_heights(merged, settings, volume):
        for values, figure in zip(others[1:], other.figures(volume)[1:], strict=True):
            if figure is not None:
                values.setdefault("merge height", []).append(figure)
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
        others[0].setdefault("threshold", []).extend(_shares(looked_at, settings))
    # there is no more void than sample
    names, most = (*INTERVALS, LARGEST), (1.0, math.inf, math.inf, math.inf)
    each = zip(names, figures, [*errors, math.nan], others, most, strict=True)
    intervals = {
        name: combined(figure, error, parts, rest, most) for name, figure, error, rest, most in each
    }
    flow: dict[str, float] = {}
    if has_flow:
        flow, of_flow = flow_intervals(merged.network(volume, settings), networks, volume)
        intervals |= of_flow
    return Certainty(intervals, band, found, settled, parts, flow, cut_off)


def _shares(looked_at: tuple[Array, Mask], settings: PoreSettings) -> list[float]:
    """Return the porosities by models of the histogram, where all void is pore."""
    if settings.pore_type != "all" or settings.hysteresis is not None:
        return []
    return shares_of_void(*looked_at, bright=settings.pores_are == "bright")


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
    return volume.n_spatial == 3 and has_drainage(settings.report_form)


def _middle_slices(work: Work, inside: Mask) -> tuple[Array, Mask]:
    """Return the grey values for the band of thresholds, and the voxels outside the sample."""
    depth, *plane = inside.shape
    count = min(depth, max(1, SAMPLE // math.prod(plane)))
    first = (depth - count) // 2
    values = GreyValues(work.volume, work.slabs).read(first, first + count)
    return values, ~inside[first : first + count]


def _at_work(event: Event) -> Progress:
    """Return a progress without figures in place of an event of a repeated segmentation."""
    return Progress(STAGE, 0, 0, "", 0.97)
