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
    """The GPUs of all workers, as used by a segmentation."""

    device: str = ""  # device name, the same on each worker; empty: CPU only
    names: tuple[str, ...] = ()  # names of the GPUs, one per worker
    slices: int | None = None  # slices that fit into the smallest GPU
    problem: str = ""  # why the CPU is used although a GPU was requested


class _Found(NamedTuple):
    name: str
    problem: str
    room: int  # bytes


@contextmanager
def _opened(device: str) -> Iterator[Gpu]:
    """Open the GPU of this worker for the duration of a ``with`` block."""
    backend = choose_backend(device)
    try:
        yield Gpu.of(backend)
    finally:
        backend.release()


def on_gpu_or_cpu(device: str, work: Callable[[Gpu | None], dict[str, Any]]) -> dict[str, Any]:
    """Run a task on the GPU of this worker; on the CPU if GPU memory runs out.

    `device`: name of the GPU; empty: CPU. `work`: the task, called with the GPU or None (CPU).
    Returns its report, with ``ran_out`` if GPU memory ran out.
    """
    if not device:
        return work(None)
    try:
        with _opened(device) as gpu:
            return work(gpu)
    except HushporeError:
        # host memory ran out, so the CPU would fail too
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    return {**work(None), "ran_out": 1}


def gpus_of(client: Client, device: str, plane: int) -> Gpus:
    """Return the GPUs of all workers, if they were requested and can be used.

    `device`: device name from the user; GPUs are used only on request. `plane`: voxels per slice.
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
    """Return name and free memory of the GPU of this worker, or why it cannot be used."""
    backend = choose_backend(device)
    try:
        Gpu.of(backend)
        return _Found(backend.name, "", room_on(backend))
    except DeviceError as error:
        return _Found(backend.name, str(error), 0)
    finally:
        backend.release()
