"""Labels of basins that lie on a GPU still: made there and sent, or made of the host's basins.

The basins come down in any case, since another merge height makes other labels of them. On the
host labels are made of them by all its threads, as fast as memory is written; on the GPU it takes
no time, but as many bytes cross once more. Which of the two is faster depends on the machine, and
is measured on the first slices of a job.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from hushpore.device.switches import WINS
from hushpore.pores.passes import write_slices

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hushpore.device.switches import Choices
    from hushpore.device.timing import StageTimer
    from hushpore.pores.gpu.engine import Gpu
    from hushpore.pores.passes import Pass, Work
    from hushpore.pores.slabs import Stack

#: Voxels from which on it is measured: their labels take 128 MB.
WORTH = 1 << 25

#: Part of the slices that is made in each way to measure it.
_PART = 16


class GpuBasins:
    """Basins that are on a GPU as well as on the host.

    `basins`: (z, y, x), int32.
    """

    def __init__(self, gpu: Gpu, basins: Any) -> None:
        self._gpu, self._basins = gpu, basins

    def release(self) -> None:
        """Let those on the GPU go."""
        self._basins = None

    def write_labels(
        self,
        work: Work,
        basins: Stack,
        label_of: npt.NDArray[np.int32],
        labels: Stack,
        timer: StageTimer,
        choices: Choices,
    ) -> Pass[None]:
        """Do as `hushpore.pores.passes.write_labels`, of each slice where that is faster."""
        depth = len(basins)
        tables: list[Any] = []

        def on_host(first: int, last: int) -> None:
            write_slices(basins, label_of, labels, work.threads, first, last)

        def on_gpu(first: int, last: int) -> None:
            # they take the place of the basins, of which each is needed once
            part = self._basins[first:last]
            tables[:] = tables or [self._gpu.put(label_of)]
            self._gpu.relabel(part, tables[0])
            out = labels.room(first, last)
            with timer.stage("download", nbytes=out.nbytes, syncs=1):
                self._gpu.get(part, out)

        asked, done = choices.asked("labels"), 0
        if asked is not None:
            is_faster = choices.say("labels", asked, "as asked")
        elif math.prod(basins.shape) < WORTH or depth < 2 * _PART:
            size = f"{4e-6 * math.prod(basins.shape):.3g} MB"
            is_faster = choices.say("labels", False, f"{size} are too little to win by it")
        else:
            part = depth // _PART
            taken = [_seconds(on_host, 0, part), _seconds(on_gpu, part, 2 * part)]
            done = 2 * part
            yield done / depth
            is_faster = choices.say(
                "labels", taken[0] >= WINS * taken[1], _rates(taken, part, basins)
            )
        # what is copied in one piece is copied fastest
        step = depth if is_faster else work.slabs.thickness
        for first in range(done, depth, step):
            last = min(first + step, depth)
            (on_gpu if is_faster else on_host)(first, last)
            yield last / depth


def _seconds(write: Any, first: int, last: int) -> float:
    start = time.perf_counter()
    write(first, last)
    return time.perf_counter() - start


def _rates(taken: list[float], slices: int, basins: Stack) -> str:
    size = 4e-9 * slices * math.prod(basins.shape[1:])
    host, gpu = (size / max(each, 1e-9) for each in taken)
    return f"{gpu:.3g} GB/s made on the GPU and sent, where the host makes {host:.3g}"
