"""Whether a GPU is worth it for pores: a slab is segmented both ways, and the results compared.

What came out is kept for the next job on the same devices, with the same versions.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore._version import __version__
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

#: Voxels that a CPU is through with in some seconds: of fewer there is nothing to win.
WORTH = 1 << 25

#: Voxels of the slab that is timed, and of the one before it, for which kernels are compiled.
SLAB, WARM_UP = 1 << 25, 1 << 20

#: Stages that take the same on both: what is left of a job on a GPU is done by the host.
_ON_HOST = ("sample", "preparing", "labels")


class Rates(NamedTuple):
    """What the same work has taken on a GPU and on the CPU."""

    # voxels a second
    gpu: float
    cpu: float
    is_same: bool  # whether both gave the same, bit for bit

    @classmethod
    def of(cls, kept: Mapping[str, float]) -> Rates | None:
        """Return the stored timings, or None if there are none."""
        if not {"gpu", "cpu", "same"} <= set(kept) or not kept["cpu"]:
            return None
        return cls(kept["gpu"], kept["cpu"], bool(kept["same"]))

    def to_dict(self) -> dict[str, float]:
        """Return the rates as a dictionary of JSON values."""
        return {"gpu": self.gpu, "cpu": self.cpu, "same": float(self.is_same)}


def choose_faster(
    volume: Volume, settings: PoreSettings, gpu: Backend, segment: Segment, notes: list[Note]
) -> Generator[Event, None, Backend]:
    """Return the GPU if it gives what the CPU gives, and sooner; else the CPU. It says why.

    `notes`: what was said; told what is.
    Yields: Progress, and a Note where the two do not agree.
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
            # whatever a driver or a compiler raises: the CPU can do it
            return Backend(reason=f"the GPU could not be tried: {first_line(error)}")
        SPEEDS.put(key, rates.to_dict())
    ratio = f"{rates.gpu / rates.cpu:.3g} times as fast as {Backend().name}{before}"
    if not rates.is_same:
        text = (
            f"{gpu.name} gave other labels than the CPU in a slab that was segmented by both: "
            "pores are segmented on the CPU. Please report this with the output of "
            "'hushpore info --device'."
        )
        notes.append(Note(text, warning=True))
        yield notes[-1]
        return Backend(reason=f"{gpu.name} gave other labels{before}")
    if rates.gpu < WINS * rates.cpu:
        return Backend(reason=f"{gpu.name} is only {ratio}")
    return dataclasses.replace(gpu, reason=f"{ratio}, with the same labels", on_trial=False)


def problem_of_shape(shape: Sequence[int]) -> str:
    """Say why a GPU is not tried on a volume of a shape; empty where it is."""
    voxels = math.prod(shape)
    if len(shape) < 3 or voxels < WORTH:
        return f"{voxels / 1e6:.3g} million voxels are too few to win by a GPU"
    return ""


def devices_of(gpu: Backend) -> str:
    """Return what rates depend on: both devices, the driver, and versions."""
    try:
        import cupy

        driver = f"driver {cupy.cuda.runtime.driverGetVersion()}, CuPy {cupy.__version__}"
    except Exception as error:
        # what is missing, the trial says
        driver = type(error).__name__
    return f"{gpu.name}, {driver}; {Backend().name}; hushpore {__version__}"


def _measure(
    volume: Volume, settings: PoreSettings, gpu: Backend, segment: Segment
) -> Generator[Event, None, Rates]:
    slab = _slab_of(volume, SLAB)
    # what lies beside the volume is not of the slab's shape
    settings = dataclasses.replace(settings, sample_mask="", markers="", exterior="keep")

    def segmented(part: Volume, device: Backend) -> Generator[Event, None, Any]:
        # each releases what it has used
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
    """Return what those stages of a job took that a GPU takes over, and copies to it and back."""
    taken: Mapping[str, float] = found.timings
    return sum(seconds for stage, seconds in taken.items() if stage not in _ON_HOST)


def _slab_of(volume: Volume, voxels: int) -> Volume:
    """Return some slices in the middle, of about so many voxels."""
    depth, plane = volume.shape[0], math.prod(volume.shape[1:])
    thickness = min(depth, max(1, voxels // plane))
    first = (depth - thickness) // 2
    rows = slice(first, first + thickness)
    data: Any = volume.data
    part: Scaled | np.ndarray[Any, Any] = data.part(rows) if hasattr(data, "part") else data[rows]
    return volume.replace(part, auxiliary={})


def _at_work(event: Event) -> Progress:
    """Return that something happens, which is all that is told of a job."""
    return Progress("comparing devices", 0, 0, "", 0.0)
