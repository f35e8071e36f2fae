"""Phases from strokes on a cluster: workers classify rows of boxes, and the client does the rest.

Classifying takes nearly all of the time. The client reads the grey values once, trains the
classifier, and measures the labels, in slabs if they do not fit into its memory.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError
from hushpore.base.events import Note, part_of, result_of
from hushpore.base.volume import Volume
from hushpore.cluster import blocks
from hushpore.cluster.connection import connect
from hushpore.cluster.setup import check_folders
from hushpore.cluster.task_runner import in_words, spread
from hushpore.device.backend import Backend
from hushpore.io.output_target import check_target, require_apart
from hushpore.jobs.phases import measure_phases, open_network
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.phases.classifier import BOX
from hushpore.pores.slabs import Slabs
from hushpore.pores.void.threshold import GreyValues
from hushpore.runs.pipeline import Written
from hushpore.runs.result_folder import write_result
from hushpore.runs.scan_recipe import origin_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from distributed import Client

    from hushpore.base.arrays import UInt8s
    from hushpore.base.events import Job
    from hushpore.pores.phases.classifier import Classifier
    from hushpore.pores.phases.settings import PhaseSettings


def phases_on(
    where: str | Client,
    scan: blocks.Scan,
    path: str | os.PathLike[str],
    settings: PhaseSettings,
    *,
    device: str = "auto",
    series: str | None = None,
    memory: float | None = None,
    overwrite: bool = False,
    trust: bool = False,
) -> Job:
    """Measure phases on a cluster, with the result folder of one computer, bit for bit.

    Parameters, events and errors: as for `hushpore.cluster.segmenting.segment_pores`; `device` is
    ignored. An interrupted run starts again.
    Returns: `Written`.
    Raises InputError too unless phases are found from strokes or by a classifier, and for
    probabilities.
    """
    if not settings.is_classified or settings.probabilities:
        raise InputError(
            "A cluster finds phases from strokes or by a classifier (strokes, classifier), without "
            "probabilities. Thresholds, labels and probabilities need one computer: leave out "
            "--cluster, or choose this computer under Run on."
        )
    target = check_target(path, overwrite)
    scan = blocks.as_source(scan, series, trust)
    require_apart([target], blocks.inputs_of(scan, settings))
    source = blocks.source_of(scan)
    origin = None if source is None else origin_of(source, [settings])
    with (
        TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch,
        connect(where, memory) as client,
    ):
        yield Note(f"Running on {in_words(client)}.")
        image = yield from part_of(blocks.as_zarr(scan, Path(scratch), trust=trust), 0.0, 0.02)
        beside = scan.auxiliary if isinstance(scan, Volume) else {}
        volume = blocks.open_beside(image, beside, settings, Path(scratch), trust=trust)
        check_folders(client, *blocks.folders_of(volume))
        job = measure_phases(volume, settings, Backend(), partial(_rows, client, image))
        result = yield from part_of(job, 0.02, 0.97)
        write_result(target, [result], volume, source=origin, overwrite=overwrite)
    return Written(target, result.headline, result.remarks, result.provenance, result, volume)


def _rows(
    client: Client, volume: Volume, classifier: Classifier
) -> Iterator[float | tuple[int, UInt8s]]:
    """Yield the first slice and the phases of rows of boxes in any order; between, the share."""
    shared = client.scatter(classifier)  # type: ignore[no-untyped-call]
    starts, done = range(0, volume.shape[0] if volume.n_spatial == 3 else 1, BOX[0]), 0
    for row in spread(client, classify_row, starts, volume, shared):
        if row is not None:
            done += 1
            yield row
        yield done / len(starts)


def classify_row(volume: Volume, classifier: Classifier, first: int) -> tuple[int, UInt8s]:
    """Return the first slice and the phases of a row of boxes; a task for a worker."""
    shape = (1,) * (3 - volume.n_spatial) + volume.shape
    values = GreyValues(volume, Slabs(shape[0], BOX[0], on_disk=True))
    stored = classifier.network
    network = None if stored is None else open_network(stored, volume)
    with KernelThreads(1) as threads:
        return first, result_of(classifier.phases_of(values.read, shape, first, threads, network))
