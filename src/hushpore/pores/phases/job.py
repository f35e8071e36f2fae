"""Phase measurement as a job: thresholds, labels, contacts, thickness."""

from __future__ import annotations

import dataclasses
import math
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.events import Note, Progress
from hushpore.base.formatting import readable_number, readable_percent
from hushpore.base.provenance import make_provenance
from hushpore.base.volume import SPATIAL_AXES, Volume, how_to_choose, require_grey
from hushpore.device.backend import Backend
from hushpore.pores.advice import warnings_of
from hushpore.pores.job import prepare, warm_up_kind
from hushpore.pores.numbering import outside_totals
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.phases.classifier import (
    BOX,
    BYTES_OF_BOX,
    CLASSIFIER,
    DOUBTFUL,
    load_classifier,
)
from hushpore.pores.phases.labelling import find_labels, find_phases, find_strokes
from hushpore.pores.phases.measures import (
    PhaseSums,
    Regions,
    contact_columns,
    phase_columns,
    rows_of,
)
from hushpore.pores.phases.result import Phases
from hushpore.pores.phases.settings import MOST
from hushpore.pores.pipeline import Stages
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import find_local_thickness
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.transport.job import transport_of_job
from hushpore.pores.void.components import AIR, FILLED_IN, OPEN, SOLID
from hushpore.pores.watershed.graph import Tables
from hushpore.pores.work import AT_A_TIME, LEAST_SLICES, Work, plan_slabs, spacing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from hushpore.base.arrays import Float32s, Float64s, Int64s, UInt8s
    from hushpore.base.events import Event, Job
    from hushpore.pores.engine import Pass
    from hushpore.pores.phases.classifier import Classifier
    from hushpore.pores.phases.features import Network
    from hushpore.pores.phases.labelling import Found, Rows
    from hushpore.pores.phases.measures import FoundRegions
    from hushpore.pores.phases.settings import PhaseSettings
    from hushpore.pores.slabs import Stack
    from hushpore.pores.watershed.graph import BasinGraph

    #: Opens a denoiser for a volume: a model file, or what a classifier has stored.
    OpenNetwork = Callable[[str | UInt8s, Volume], Network]

#: Bytes per voxel in use at once besides the input: labels, and void with air, 1 each; for local
#: thickness also one phase 1, its distance map 4, diameters 4, diameters of all phases 4, and
#: working memory 8 (`hushpore.pores.work.BYTES_OF_THICKNESS`).
BYTES_A_VOXEL, BYTES_WITH_THICKNESS = 2, 23

#: Bytes per voxel for regions: one phase 1, its distance map, basins and labels 4 each, and the
#: regions and distances of all phases 4 each.
BYTES_OF_REGIONS = 21

#: Share of doubtful voxels from which on there is a warning.
_MANY_DOUBTFUL = 0.1

_MOST_VOXELS = 2**31 - 1  # limit of int32 indices


class Checked(NamedTuple):
    """What the input of a job asks for."""

    slabs: Slabs  # on disk if memory is too small
    classifier: Classifier | None = None  # the stored one, if it is used
    network: Network | None = None  # finds features, also for a new classifier


def measure_phases(
    volume: Volume,
    settings: PhaseSettings,
    backend: Backend,
    open_network: OpenNetwork,
    classify: Callable[[Classifier], Rows] | None = None,
) -> Job:
    """Separate the phases of a volume, and measure the phases and their contacts.

    `volume`: 2D or 3D grey values of any real dtype; or integer labels, with ``are_labels``.
    `backend`: ignored apart from its timer; the job runs on the CPU. `open_network`: opens a
    denoiser, for ``texture`` and for classifiers that were trained with it. `classify`: yields the
    phases of the volume by a classifier, found elsewhere; by default they are found here.
    Yields: Progress, Timing, Note; after every slab of a stage.
    Returns: `Phases`.
    Raises InputError if the volume has leading axes, is empty, constant or boolean, holds NaN, has
    fewer grey values than phases, or invalid labels; MemoryLimitError if memory is too small for
    slabs on disk, or in one piece for thickness, regions, transport or probabilities.
    """
    slabs, stored, network = check_volume(volume, settings, open_network)
    stages, notes = Stages(volume, backend.timer()), list[Note]()
    depth = stages.slices
    how = PoreSettings(threshold=0.0, exterior=settings.exterior)
    if settings.thickness:
        how = dataclasses.replace(how, local_thickness="void")
    yield from stages.prepare(prepare(warm_up_kind(how)))
    with ExitStack() as at_end:
        scratch = at_end.enter_context(closing(Scratch(slabs.on_disk)))
        threads = at_end.enter_context(KernelThreads())
        work = Work(volume, how, slabs, scratch, threads, stages.timer)
        find = find_labels if settings.are_labels else find_phases
        if settings.is_classified:
            find = partial(find_strokes, classifier=stored, network=network, classify=classify)
        found = yield from find(work, settings, stages)
        if not found.sample:
            raise InputError(
                f"No voxel of {volume.name} is inside the sample, so there is nothing to measure. "
                "Check the sample mask, or keep the surrounding air (exterior='keep')."
            )
        labels, limits, classifier = found.labels, found.limits, found.classifier
        if classifier is None or settings.names:
            names = settings.named(len(limits))
        else:
            names = classifier.names
        graph = yield from stages.run("measuring", _measure(work, labels, len(limits)), 0.4)
        for warning in _warnings(found, names, graph.voxels[1:], settings, volume):
            notes.append(warning)
            yield warning
        diameter, thickness = None, np.full((len(limits), 2), np.nan)
        if settings.thickness:
            diameter, thickness = yield from _find_thickness(work, found, stages)
        regions, of_regions = None, np.full((len(limits), 2), np.nan)
        if settings.regions:
            regions = yield from _find_regions(work, found, settings, stages)
            of_regions = regions.of_phases(len(limits))
        conductivity = (0.0, *settings.conductivity_of(len(limits)))
        transport = yield from transport_of_job(
            labels.array(), conductivity, volume, settings, threads, backend, stages, notes,
            is_all_sample=found.sample == math.prod(volume.shape), until=0.99,
        )  # fmt: skip
    timing = stages.timer.timing()
    yield timing
    sums = PhaseSums(graph, limits, volume, thickness, of_regions)
    columns, contacts = phase_columns(sums, names), contact_columns(sums, names)
    totals = {
        "count": len(limits),
        "thresholds": limits[:-1, 1].tolist() if find is find_phases else None,
        **({} if classifier is None else {"painted": list(classifier.painted)}),
        "sample_voxels": int(sums.voxels.sum()),
        **outside_totals(found.exterior, 1 - found.sample / math.prod(volume.shape)),
        "phases": rows_of(columns),
        "contacts": rows_of(contacts),
        **({} if transport is None else transport.record),
        "unit": volume.unit,
    }
    provenance = make_provenance("phases", volume, settings, backend.description, timing, notes)
    used = {CLASSIFIER: stored, "texture": network if stored is None else None}
    provenance["auxiliary"] |= {
        name: {"name": getattr(settings, name), "blake2b": each.fingerprint}
        for name, each in used.items()
        if each is not None
    }
    probabilities = found.probabilities
    if probabilities is not None:
        probabilities = probabilities.reshape(-1, *volume.shape)
    yield Progress("labels", depth, depth, "slices", 1.0)
    return Phases(
        labels=labels.array().reshape(volume.shape),
        names=names,
        volume=volume,
        timings={name: stage.seconds for name, stage in timing.stages.items()},
        provenance={**provenance, "result": totals},
        notes=tuple(note.message for note in notes),
        thickness=None if diameter is None else diameter.reshape(volume.shape),
        regions=regions,
        transport=transport,
        classifier=classifier,
        probabilities=probabilities,
        strokes=volume.auxiliary_of(settings, "strokes"),
        _phase_columns=columns,
        _contact_columns=contacts,
    )


def check_volume(volume: Volume, settings: PhaseSettings, open_network: OpenNetwork) -> Checked:
    """Check a volume before any of it is read, with the files that the settings name.

    Raises InputError or MemoryLimitError, as `measure_phases`.
    """
    if volume.axes not in SPATIAL_AXES:
        raise InputError(
            f"{volume.name} has axes {volume.axes!r}, but phases are measured in one image at a "
            f"time, 2D or 3D. {how_to_choose(volume)}"
        )
    if 0 in volume.shape:
        raise InputError(f"{volume.name} is empty: its shape is {volume.shape}.")
    if volume.dtype == np.bool_:
        raise InputError(
            f"{volume.name} is a boolean mask: it holds two phases and no grey values. Measure its "
            "pores with 'hushpore pores', or give integer labels, one above 0 for each phase "
            "(are_labels)."
        )
    if settings.are_labels and not settings.is_classified and volume.dtype.kind not in "iu":
        raise InputError(
            f"Labels must be whole numbers, but {volume.name} holds {volume.dtype}. Convert it, or "
            "read its values as grey values (are_labels=False)."
        )
    if settings.is_classified or not settings.are_labels:
        require_grey(volume, ", or read each label as a phase (are_labels=True)")
        settings.named(MOST if settings.is_classified else settings.count)
    stored, network = _files_of(volume, settings, open_network)
    count = math.prod(volume.shape)
    in_place = isinstance(volume.data, np.ndarray)
    a_voxel = BYTES_WITH_THICKNESS if settings.thickness else BYTES_A_VOXEL
    a_voxel += BYTES_OF_REGIONS if settings.regions else 0
    a_voxel += MOST if settings.is_classified and settings.probabilities else 0
    needed = count * (a_voxel + (0 if in_place else volume.dtype.itemsize))
    free = float(Backend().free_memory())
    if settings.memory_budget is not None:
        free = settings.memory_budget * 1e9
    if settings.is_classified and count > BYTES_OF_BOX:
        free -= BYTES_OF_BOX + (0 if network is None else 4 * network.count * math.prod(BOX))
    if needed <= free and count <= _MOST_VOXELS:
        depth = 1 if volume.n_spatial == 2 else volume.shape[0]
        thick = max(LEAST_SLICES, AT_A_TIME // (count // depth))
        return Checked(Slabs(depth, min(thick, depth)), stored, network)
    if a_voxel > BYTES_A_VOXEL or settings.transport != "none":
        raise MemoryLimitError(
            f"Thickness, regions, transport and probabilities need {volume.name} in memory in one "
            f"piece of at most {_MOST_VOXELS:,} voxels, {needed / 1e9:.3g} GB, and "
            f"{max(free, 0) / 1e9:.3g} GB are free. Leave them out, crop the volume or bin it."
        )
    how = settings.of_pores(0.0)
    how = dataclasses.replace(how, memory_budget=max(free / 1e9, 0.001))
    return Checked(plan_slabs(volume, how), stored, network)


def _files_of(
    volume: Volume, settings: PhaseSettings, open_network: OpenNetwork
) -> tuple[Classifier | None, Network | None]:
    """Return the stored classifier that is used, and the opened denoiser."""
    if settings.strokes and settings.texture:
        return None, open_network(settings.texture, volume)
    if settings.strokes or not settings.classifier:
        return None, None
    stored = load_classifier(settings.classifier)
    if volume.n_spatial == 2 and not stored.by_slice:
        raise InputError(
            f"The classifier {settings.classifier} was trained in 3D, and {volume.name} is a "
            "2D image. Train one with by_slice=True."
        )
    network = None if stored.network is None else open_network(stored.network, volume)
    if network is not None and network.count != stored.textures:
        raise InputError(
            f"The classifier {settings.classifier} is damaged: its denoiser finds {network.count} "
            f"features, and its trees need {stored.textures}. Copy the original file again."
        )
    return stored, network


def _measure(work: Work, labels: Stack, count: int) -> Pass[BasinGraph]:
    """Count the voxels and contacts of phases, each treated as one basin."""
    # their peaks are not used
    tables = Tables(work.shape, np.zeros(count, np.int64))
    for first, last in work.slabs:
        part = labels.read(first, last + 1).astype(np.int32)
        tables.add(part, np.ones(part.shape, np.float32), work.threads, first, last)
        yield last / work.slabs.depth
    return tables.graph()


def _find_thickness(
    work: Work, found: Found, stages: Stages
) -> Generator[Event, Any, tuple[Float32s, Float64s]]:
    """Find the local thickness of all phases, and the mean and standard deviation of each."""
    diameter = np.zeros(work.shape, np.float32)
    count = len(found.limits)
    figures = np.full((count, 2), np.nan)
    # distances are measured inside the sample only
    how = dataclasses.replace(work.settings, exterior="remove")
    work = dataclasses.replace(work, settings=how)
    for number in range(1, count + 1):
        with stages.timer.stage("thickness"):
            own = _alone(work, found, number)
        finding = find_local_thickness(work, own, "void")
        until = 0.4 + 0.4 * number / count
        each = yield from stages.run("thickness", finding, until)
        own.close()
        np.maximum(diameter, each.diameter.reshape(work.shape), out=diameter)
        if each.mean is not None:
            figures[number - 1] = each.mean, each.deviation
    return diameter, figures


def _find_regions(
    work: Work, found: Found, settings: PhaseSettings, stages: Stages
) -> Generator[Event, Any, FoundRegions]:
    """Split each phase into regions, and measure them."""
    count = len(found.limits)
    # distances are measured inside the sample only
    overlapping = settings.merge_overlapping
    how = PoreSettings(
        merge_height=settings.merge_height,
        merge_overlapping=overlapping,
        exterior="remove",
        minimum_voxels=1,
    )
    work = dataclasses.replace(work, settings=how)
    regions = Regions(work)
    for number in range(1, count + 1):
        with stages.timer.stage("basins"):
            own = _alone(work, found, number)
        yield from stages.run("basins", regions.add(number, own), 0.8 + 0.15 * number / count)
        own.close()
    return (yield from stages.run("measuring", regions.measure(), 0.98))


def _alone(work: Work, found: Found, number: int) -> Stack:
    """Return a phase as a void with all other phases as its walls.

    The phase continues beyond the faces of the volume, the sample mask and padding. Surrounding air
    is a wall, except for the darkest phase, which it belongs to.
    """
    own = work.scratch.stack("phase", work.shape, np.uint8)
    for first, last in work.slabs:
        labels, room = found.labels.read(first, last), own.room(first, last)
        room[...] = SOLID
        room[labels == number] = OPEN
        room[labels == 0] = FILLED_IN
        if found.air is not None and number > 1:
            room[found.air.read(first, last) == AIR] = SOLID
        own.write(first, room)
    return own


def _warnings(
    found: Found, names: tuple[str, ...], voxels: Int64s, settings: PhaseSettings, volume: Volume
) -> Iterator[Note]:
    """Yield warnings about empty phases and the exterior."""
    for number in np.flatnonzero(voxels == 0):
        if found.classifier is not None:
            yield Note(
                f"{names[number]} is empty: no voxel is classified as it. Paint more of it.",
                True,
                "result",
            )
            continue
        low, high = found.limits[number]
        ends = [f"above {low:g}"] if number else []
        ends += [f"up to {high:g}"] if number + 1 < voxels.size else []
        text = (
            f"{names[number]} is empty: no voxel is {' and '.join(ends)}. Use other thresholds, or "
            "fewer."
        )
        yield Note(text, True, "result")
    if found.problem:
        yield Note(found.problem, True, "result")
    if found.classifier is not None:
        yield from _warnings_of_classifier(found, volume)
    how = settings.of_pores(float(found.limits[0, 1]))
    share = 1 - found.sample / math.prod(volume.shape)
    # grey values of several materials differ anyway
    exterior = found.exterior._replace(drift=0.0, groups=None)
    for warning in warnings_of(volume, how, exterior, share):
        # the remedies are settings of the pore segmentation, or to measure labels
        if not (settings.are_labels and warning.remedy and warning.remedy.job):
            yield dataclasses.replace(warning, remedy=None)


def _warnings_of_classifier(found: Found, volume: Volume) -> Iterator[Note]:
    """Yield notes on another voxel size, thresholds that are enough, and doubtful voxels."""
    assert found.classifier is not None
    spacing, painted_on = spacing_of(volume), found.classifier.spacing
    if not np.allclose(spacing, painted_on, rtol=0.02):
        given, now = (
            " x ".join(f"{edge:.4g}" for edge in edges) for edges in (painted_on, spacing)
        )
        yield Note(
            f"The classifier was trained on voxels of {given}, and those of {volume.name} are "
            f"{now}: structures have other sizes in voxels. Paint strokes on this scan.",
            True,
            "result",
        )
    if found.separate:
        values = ", ".join(readable_number(value, 4) for value in found.separate)
        yield Note(
            f"The grey values of the phases hardly overlap: thresholds at {values} separate them "
            "without strokes.",
            False,
            "result",
        )
    share = found.doubtful / max(found.sample, 1)
    if share > _MANY_DOUBTFUL:
        yield Note(
            f"The phase of {readable_percent(share)} of the voxels is doubtful (probability below "
            f"{readable_percent(DOUBTFUL)}). Add strokes where the map of doubt is bright "
            "(probabilities=True).",
            True,
            "result",
        )
