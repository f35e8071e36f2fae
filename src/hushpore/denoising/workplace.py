"""What the steps of a denoising share: what they say, and where the images lie."""

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

#: Share of the job that is training, for the progress bar.
TRAINING_SHARE = 0.9

#: Told between the steps of which nothing can be counted, so that a job can be cancelled there.
PREPARING = Progress("preparing", 0, 1, "", 0.0)

#: Bytes a voxel takes beside its own where the whole volume is on the device: normalised, padded,
#: and its result.
_WORKING = 12


class Log:
    """The times of a job's stages, and its notes.

    `timer`: keeps the times.
    """

    def __init__(self, timer: StageTimer) -> None:
        self.timer = timer
        self.notes: list[Note] = []

    def note(self, message: str, warning: bool = True, subject: Subject = "run") -> Note:
        """Keep a note, and return it to be yielded."""
        self.notes.append(Note(message, warning, subject))
        return self.notes[-1]

    def keep_notes(self, events: Generator[Event, Any, T]) -> Generator[Event, Any, T]:
        """Pass events on, and keep the notes among them."""

        def kept(event: Event) -> Event:
            if isinstance(event, Note):
                self.notes.append(event)
            return event

        return (yield from mapped(events, kept))

    def run_stage(
        self, stage: str, work: Generator[float, None, T], nbytes: int = 0, fraction: float = 0.0
    ) -> Generator[Progress, Any, T]:
        """Do work that yields how much of it is done as a stage, and tell how far it is."""

        def told(share: float) -> Progress:
            return Progress(stage, round(100 * share), 100, "%", fraction)

        return (yield from mapped(self.timer.timed(stage, work, nbytes), told))


class Place:
    """The device that a job computes on, and the images there; the CPU where memory runs out.

    Attributes
    ----------
    backend : Backend
        The device.
    dtype : torch.dtype
        Arithmetic of the network there.
    memory, budget : float
        Bytes that all may take, and images alone.
    images : Images or None
        The whole volume, normalised, on the device; None where it is read block by block.
    is_moved : bool
        Whether the job began on another device.
    """

    def __init__(
        self,
        backend: Backend,
        settings: DenoiseSettings,
        source: PlaneReader,
        arrangement: Arrangement,
        scale: Scale,
        log: Log,
        more_a_voxel: int = 0,
    ) -> None:
        self._settings, self._source, self._log = settings, source, log
        self._arrangement, self._scale = arrangement, scale
        # bytes a voxel takes beside
        self._more_a_voxel = more_a_voxel
        self.is_moved = False
        self.images: Images | None = None
        self._choose(backend)

    def upload(self) -> Generator[Event, Any, None]:
        """Move the volume to the device, or leave it on the CPU where the device is too small."""
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
        """Go on on the CPU.

        Raises MemoryLimitError if that is where memory ran out.
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
        """Give back what the device holds."""
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
        """Upload once, in the dtype of the file, and normalise there."""
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
