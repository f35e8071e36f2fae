"""Phase labels of a volume, from thresholds between grey values or from given labels."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d

from hushpore.base.errors import InputError
from hushpore.pores.phases.classifier import DOUBT, Classifier, classes_of, painted_features
from hushpore.pores.phases.features import COUNT, Extent
from hushpore.pores.phases.forest import Forest
from hushpore.pores.phases.settings import MOST
from hushpore.pores.slab_steps import Grey, find_air, find_void
from hushpore.pores.void.components import AIR
from hushpore.pores.void.threshold import GreyValues, make_void, survey
from hushpore.pores.work import NO_AIR, Threshold
from hushpore.scan.exterior import Exterior, find_exterior, make_thumbnail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Float64s, Int64s, Mask, UInt8s
    from hushpore.base.events import Job
    from hushpore.pores.engine import Pass
    from hushpore.pores.phases.features import Network
    from hushpore.pores.phases.settings import PhaseSettings
    from hushpore.pores.pipeline import Stages
    from hushpore.pores.slabs import Stack
    from hushpore.pores.work import Work
    from hushpore.scan.histogram import Histogram

    #: Returns where slices are inside the sample mask, bool, (z, y, x).
    Inside = Callable[[int, int], Mask]
    #: The first slice and the phases of rows of boxes, and the share done in between.
    Rows = Iterator[float | tuple[int, UInt8s]]

#: Depth of the valleys between phases that thresholds separate, as a share of the lower peak. It is
#: 0.1 for such a made scan, and at least 0.6 for others (benchmarks/strokes.py).
VALLEY = 0.3

#: Maximum number of bins, as in `hushpore.scan.histogram.find_threshold`.
BINS = 256


def find_thresholds(histogram: Histogram, phases: int) -> tuple[float, ...]:
    """Return the thresholds between phases, in ascending order.

    The thresholds minimise the variance of the grey values within the phases. Each lies halfway
    between two occupied bins, so that rounding puts no value at a threshold. Dynamic programming
    takes ``phases * bins**2`` steps instead of the ``bins**(phases - 1)`` of an exhaustive search.

    `phases`: 2 or more.
    Raises InputError if there are fewer grey values than phases.
    """
    coarse = histogram.trimmed().coarser(BINS)
    full = coarse.counts > 0
    counts, centers = coarse.counts[full].astype(np.float64), coarse.centers[full]
    if counts.size < phases:
        raise InputError(
            f"Multi-Otsu cannot find {phases} phases in {counts.size} different grey values. "
            "Choose fewer phases, or give the thresholds."
        )
    between = _between(counts, centers)
    best = between[0]
    came_from: list[Int64s] = []
    for _ in range(phases - 1):
        # all earlier phases up to a bin, plus one phase from the next bin on
        joined = best[:-1, None] + between[1:]
        came_from.append(np.argmax(joined, axis=0))
        best = joined.max(axis=0)
    last, found = counts.size - 1, []
    for before in reversed(came_from):
        last = int(before[last])
        found.append(float(centers[last] + centers[last + 1]) / 2)
    return tuple(reversed(found))


def are_separate(histogram: Histogram, thresholds: Sequence[float]) -> bool:
    """Return whether the histogram has a deep valley at each threshold.

    Deep: lower than `VALLEY` times the lower one of the peaks on both sides, so that thresholds
    separate the phases without strokes.
    """
    coarse = histogram.trimmed().coarser(BINS)
    counts = gaussian_filter1d(coarse.counts.astype(np.float64), 3)
    at = np.searchsorted(coarse.centers, thresholds)
    if not at.size or at.min() < 1 or at.max() >= counts.size or len(set(at)) < at.size:
        return False
    peaks = [float(part.max()) for part in np.split(counts, at)]
    valleys = (counts[max(each - 12, 0) : each + 12].min() for each in at)
    return all(
        valley < VALLEY * min(pair) for valley, pair in zip(valleys, pairwise(peaks), strict=True)
    )


def _between(counts: Float64s, centers: Float64s) -> Float64s:
    """Return the contribution of a phase from one bin to another to the between-phase variance.

    Returns: (first, last): square of the sum of its values over their count; minus infinity for an
    empty phase.
    """
    # relative to the mean: a large offset would cost precision
    shifted = centers - (counts @ centers) / counts.sum()
    weight = np.concatenate([[0.0], np.cumsum(counts)])
    moment = np.concatenate([[0.0], np.cumsum(counts * shifted)])
    number = weight[None, 1:] - weight[:-1, None]
    total = moment[None, 1:] - moment[:-1, None]
    added = np.full(number.shape, -np.inf)
    np.divide(total**2, number, out=added, where=number > 0)
    return added


class Found(NamedTuple):
    """Separated phases."""

    labels: Stack  # uint8: 1 to n; 0 outside the sample
    limits: npt.NDArray[
        np.float64
    ]  # (n, 2): lower and upper grey value of each phase, or its label
    sample: int  # voxels of the sample
    exterior: Exterior
    air: Stack | None = None  # uint8: `AIR` in the exterior; None if air is kept
    problem: str = ""
    classifier: Classifier | None = None
    probabilities: UInt8s | None = None  # (n, z, y, x), in percent
    separate: tuple[float, ...] = ()  # thresholds that separate the phases without a classifier
    doubtful: int = 0  # voxels whose phase is doubtful


def find_phases(work: Work, settings: PhaseSettings, stages: Stages) -> Job:
    """Separate phases by their grey values; returns `Found`."""
    volume = work.volume
    values = GreyValues(volume, work.slabs, work.timer)
    with stages.timer.stage("sample"):
        small = make_thumbnail(volume)
    given = settings.grey_values
    sampled = dataclasses.replace(settings.of_pores(0.0), sample_mask=settings.sample_mask)
    padding = None if sampled.keeps_all else small.padding
    counting = survey(values, not given, work.threads, padding)
    (low, high, _), histogram = yield from stages.run("threshold", counting, 0.1)
    if histogram is not None:
        given = find_thresholds(histogram, settings.phases)
    ends = np.array([float(low), *given, float(high)])
    how = settings.of_pores(given[0])
    with stages.timer.stage("sample"):
        around = find_exterior(volume, dataclasses.replace(sampled, threshold=given[0]), small)
    work = dataclasses.replace(work, settings=around.apply(how), padding=around.padding)
    labels = work.scratch.stack("labels", work.shape, np.uint8)
    void = yield from stages.run("labels", find_void(work, Grey(values, Threshold(given[0]))), 0.15)
    air = yield from stages.run("labels", find_air(work, void), 0.2)
    painting = _paint(work, values, given, void, _mask_of(work, settings), labels)
    sample = yield from stages.run("labels", painting, 0.25)
    limits = np.stack([ends[:-1], ends[1:]], axis=1)
    if around.treatment == "keep":
        void.close()
        return Found(labels, limits, sample, around)
    problem = ""
    if not air.any():
        problem = NO_AIR
    return Found(labels, limits, sample, around, void, problem)


def _mask_of(work: Work, settings: PhaseSettings) -> Inside | None:
    """Return what reads slices of the sample mask as bool (z, y, x); None if none is given."""
    volume = work.volume
    mask = volume.auxiliary_of(settings, "sample_mask")
    if mask is None:
        return None
    if tuple(mask.shape) != volume.shape:
        raise InputError(
            f"sample_mask must be labels or a mask of shape {volume.shape}; got points."
        )
    read = GreyValues(volume.replace(mask), work.slabs).read
    if not any((read(*slab) > 0).any() for slab in work.slabs):
        name = settings.sample_mask
        raise InputError(f"The sample_mask {name!r} is empty: it has no voxel above 0.")
    return lambda first, last: np.asarray(read(first, last) > 0)


def _paint(
    work: Work,
    values: GreyValues,
    thresholds: tuple[float, ...],
    void: Stack,
    inside: Inside | None,
    labels: Stack,
) -> Pass[int]:
    """Write the phase number of each voxel; returns the number of sample voxels."""
    count = 0
    for (first, last), part in zip(work.slabs, values.in_slabs(), strict=True):
        room = labels.room(first, last)
        room[...] = 1
        for threshold in thresholds:
            room += make_void(part, threshold, True, work.threads)
        room[void.read(first, last) >= AIR] = 0
        if inside is not None:
            room[~inside(first, last)] = 0
        labels.write(first, room)
        count += int(np.count_nonzero(room))
        yield last / work.slabs.depth
    return count


def find_labels(work: Work, settings: PhaseSettings, stages: Stages) -> Job:
    """Read the values of a volume as labels; returns `Found`."""
    values = GreyValues(work.volume, work.slabs, work.timer)
    known = yield from stages.run("labels", _collect(values, work.volume.name), 0.1)
    if len(known) > MOST:
        # no setting turns a labels layer into grey values
        grey = (
            "" if work.volume.holds_labels else "If these are grey values, set are_labels=False. "
        )
        raise InputError(
            f"{work.volume.name} holds {len(known)} different labels above 0, but at most {MOST} "
            f"phases can be measured. {grey}If each is a pore or a grain, merge them into phases "
            "first."
        )
    if not len(known):
        raise InputError(
            f"{work.volume.name} holds no label above 0, and so no phase. Label the phases from 1."
        )
    labels = work.scratch.stack("labels", work.shape, np.uint8)
    taking = _take_labels(work, values, known, _mask_of(work, settings), labels)
    sample = yield from stages.run("labels", taking, 0.25)
    limits = np.stack([known, known], axis=1).astype(np.float64)
    return Found(labels, limits, sample, Exterior("keep", settings.ball_radius))


def _collect(values: GreyValues, name: str) -> Pass[Int64s]:
    """Return the distinct labels above 0, in ascending order."""
    known = np.zeros(0, np.int64)
    for (_, last), part in zip(values.slabs, values.in_slabs(), strict=True):
        if (lowest := int(part.min())) < 0:
            raise InputError(
                f"{name} holds the label {lowest}; labels of phases must be 1 and above, with 0 "
                "outside the sample. Renumber the labels."
            )
        # values up to 65,535 are counted without sorting
        if int(part.max()) < 1 << 16:
            new = np.flatnonzero(np.bincount(part.reshape(-1)))
        else:
            new = np.unique(part).astype(np.int64)
        known = np.union1d(known, new)
        yield last / values.slabs.depth
    return known[known > 0]


def _take_labels(
    work: Work, values: GreyValues, known: Int64s, inside: Inside | None, labels: Stack
) -> Pass[int]:
    """Write the rank of each label; returns the number of sample voxels."""
    count = 0
    for (first, last), part in zip(work.slabs, values.in_slabs(), strict=True):
        room = labels.room(first, last)
        room[...] = 0
        for rank, label in enumerate(known.tolist(), 1):
            room[part == label] = rank
        if inside is not None:
            room[~inside(first, last)] = 0
        labels.write(first, room)
        count += int(np.count_nonzero(room))
        yield last / work.slabs.depth
    return count


def find_strokes(
    work: Work,
    settings: PhaseSettings,
    stages: Stages,
    classifier: Classifier | None,
    network: Network | None,
    classify: Callable[[Classifier], Rows] | None = None,
) -> Job:
    """Separate phases by a classifier, trained on strokes or stored; returns `Found`.

    `classifier`: the stored one; None to train one. `network`: finds further features. `classify`:
    as for `hushpore.pores.phases.job.measure_phases`.
    """
    volume = work.volume
    values = GreyValues(volume, work.slabs, work.timer)
    # refuses values that are not finite
    _, histogram = yield from stages.run("reading", survey(values, True, work.threads), 0.1)
    known = None
    if classifier is None:
        strokes = volume.replace(volume.auxiliary_of(settings, "strokes"))
        training = _train(work, values, GreyValues(strokes, work.slabs), settings, network)
        known, classifier = yield from stages.run("training", training, 0.12)
    labels, count = work.scratch.stack("labels", work.shape, np.uint8), len(classifier.names)
    kept = None
    if settings.probabilities:
        kept = np.zeros((count, *work.shape), np.uint8)
    rows = classify(classifier) if classify else _rows(work, values, classifier, network, kept)
    classifying = _classify(work, rows, _mask_of(work, settings), labels)
    sample, doubtful = yield from stages.run("classifying", classifying, 0.3)
    assert histogram is not None  # asked for
    separate: tuple[float, ...] = ()
    with suppress(InputError):  # fewer grey values than phases
        separate = find_thresholds(histogram, count)
    numbers = np.arange(1.0, count + 1) if known is None else known.astype(np.float64)
    return Found(
        labels,
        np.stack([numbers, numbers], axis=1),
        sample,
        Exterior("keep", settings.ball_radius),
        classifier=classifier,
        probabilities=kept,
        separate=separate if are_separate(histogram, separate) else (),
        doubtful=doubtful,
    )


def _train(
    work: Work,
    values: GreyValues,
    strokes: GreyValues,
    settings: PhaseSettings,
    network: Network | None,
) -> Pass[tuple[Int64s, Classifier]]:
    """Train a classifier; returns the values of the strokes too, in the order of the phases."""
    by_slice = settings.by_slice or work.volume.n_spatial == 2
    extent = Extent.of(work.spacing, by_slice)
    textures = 0 if network is None else network.count
    parts: list[Any] = [(np.zeros((0, COUNT + textures), np.float32), *np.zeros((2, 0), np.int64))]
    reads = values.read, strokes.read
    for share, *part in painted_features(*reads, work.shape, extent, work.threads, network):
        parts.append(part)
        yield 0.9 * share
    # in an order that does not depend on the boxes
    features, labels, index = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(index)
    features, labels = features[order], labels[order]
    known, classes = classes_of(labels)
    forest = Forest.grown(features, classes, work.threads)
    return known, Classifier(
        forest,
        settings.named(known.size),
        by_slice,
        tuple(map(float, work.spacing)),
        tuple(np.bincount(classes).tolist()),
        None if network is None else network.stored,
        textures,
    )


def _rows(
    work: Work,
    values: GreyValues,
    classifier: Classifier,
    network: Network | None,
    kept: UInt8s | None,
) -> Rows:
    """Classify row after row of boxes on this computer."""
    first, how = 0, (work.threads, network, kept)
    while first < work.shape[0]:
        found = yield from classifier.phases_of(values.read, work.shape, first, *how)
        yield first, found
        first += len(found)


def _classify(
    work: Work, rows: Rows, inside: Inside | None, labels: Stack
) -> Pass[tuple[int, int]]:
    """Write the phase of each voxel; returns the numbers of sample voxels and doubtful ones."""
    count = doubtful = 0
    for row in rows:
        if not isinstance(row, tuple):
            yield row
            continue
        first, found = row
        last = first + len(found)
        if inside is not None:
            found[~inside(first, last)] = 0
        doubtful += int(np.count_nonzero(found > DOUBT))
        room = labels.room(first, last)
        np.remainder(found, DOUBT, out=room)
        labels.write(first, room)
        count += int(np.count_nonzero(room))
    return count, doubtful
