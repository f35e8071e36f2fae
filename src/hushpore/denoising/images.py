"""Images as the network sees them: a plane of the volume, or several planes together.

A *plane* is an array along the axes on which the network works: a slice in 2D, a whole volume in
3D. An image is one plane, the planes of all channels, or a slice with its neighbours. Planes are
stored once; an image is a list of plane numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.patches.sampling import read_windows

if TYPE_CHECKING:
    from hushpore.base.arrays import Int64s
    from hushpore.base.volume import Volume
    from hushpore.patches.places import Places


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Assignment of planes to images, and the planes that each image predicts."""

    # int64, shape (n_images, inputs): plane numbers, counted over all leading axes
    members: Int64s
    # the planes ``first`` to ``first + outputs - 1`` of an image are predicted. Every plane of the
    # volume is predicted in exactly one image.
    first: int = 0
    outputs: int = 1

    @property
    def inputs(self) -> int:
        """Number of planes that are seen together."""
        return int(self.members.shape[1])

    @property
    def predicted(self) -> Int64s:
        """Numbers of the planes that each image predicts, shape (n_images, outputs)."""
        return self.members[:, self.first : self.first + self.outputs]

    @property
    def predicted_by(self) -> tuple[Int64s, Int64s]:
        """The image that predicts each plane of the volume, and the number of its output."""
        predicted = self.predicted
        image, output = np.empty((2, predicted.size), np.int64)
        image[predicted.ravel()] = np.arange(len(predicted)).repeat(self.outputs)
        output[predicted.ravel()] = np.tile(np.arange(self.outputs), len(predicted))
        return image, output

    def part(self, images: Int64s) -> tuple[Int64s, Arrangement]:
        """Return the planes that some images need, and the arrangement of these planes alone."""
        planes, members = np.unique(self.members[images], return_inverse=True)
        members = members.reshape(len(images), self.inputs)
        return planes, Arrangement(members, self.first, self.outputs)


def arrange(
    volume: Volume, dimensions: int, channels: str = "independent", context: int = 0
) -> Arrangement:
    """Return how the planes of a volume make up images.

    `volume`: only its axes and shape are used. `channels`: ``"independent"``: each channel is an
    image; ``"together"``: all channels are one image. `context`: number of neighbouring slices
    (time points if there is no z) on either side that are seen with each slice; only the slice
    itself is predicted. At the ends the neighbour on the other side replaces a missing one; the
    slice itself is never repeated.
    Raises InputError if the volume has no such axis, or is too short along it.
    """
    leading = volume.shape[:-dimensions]
    numbers = np.arange(math.prod(leading)).reshape(leading)
    if not context and channels == "together" and "c" in volume.axes:
        together = np.moveaxis(numbers, volume.axes.index("c"), -1)
        count = together.shape[-1]
        return Arrangement(together.reshape(-1, count), 0, count)
    if not context:
        return Arrangement(numbers.reshape(-1, 1))
    if dimensions != 2 or channels == "together":
        raise InputError(
            "Neighbouring slices (context) need dimensions=2 and channels='independent'; in 3D the "
            "network sees them anyway. Set context to 0."
        )
    axis = volume.axes[-3:-2]
    length = volume.shape[-3] if axis in ("z", "t") else 1
    if length < 2 * context + 1:
        raise InputError(
            f"context={context} needs a stack of at least {2 * context + 1} slices; {volume.name} "
            f"has {length}. Choose a smaller context."
        )
    own = np.arange(length)[:, None]
    shifts = np.arange(-context, context + 1)
    beside = own + shifts
    beside = np.where((beside >= 0) & (beside < length), beside, own - shifts)
    members = numbers.reshape(-1, length)[:, beside]
    return Arrangement(members.reshape(-1, 2 * context + 1), context, 1)


@dataclass(frozen=True, eq=False)
class Images:
    """Images on a device, ready for the network."""

    # normalised, shape (scans * n_planes, *size), contiguous: all planes of one scan, then all of
    # the second scan, if there are two
    planes: torch.Tensor
    members: torch.Tensor  # int64, shape (n_images, inputs), on the same device
    # as in `Arrangement`
    first: int = 0
    outputs: int = 1
    # allowed positions of patches, on the same device; None: anywhere
    places: Places | None = None
    scans: int = 1  # number of scans in `planes`; images are numbered in the first

    @classmethod
    def of(
        cls, planes: torch.Tensor, arrangement: Arrangement | None = None, scans: int = 1
    ) -> Images:
        """Arrange planes; by default each is an image of its own."""
        if arrangement is None:
            members = torch.arange(len(planes) // scans, device=planes.device)[:, None]
            return cls(planes, members, scans=scans)
        members = torch.from_numpy(arrangement.members).to(planes.device)
        return cls(planes, members, arrangement.first, arrangement.outputs, scans=scans)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of images, and their size."""
        return (len(self.members), *self.planes.shape[1:])

    @property
    def device(self) -> torch.device:
        """Device of the planes."""
        return self.planes.device

    def each_scan(self) -> list[Images]:
        """Return the images of each scan separately; their planes are views."""
        if self.scans == 1:
            return [self]
        return [replace(self, planes=part, scans=1) for part in self.planes.chunk(self.scans)]

    def windows(
        self,
        corners: torch.Tensor,
        size: tuple[int, ...],
        orientations: torch.Tensor,
        scan: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Read windows, each in its own orientation.

        `corners`: int64, shape (count, 1 + len(size)): image number, and first voxel of the window.
        `orientations`: as from `hushpore.patches.sampling.draw_orientations`. `scan`: int64, shape
        (count,): scan of each window, from 0; by default the first scan.
        Returns: shape (count, inputs, *size).
        """
        inputs = self.members.shape[1]
        members = self.members[corners[:, 0]]
        if scan is not None:
            members = members + (len(self.planes) // self.scans) * scan[:, None]
        planes = members.reshape(-1, 1)
        within = corners[:, 1:].repeat_interleave(inputs, 0)
        turned = orientations.repeat_interleave(inputs, 0)
        found = read_windows(self.planes, torch.cat([planes, within], 1), size, turned)
        return found.view(-1, inputs, *size)

    def region(self, where: tuple[slice, ...]) -> torch.Tensor:
        """Return a region of some images, (images, inputs, *size)."""
        images, *within = where
        chosen = self.members[images]
        planes = self.planes[(slice(None), *within)]
        if self.members.shape[1] == 1 and self.members.shape[0] == self.planes.shape[0]:
            return planes[images, None]
        return planes[chosen.flatten()].view(*chosen.shape, *planes.shape[1:])
