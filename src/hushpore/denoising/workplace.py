"""State shared by the steps of a denoising job: notes, times, device and images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import Note, Progress, mapped
from hushpore.denoising.images import Images
from hushpore.denoising.inference.volumes import FREE_SHARE, IMAGES_SHARE
from hushpore.denoising.training.step import choose_precision
from hushpore.device.backend import Backend
from hushpore.device.memory import is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    from hushpore.base.events import Event, Subject
    from hushpore.denoising.images import Arrangement
    from hushpore.denoising.plane_reader import PlaneReader, Scale
    from hushpore.denoising.settings import DenoiseSettings
    from hushpore.device.timing import StageTimer

    T = TypeVar("T")

#: Share of the training in the progress of the job.
TRAINING_SHARE = 0.9

#: Progress yielded between short steps, so that the job can be cancelled there.
PREPARING = Progress("preparing", 0, 1, "", 0.0)

#: Bytes per voxel in addition to the scan itself, for the whole volume on the device: normalised,
#: padded, and the result.
_WORKING = 12


class JobLog:
    """The times of a job's stages, and its notes.

    `timer`: of the stages.
    """

    def __init__(self, timer: StageTimer) -> None:
        self.timer = timer
        self.notes: list[Note] = []

    def note(self, message: str, warning: bool = True, subject: Subject = "run") -> Note:
        """Record a note, and return it for the caller to yield."""
        self.notes.append(Note(message, warning, subject))
        return self.notes[-1]

    def keep_notes(self, events: Generator[Event, Any, T]) -> Generator[Event, Any, T]:
        """Pass events on, and record the notes among them."""

        def kept(event: Event) -> Event:
            if isinstance(event, Note):
                self.notes.append(event)
            return event

        return (yield from mapped(events, kept))

    def run_stage(
        self, stage: str, work: Generator[float, None, T], nbytes: int = 0, fraction: float = 0.0
    ) -> Generator[Progress, Any, T]:
        """Run work that yields its completed share as a stage, and yield its progress."""

        def progress(share: float) -> Progress:
            return Progress(stage, round(100 * share), 100, "%", fraction)

        return (yield from mapped(self.timer.timed(stage, work, nbytes), progress))


class Workplace:
    """The device of a job and the images on it; falls back to the CPU if memory runs out.

    Attributes
    ----------
    backend : Backend
        The device.
    dtype : torch.dtype
        Number format of the network on the device.
    memory, budget : float
        Maximum number of bytes in total, and for images.
    images : Images or None
        The whole volume, normalised, on the device; None if it is read block by block.
    is_moved : bool
        Whether the job has fallen back to the CPU.
    """

    def __init__(
        self,
        backend: Backend,
        settings: DenoiseSettings,
        source: PlaneReader,
        arrangement: Arrangement,
        scale: Scale,
        log: JobLog,
        more_a_voxel: int = 0,
    ) -> None:
        self._settings, self._source, self._log = settings, source, log
        self._arrangement, self._scale = arrangement, scale
        # further bytes per voxel
        self._more_a_voxel = more_a_voxel
        self.is_moved = False
        self.images: Images | None = None
        self._choose(backend)

    def upload(self) -> Generator[Event, Any, None]:
        """Upload the volume, or fall back to the CPU if the memory of the device is too small."""
        volume = self._source.volume
        try:
            self._fill()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            yield self.move_to_cpu()
        if self.images is None:
            yield self._log.note(
                f"{volume.name} does not fit into {self.memory / 1e9:.3g} GB of memory and is read "
                "block by block.",
                warning=False,
            )

    def move_to_cpu(self) -> Note:
        """Fall back to the CPU.

        Raises MemoryLimitError if the CPU was out of memory.
        """
        volume, gpu = self._source.volume, self.backend
        if not gpu.is_gpu:
            raise MemoryLimitError(
                f"{volume.name} ({volume.facts}) cannot be processed: not even one training patch "
                "fits into memory. Close other programs, crop or bin the volume, or choose a "
                "smaller patch_size."
            )
        self._choose(Backend(reason="the GPU ran out of memory"))
        self._log.timer.run_on(self.backend.clock())
        self._fill()
        self.is_moved = True
        gpu.release()
        return self._log.note("The GPU ran out of memory: fell back to the CPU.")

    def release(self) -> None:
        """Release the memory of the device."""
        self.images = None
        self.backend.release()

    def _choose(self, backend: Backend) -> None:
        self.backend = backend
        self.images = None
        self.dtype = choose_precision(self._settings.precision, backend, self._settings.dimensions)
        wanted = self._settings.denoise_memory
        self.memory = FREE_SHARE * backend.free_memory() if wanted is None else 1e9 * wanted
        self.budget = IMAGES_SHARE * self.memory

    def _fill(self) -> None:
        """Upload the scans in the dtype of the file, and normalise them on the device."""
        source = self._source
        a_voxel = source.bytes_a_voxel(_WORKING) + self._more_a_voxel
        if math.prod(source.volume.shape) * a_voxel > self.budget:
            return
        scans = source.scans
        with self._log.timer.stage("upload", nbytes=sum(each.volume.nbytes for each in scans)):
            every = np.arange(source.count)
            raw = [each.put(each.stored(every), every, self.backend) for each in scans]
            planes = self._scale.normalise_scans(raw, source.channels)
            self.images = Images.of(planes, self._arrangement, len(scans))
