"""Denoising tasks of workers: statistics of blocks, training, prediction, pyramid, residual check.

Each task opens its files by path, which must be the same on every machine, and writes files
atomically. A block is finished once its report exists, which is written after the block.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.volume import require_range
from hushpore.cluster.blocks import whole
from hushpore.denoising import fill_value
from hushpore.denoising.inference.blocks import BlockPredictor
from hushpore.denoising.inference.volumes import halve_core
from hushpore.denoising.job import train
from hushpore.denoising.noise import MARGIN, examine_residual, restore_detail
from hushpore.denoising.plane_reader import PlaneReader, Scale
from hushpore.denoising.rings import SliceProfiles, centre_of, find_profiles, subtract_rings
from hushpore.denoising.training.step import choose_precision
from hushpore.device.backend import choose_backend, cpu_threads
from hushpore.device.memory import is_out_of_memory
from hushpore.device.timing import StageTimer
from hushpore.io.guards import trusting
from hushpore.io.zarr import ZarrImage
from hushpore.io.zarr_reader import open_zarr
from hushpore.runs.scan_recipe import ScanRecipe, attach_files
from hushpore.scan.noise import estimate_noise
from hushpore.scan.sample import find_sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hushpore.base.arrays import Array
    from hushpore.base.events import Job, Timing
    from hushpore.base.volume import Volume
    from hushpore.denoising.noise import Residual
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.denoising.trained_model import Model
    from hushpore.device.backend import Backend
    from hushpore.io.zarr import Block
    from hushpore.scan.noise_model import NoiseDiagnosis


@dataclass(frozen=True)
class Paths:
    """Paths of the job, the same on every machine."""

    scan: Volume  # the noisy scan, opened from OME-Zarr
    # folder of the result, and folder for temporary files
    content: str
    scratch: str
    # name of the repeat scan in the settings, and the scan; None: no repeat scan
    pair: tuple[str, Volume] | None = None
    # files of the rings to subtract from each scan; see `keep_rings`
    rings: tuple[str, ...] = ()
    # whether extremely compressed files named in the settings are read
    trust: bool = False
    # fill value of the scan, if it has one; see `hushpore.denoising.fill_value`
    padding: float | None = None
    # OME-Zarr folder of predictions before detail restoration; empty: the result itself
    unrestored: str = ""

    def volume(self) -> Volume:
        """Return the noisy volume with the repeat scan attached, both lazy."""
        scans = [self.scan, *([] if self.pair is None else [self.pair[1]])]
        for number, file in enumerate(self.rings):
            with whole(Path(file)), np.load(file) as kept:
                parts = [(kept["profiles"], kept["moments"])]
                scans[number] = subtract_rings(scans[number], tuple(kept["centre"].tolist()), parts)
        if self.pair is None:
            return scans[0]
        return dataclasses.replace(scans[0], auxiliary={self.pair[0]: scans[1]})

    def attach(self, volume: Volume, settings: DenoiseSettings) -> Volume:
        """Return a volume with the files named in the settings attached."""
        return attach_files(volume, settings, ScanRecipe("", trust=self.trust))

    def scans(self) -> list[Volume]:
        """Open the noisy volume and the repeat scan, if there is one."""
        volume = self.volume()
        return [volume, *([] if self.pair is None else [volume.auxiliary[self.pair[0]]])]

    def second(self, volume: Volume) -> Volume | None:
        """Return the repeat scan attached to a volume."""
        return None if self.pair is None else volume.auxiliary[self.pair[0]]

    def image(self) -> ZarrImage:
        """Open the result."""
        return ZarrImage.open(self.content)

    def predicted(self) -> ZarrImage:
        """Open the image that predictions are written to."""
        return ZarrImage.open(self.unrestored or self.content)

    def done(self, block: Block) -> Path:
        """Return the path of the report of a block, which exists once the block is written."""
        return Path(self.scratch) / f"block-{'-'.join(map(str, start_of(block)))}.json"


@dataclass(frozen=True)
class PredictionOptions:
    """Settings of the prediction, the same on every worker."""

    device: str  # device name from the user; each worker uses its own device
    dtype: torch.dtype  # precision of the network
    core: tuple[int, ...]  # largest core of a tile
    augment: bool  # test-time augmentation: average over mirrored and rotated copies


def arithmetic(device: str, precision: str, dimensions: int) -> tuple[str, torch.dtype]:
    """Return the name of a worker's device and the precision to use on it."""
    backend = choose_backend(device)
    return backend.name, choose_precision(precision, backend, dimensions)


def ring_centre(paths: Paths, number: int) -> tuple[tuple[float, float], Timing]:
    """Find the centre of the rings of a scan (0: the scan, 1: the repeat scan)."""
    timer = StageTimer()
    with timer.stage("ring correction"):
        found = centre_of(paths.scans()[number])
    return found, timer.timing()


def slice_rings(
    paths: Paths, which: tuple[int, tuple[float, float], int, int]
) -> tuple[tuple[int, SliceProfiles], Timing]:
    """Find the rings in a range of slices of a scan; returns the first slice and the rings."""
    number, centre, first, last = which
    timer = StageTimer()
    with timer.stage("ring correction"):
        found = find_profiles(paths.scans()[number], centre, first, last)
    return (first, found), timer.timing()


def keep_rings(
    file: Path, centre: tuple[float, float], found: Sequence[tuple[int, SliceProfiles]]
) -> None:
    """Write the rings of all slices of a scan to a file, atomically."""
    profiles, moments = zip(*(each for _, each in sorted(found, key=itemgetter(0))), strict=True)
    with new_file(file, overwrite=True) as part, part.open("wb") as opened:
        np.savez(
            opened, profiles=np.concatenate(profiles), moments=np.sum(moments, 0), centre=centre
        )


@dataclass(frozen=True)
class Measured:
    """The grey values of one block."""

    block: tuple[int, ...]  # start of the block
    # channel, and number of finite values
    channel: int
    count: int
    # mean, and sum of squared differences from it
    mean: float
    squares: float
    # minimum and maximum
    low: float
    high: float
    bad: int  # number of NaN or infinite values


def measure_block(paths: Paths, block: Block) -> tuple[list[Measured], Timing]:
    """Measure the grey values of a block, in both scans if there are two."""
    timer = StageTimer()
    volume = paths.volume()
    scans = [each for each in (volume, paths.second(volume)) if each is not None]
    return [_measured(each, block, timer) for each in scans], timer.timing()


def _measured(volume: Volume, block: Block, timer: StageTimer) -> Measured:
    with timer.stage("reading") as run:
        values = np.asarray(volume.data[block])
        run.nbytes = values.nbytes
    with timer.stage("measuring"):
        axis = volume.axes.find("c")
        channel = 0 if axis < 0 else block[axis]
        assert isinstance(channel, int)
        bad = 0
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            bad = values.size - int(finite.sum())
            values = values[finite] if bad else values
        if not values.size:
            return Measured(start_of(block), channel, 0, 0.0, 0.0, np.inf, -np.inf, bad)
        mean = float(values.mean(dtype=np.float64))
        squares = 0.0
        for part in values.reshape(len(values), -1):
            centred = np.subtract(part, mean, dtype=np.float64)
            squares += float(np.vdot(centred, centred))
        low, high = float(values.min()), float(values.max())
    return Measured(start_of(block), channel, values.size, mean, squares, low, high, bad)


def scale_of(found: Sequence[Measured], volume: Volume) -> Scale:
    """Return the grey scale of a volume from measurements of all blocks.

    Raises InputError if there are NaN or infinite values, if a channel is constant, or if float32
    is too coarse for its values.
    """
    # sums must not depend on the order in which tasks finish
    found = sorted(found, key=lambda each: each.block)
    low, high = min(each.low for each in found), max(each.high for each in found)
    require_range(volume, low, high, sum(each.bad for each in found))
    channels = range(max(each.channel for each in found) + 1)
    moments = [_joined(each for each in found if each.channel == channel) for channel in channels]
    for channel, (_, deviation) in enumerate(moments):
        if not deviation:
            raise InputError(
                f"Channel {channel} of {volume.name} is constant. Exclude it from the channels."
            )
    mean, deviations = (tuple(each) for each in zip(*moments, strict=True))
    return Scale(mean, deviations).require_steps(volume)


def _joined(parts: Iterable[Measured]) -> tuple[float, float]:
    """Combine means and standard deviations of parts (Chan et al. 1979)."""
    count, mean, squares = 0, 0.0, 0.0
    for part in parts:
        both = count + part.count
        if both:
            shift = part.mean - mean
            squares += part.squares + shift**2 * count * part.count / both
            mean, count = mean + shift * part.count / both, both
    return mean, math.sqrt(squares / count)


def learn_on_worker(paths: Paths, settings: DenoiseSettings, device: str, scale: Scale) -> Job:
    """Train on blocks from the whole volume, with all cores of this machine."""
    # tasks normally use one thread, but no other task runs during training
    with _threads(cpu_threads()):
        volume = paths.attach(paths.volume(), settings)
        return (yield from train(volume, settings, choose_backend(device), scale))


def denoise_block(
    paths: Paths, options: PredictionOptions, model: Model, block: Block
) -> tuple[None, Timing]:
    """Predict a block and write it, then its report."""
    timer, backend = StageTimer(), choose_backend(options.device)
    timer.run_on(backend.clock())
    # one thread: more threads would round differently
    with _threads(1):
        denoised, noisy = _predicted(paths, options, model, block, backend, timer)
    if not paths.unrestored:
        _put_back(paths, block, denoised)
    with timer.stage("writing", nbytes=denoised.nbytes):
        # after a cancel the folder is gone and nothing may be written
        if Path(paths.scratch).is_dir():
            paths.predicted().levels[0][block] = denoised
            if not paths.unrestored:
                _tell(paths.done(block), noisy, denoised)
    return None, timer.timing()


def restore_block(paths: Paths, noise: NoiseDiagnosis, block: Block) -> tuple[None, Timing]:
    """Restore the detail of a block and write it, then its report."""
    timer, volume = StageTimer(), paths.volume()
    around, own = _around(block, MARGIN, volume.shape)
    with timer.stage("reading") as run:
        noisy = np.asarray(volume.data[around])
        denoised = np.asarray(paths.predicted().levels[0][around])
        run.nbytes = noisy.nbytes + denoised.nbytes
    with timer.stage("detail restoration"):
        # slice by slice, since restoration needs several times the memory of its input
        for index in np.ndindex(denoised.shape[:-2]):
            values = noisy[index].astype(np.float32)
            denoised[index] = restore_detail(values, denoised[index], noise)
    restored = denoised[own]
    _put_back(paths, block, restored)
    with timer.stage("writing", nbytes=restored.nbytes):
        if Path(paths.scratch).is_dir():
            paths.image().levels[0][block] = restored
            _tell(paths.done(block), [noisy[own]], restored)
    return None, timer.timing()


def _around(
    block: Block, margin: int, shape: tuple[int, ...]
) -> tuple[tuple[int | slice, ...], tuple[slice, ...]]:
    """Return a block with a margin in y and x, and the position of the block inside that."""
    around: list[int | slice] = []
    inside: list[slice] = []
    margins = (0,) * (len(block) - 2) + (margin,) * 2
    for each, more, length in zip(block, margins, shape, strict=True):
        if isinstance(each, int):
            around.append(each)
            continue
        first = max(each.start - more, 0)
        around.append(slice(first, min(each.stop + more, length)))
        inside.append(slice(each.start - first, each.stop - first))
    return tuple(around), tuple(inside)


def _put_back(paths: Paths, block: Block, denoised: Array) -> None:
    """Restore the padding around the scan in place."""
    if paths.padding is None:
        return
    # without ring correction, which would change the fill value
    volume = dataclasses.replace(paths, rings=(), pair=None).volume()
    around, own = _around(block, fill_value.MARGIN, volume.shape)
    is_fill_value = fill_value.fill_value_of(np.asarray(volume.data[around]), paths.padding)
    denoised[is_fill_value[own]] = paths.padding


def _predicted(
    paths: Paths,
    options: PredictionOptions,
    model: Model,
    block: Block,
    backend: Backend,
    timer: StageTimer,
) -> tuple[Array, list[Array]]:
    """Predict a block, in smaller tiles if memory runs out; returns result and input."""
    model.network.to(backend.device)
    core: tuple[int, ...] | None = options.core
    volume = paths.volume()
    while core is not None:
        predictor = BlockPredictor(
            model, volume, backend, timer, core, options.dtype, options.augment,
            paths.second(volume),
        )  # fmt: skip
        try:
            return predictor.predict(block)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        core = halve_core(core, max(model.network.architecture.multiples))
    raise MemoryLimitError(
        "The smallest tile does not fit into the memory of a worker. Give each worker more memory."
    )


def reduce_block(paths: Paths, where: tuple[int, Block]) -> tuple[None, Timing]:
    """Compute a block of a coarser pyramid level."""
    timer, (level, block) = StageTimer(), where
    with timer.stage("coarser levels"):
        if Path(paths.scratch).is_dir():
            paths.image().reduce(level, block)
    return None, timer.timing()


def examine(
    paths: Paths, settings: DenoiseSettings, context: int, moments: tuple[float, float]
) -> tuple[Residual, Timing]:
    """Examine the residual, noisy minus denoised."""
    timer = StageTimer()
    with timer.stage("examination"):
        with trusting(paths.trust):
            denoised = open_zarr(Path(paths.content))[0].data
        volume = paths.volume()
        sample = find_sample(volume) if settings.sample_focus else None
        # estimated again as for the training, which runs as another task
        is_alone = settings.dimensions == 2 and not context
        noise = estimate_noise(volume, settings.seed, slicewise=is_alone, sample=sample)
        source = PlaneReader(volume, settings.dimensions)
        found = examine_residual(source, denoised, noise, settings.seed, moments, sample)
    return found, timer.timing()


def start_of(block: Block) -> tuple[int, ...]:
    """Return the first voxel of a block."""
    return tuple(each if isinstance(each, int) else each.start for each in block)


def _tell(file: Path, scans: list[Array], denoised: Any) -> None:
    """Write the report of a finished block: moments of the residual, and digests of the input."""
    noisy = scans[0]
    total = square = 0.0
    for before, after in zip(noisy, denoised, strict=True):
        difference = before.astype(np.float64) - after
        total += float(difference.sum())
        square += float(np.vdot(difference, difference))
    known = {
        "count": noisy.size,
        "sum": total,
        "square": square,
        # one digest for each scan
        "blake2b": [
            hashlib.blake2b(np.ascontiguousarray(each).data, digest_size=16).hexdigest()
            for each in scans
        ],
    }
    with new_file(file, overwrite=True) as part:
        part.write_text(json.dumps(known), encoding="utf-8")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set the number of threads of PyTorch, in a process that runs one task at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
