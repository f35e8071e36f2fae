"""What previews show while the network learns: a slice, as well as it can by now; and how often."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.events import Preview
from hushpore.n2v2.images import Images

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from hushpore.device.backend import Backend
    from hushpore.n2v2.images import Arrangement
    from hushpore.n2v2.source import Scale, Source

#: Slices to either side that are denoised with the one that is shown, in 3D.
_AROUND = 8


@dataclass(frozen=True)
class PreviewSlice:
    """What previews show."""

    image: Images  # one image, or in 3D a few slices of one
    # which of the planes that it predicts, and which row of that
    output: int
    row: int
    preview: Callable[[npt.NDArray[np.float32]], Preview]  # makes a `Preview` of a normalised slice


def read_preview_slice(
    source: Source,
    arrangement: Arrangement,
    scale: Scale,
    backend: Backend,
    at: tuple[int, ...] | None = None,
) -> PreviewSlice:
    """Read what is needed to show a slice.

    `source`, `arrangement`, `scale`, `backend`: the volume, what the network sees of it, its grey
    scale, and where to put it. `at`: where the slice lies on the volume's leading axes; by default
    in the middle.
    """
    leading = source.volume.shape[:-2]
    # of two middle slices the first: there a viewer opens the volume
    number = (math.prod(leading) - 1) // 2
    if at is not None and len(at) == len(leading) and leading:
        number = int(np.ravel_multi_index(at, leading, mode="clip"))
    plane, row, rows = number, 0, slice(None)
    if len(source.size) == 3:
        plane, z = divmod(number, source.size[0])
        rows = slice(max(z - _AROUND, 0), min(z + _AROUND, source.size[0]))
        row = z - rows.start
    image, output = (int(each[plane]) for each in arrangement.predicted_by)
    planes, part = arrangement.part(np.array([image]))
    channels = source.channels
    raw = source.put(source.stored(planes, rows), planes, backend)
    images = Images.of(scale.normalise(raw, channels[planes]), part)
    index = tuple(int(i) for i in np.unravel_index(number, (1, *leading))[1:])

    def preview(value: npt.NDArray[np.float32]) -> Preview:
        restored = scale.restore(value[None], channels[[plane]])[0]
        return Preview("denoised", restored, index)

    return PreviewSlice(images, output, row, preview)


class PreviewPace:
    """Lets previews take a twentieth of the time at most, and come once a second at most."""

    def __init__(self, preview_slice: PreviewSlice | None, batch_voxels: int) -> None:
        self._shows = preview_slice is not None
        # prediction is the forward third of a training step
        voxels = preview_slice.image.planes[0].numel() if preview_slice is not None else 0
        self._steps_each = voxels / batch_voxels / 3
        self._cost: float | None = None
        self._last = 0.0

    def due(self, step_seconds: float, now: float) -> bool:
        """Whether a preview may be made now, `now` seconds into the training."""
        cost = self._cost if self._cost is not None else self._steps_each * step_seconds
        return self._shows and now - self._last >= max(1.0, 20 * cost)

    def done(self, cost: float, now: float) -> None:
        """Remember what the preview took."""
        self._cost, self._last = cost, now + cost
