"""The GPUs of workers, as a segmentation uses them: each worker has its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from hushpore.base.errors import DeviceError
from hushpore.cluster.task_runner import loss_in_words
from hushpore.device.backend import choose_backend
from hushpore.device.timing import StageTimer
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.gpu.passes import fitting_slices, room_on
from hushpore.pores.gpu.slabs import GpuSlabs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client


class Gpus(NamedTuple):
    """What workers have for a segmentation."""

    device: str = ""  # as each of them names its own; empty where the CPU does all
    names: tuple[str, ...] = ()  # of the devices, one a worker
    slices: int | None = None  # that the smallest holds
    problem: str = ""  # why the CPU does all, though a GPU was asked for


class _Found(NamedTuple):
    name: str
    problem: str
    room: int  # bytes


@contextmanager
def gpu_slabs(device: str) -> Iterator[GpuSlabs]:
    """Open the GPU of this worker, for as long as a ``with`` block lasts."""
    backend = choose_backend(device)
    try:
        yield GpuSlabs(Gpu.of(backend), StageTimer())
    finally:
        backend.release()


def gpus_of(client: Client, device: str, plane: int) -> Gpus:
    """Return the GPUs of all workers, where they are asked for and can be used.

    `device`: as a user names it; only a GPU that is asked for is used. `plane`: voxels of a slice.
    Raises DeviceError if a worker has no GPU.
    """
    if not device.startswith("cuda"):
        return Gpus()
    with loss_in_words():
        found = [*client.run(_look, device).values()]
    problem = next((each.problem for each in found if each.problem), "")
    slices = min(fitting_slices(each.room, plane) for each in found)
    if not problem and slices < 2:
        problem = "the GPU's memory does not hold the thinnest block"
    if problem:
        return Gpus(problem=f"Pores are segmented on the CPU: {problem}.")
    return Gpus(device, tuple(sorted(each.name for each in found)), slices)


def _look(device: str) -> _Found:
    """Look at the GPU of this worker."""
    backend = choose_backend(device)
    try:
        Gpu.of(backend)
        return _Found(backend.name, "", room_on(backend))
    except DeviceError as error:
        return _Found(backend.name, str(error), 0)
    finally:
        backend.release()
