"""Benchmark of GPU against CPU for pores: both segment a slab, and the results are compared.

The rates are stored for later jobs on the same devices and versions.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore import __version__
from hushpore.base.config import SPEEDS
from hushpore.base.errors import HushporeError, first_line
from hushpore.base.events import Note, Progress, mapped
from hushpore.device.backend import Backend
from hushpore.device.switches import WINS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from hushpore.base.events import Event, Job
    from hushpore.base.rescaled import Scaled
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

    #: Segments a volume somewhere, as `hushpore.pores.job.segment_pores` does.
    Segment = Callable[[Volume, PoreSettings, Backend], Job]

#: Minimum number of voxels for a benchmark: a CPU segments fewer in a few seconds.
WORTH = 1 << 25

#: Voxels of the timed slab, and of the slab before it, which compiles the kernels.
SLAB, WARM_UP = 1 << 25, 1 << 20

#: Stages that run on the host for both.
_ON_HOST = ("sample", "preparing", "labels")


class Rates(NamedTuple):
    """Measured speed of GPU and CPU for the same work."""

    # voxels per second
    gpu: float
    cpu: float
    is_same: bool  # whether the results were bit-identical

    @classmethod
    def of(cls, kept: Mapping[str, float]) -> Rates | None:
        """Return the stored rates; None if there are none."""
        if not {"gpu", "cpu", "same"} <= set(kept) or not kept["cpu"]:
            return None
        return cls(kept["gpu"], kept["cpu"], bool(kept["same"]))

    def to_dict(self) -> dict[str, float]:
        """Return the rates for storage."""
        return {"gpu": self.gpu, "cpu": self.cpu, "same": float(self.is_same)}


def choose_faster(
    volume: Volume, settings: PoreSettings, gpu: Backend, segment: Segment, notes: list[Note]
) -> Generator[Event, None, Backend]:
    """Return the GPU if it is faster than the CPU with identical results, else the CPU.

    The returned backend holds the reason. `notes`: new notes are appended.
    Yields: Progress, and a Note if the results differ.
    """
    problem = problem_of_shape(volume.shape)
    if problem:
        return Backend(reason=problem)
    key = devices_of(gpu)
    rates, before = Rates.of(SPEEDS.numbers(key)), ", as measured before"
    if rates is None:
        before = ""
        try:
            rates = yield from _measure(volume, settings, gpu, segment)
        except Exception as error:
            # drivers and compilers raise various exceptions; the CPU is used then
            return Backend(reason=f"the GPU could not be tried: {first_line(error)}")
        SPEEDS.put(key, rates.to_dict())
    ratio = f"{rates.gpu / rates.cpu:.3g} times as fast as {Backend().name}{before}"
    if not rates.is_same:
        text = (
            f"{gpu.name} gave other labels than the CPU for the same slab, so pores are segmented "
            "on the CPU. Please report this with the output of 'hushpore info --device'."
        )
        notes.append(Note(text, warning=True))
        yield notes[-1]
        return Backend(reason=f"{gpu.name} gave other labels{before}")
    if rates.gpu < WINS * rates.cpu:
        return Backend(reason=f"{gpu.name} is only {ratio}")
    return dataclasses.replace(gpu, reason=f"{ratio}, with the same labels", on_trial=False)


def problem_of_shape(shape: Sequence[int]) -> str:
    """Return why a GPU is not tried for a volume of this shape; empty if it is."""
    voxels = math.prod(shape)
    if len(shape) < 3 or voxels < WORTH:
        return f"{voxels / 1e6:.3g} million voxels are too few to benefit from a GPU"
    return ""


def devices_of(gpu: Backend) -> str:
    """Return the key of stored rates: both devices, driver and versions."""
    try:
        import cupy

        driver = f"driver {cupy.cuda.runtime.driverGetVersion()}, CuPy {cupy.__version__}"
    except Exception as error:
        # the benchmark reports what is missing
        driver = type(error).__name__
    return f"{gpu.name}, {driver}; {Backend().name}; hushpore {__version__}"


def _measure(
    volume: Volume, settings: PoreSettings, gpu: Backend, segment: Segment
) -> Generator[Event, None, Rates]:
    slab = _slab_of(volume, SLAB)
    # masks and markers do not have the shape of the slab
    settings = dataclasses.replace(settings, sample_mask="", markers="", exterior="keep")

    def segmented(part: Volume, device: Backend) -> Generator[Event, None, Any]:
        # each run releases its own memory
        backend = dataclasses.replace(device, on_trial=False)
        return mapped(segment(part, settings, backend), _at_work)

    yield from segmented(_slab_of(volume, WARM_UP), gpu)
    found = yield from segmented(slab, gpu)
    expected = yield from segmented(slab, Backend())
    if not found.provenance["device"].startswith(gpu.name):
        raise HushporeError(str(found.notes[-1]).removesuffix("."))
    is_same = np.array_equal(found.labels, expected.labels) and all(
        getattr(found, table).equals(getattr(expected, table)) for table in ("pores", "throats")
    )
    voxels = math.prod(slab.shape)
    return Rates(voxels / seconds_of(found), voxels / seconds_of(expected), is_same)


def seconds_of(found: Any) -> float:
    """Return the time of the stages that a GPU runs, including copies, in seconds."""
    taken: Mapping[str, float] = found.timings
    return sum(seconds for stage, seconds in taken.items() if stage not in _ON_HOST)


def _slab_of(volume: Volume, voxels: int) -> Volume:
    """Return slices in the middle with about `voxels` voxels."""
    depth, plane = volume.shape[0], math.prod(volume.shape[1:])
    thickness = min(depth, max(1, voxels // plane))
    first = (depth - thickness) // 2
    rows = slice(first, first + thickness)
    data: Any = volume.data
    part: Scaled | np.ndarray[Any, Any] = data.part(rows) if hasattr(data, "part") else data[rows]
    return volume.replace(part, auxiliary={})


def _at_work(event: Event) -> Progress:
    """Return progress of an unknown amount for any event of the inner job."""
    return Progress("comparing devices", 0, 0, "", 0.0)
