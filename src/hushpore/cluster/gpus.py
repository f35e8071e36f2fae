"""The GPUs of workers, as a segmentation uses them: each worker has its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hushpore.base.errors import DeviceError, HushporeError
from hushpore.cluster.task_runner import loss_explained
from hushpore.device.backend import choose_backend
from hushpore.device.memory import is_out_of_memory
from hushpore.pores.gpu.engine import Gpu
from hushpore.pores.gpu.opening import fitting_slices, room_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
def _opened(device: str) -> Iterator[Gpu]:
    """Open the GPU of this worker, for as long as a ``with`` block lasts."""
    backend = choose_backend(device)
    try:
        yield Gpu.of(backend)
    finally:
        backend.release()


def on_gpu_or_cpu(device: str, work: Callable[[Gpu | None], dict[str, Any]]) -> dict[str, Any]:
    """Do a task on the GPU of this worker, and where its memory runs out on the CPU.

    `device`: empty where there is no GPU. `work`: given a GPU, or None for the CPU.
    Returns what it reports; with ``ran_out`` where memory did.
    """
    if not device:
        return work(None)
    try:
        with _opened(device) as gpu:
            return work(gpu)
    except HushporeError:
        # too little memory of the host, which the CPU has not more of
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return {**work(None), "ran_out": 1}


def gpus_of(client: Client, device: str, plane: int) -> Gpus:
    """Return the GPUs of all workers, where they are asked for and can be used.

    `device`: as a user names it; only a GPU that is asked for is used. `plane`: voxels of a slice.
    Raises DeviceError if a worker has no GPU.
    """
    if not device.startswith("cuda"):
        return Gpus()
    with loss_explained():
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
