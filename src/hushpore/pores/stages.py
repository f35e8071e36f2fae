"""The stages of a pore segmentation: how long each takes, how far it is, and what it shows."""

from __future__ import annotations

import math
from contextlib import closing
from typing import TYPE_CHECKING

from hushpore.base.events import Attention, Driver, Preview, Progress
from hushpore.device.clocks import HostClock
from hushpore.device.timing import StageTimer

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, TypeVar

    from hushpore.base.events import Event, Job
    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.slabs import Stack

    T = TypeVar("T")


class Stages:
    """Runs the passes of a job as timed stages; says how far they are and shows what they do.

    `timer`: times them; on the host's clock, until it is told of another.
    """

    def __init__(self, volume: Volume, timer: StageTimer | None = None) -> None:
        self.timer = timer or StageTimer()
        self.timer.run_on(HostClock())
        self.slices = volume.spatial_shape[0] if volume.n_spatial == 3 else 1
        self.voxels = math.prod(volume.shape)
        # of two slices in the middle the first, as viewers open it
        self._looked_at = (self.slices - 1) // 2
        self._is_stack = volume.n_spatial == 3
        self._done = 0.05
        # what has slices to show, and what was shown last
        self._whole: Stack | None = None
        self._shown: tuple[Stack, int] | None = None

    def show(self, stack: Stack, share: float = 1.0) -> Generator[Preview, None, None]:
        """Preview the slice that is being looked at, where that is new.

        Until a pass comes to it, it is that of the stack of the pass before.
        """
        at = self._looked_at
        newest = stack if at < round(share * self.slices) else self._whole
        if share == 1:
            self._whole = stack
        if newest is not None and (newest, at) != self._shown:
            self._shown = newest, at
            image = newest.read(at, at + 1)[0].copy()
            yield Preview("labels", image, (at,) if self._is_stack else ())

    def _heed(self, answer: object) -> None:
        """Remember which slice is looked at, where that was the answer to a `Progress`."""
        if isinstance(answer, Attention) and self._is_stack and len(answer.index) == 1:
            self._looked_at = min(max(answer.index[0], 0), self.slices - 1)

    def prepare(self, work: Generator[Progress, None, None]) -> Job:
        """Make ready as a stage of its own."""
        with closing(work) as preparing:
            while True:
                with self.timer.stage("preparing"):
                    progress = next(preparing, None)
                if progress is None:
                    return
                self._heed((yield progress))

    def run(
        self, stage: str, work: Pass[T], until: float, shown: Stack | None = None, nbytes: int = 0
    ) -> Generator[Event, Any, T]:
        """Run a pass, up to some share of the whole job; without a stage it times its own.

        What is counted is `nbytes` where it moves some, else voxels.

        Slices of the stack `shown`, which the pass writes in their order, are previewed.
        """
        start = self._done
        # what was begun elsewhere, and could not be done there, goes on from where it was
        until = max(until, start)
        if stage:
            work = self.timer.timed(stage, work, nbytes, 0 if nbytes else self.voxels)
        with Driver(work) as driver:
            for share in driver:
                self._done = start + (until - start) * share
                slices = round(share * self.slices)
                name = stage or "basins"
                self._heed((yield Progress(name, slices, self.slices, "slices", self._done)))
                stack = shown or self._whole
                if stack is not None:
                    yield from self.show(stack, share if shown else 1.0)
        self._done = until
        return driver.result
