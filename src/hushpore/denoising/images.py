"""Images as the network sees them: a plane of the volume, or several planes together.

A *plane* is an array along the axes on which the network works: a slice in 2D, a whole volume in
3D. An image is one plane, the planes of all channels, or a slice with its neighbours. Planes are
stored once; an image is a list of plane numbers.

Regions from which training patches are drawn: around given points or labels, or not excluded.

Masks are read in pieces, for any part of the volume, and never need to fit into memory as a whole.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.base.provenance import fingerprint
from hushpore.patches.places import Places, no_place, patches_at, read_windows, window_sums

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hushpore.base.arrays import Float64s, Int64s, Mask
    from hushpore.base.volume import Volume
    from hushpore.denoising.settings import DenoiseSettings


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


#: Maximum number of voxels of several scans that one network trains on.
_MOST_TOGETHER = 2**28

#: Maximum relative difference of the voxel sizes of scans that one network trains on.
_SAME_SIZE = 0.01


def join_scans(volumes: Sequence[Volume]) -> Volume:
    """Return the middles of several scans as the times of one volume, for a common network.

    All parts have the largest shape that fits into every scan, or fewer slices for a large total.

    Parameters
    ----------
    volumes : sequence of Volume
        At least two scans with the axes zyx or yx, and the same voxel size within 1 %.

    Raises
    ------
    InputError
        If there are fewer, or axes or voxel sizes differ.

    Examples
    --------
    >>> import numpy as np
    >>> from hushpore import Volume
    >>> join_scans([Volume(np.zeros((4, 9, 8))), Volume(np.zeros((6, 7, 8)))]).shape
    (2, 4, 7, 8)
    """
    if len(volumes) < 2:
        raise InputError(f"A common network needs at least two scans; got {len(volumes)}.")
    first = volumes[0]
    for each in volumes:
        if each.axes not in ("zyx", "yx") or each.axes != first.axes:
            raise InputError(
                f"Scans for a common network need the same axes, zyx or yx; {each.name} has "
                f"{each.axes}, {first.name} {first.axes}. Choose a position with --at."
            )
        sizes = zip(each.spacing, first.spacing, strict=True)
        if each.unit != first.unit or any(abs(a / b - 1) > _SAME_SIZE for a, b in sizes):
            raise InputError(
                f"Scans for a common network need the same voxel size; {each.name} has "
                f"{each.spacing} {each.unit}, {first.name} {first.spacing} {first.unit}."
            )
    shape = [min(lengths) for lengths in zip(*(each.shape for each in volumes), strict=True)]
    if len(shape) == 3:
        shape[0] = max(min(shape[0], _MOST_TOGETHER // (len(volumes) * math.prod(shape[1:]))), 1)
    joined = np.empty((len(volumes), *shape), np.result_type(*(each.dtype for each in volumes)))
    for part, each in zip(joined, volumes, strict=True):
        starts = [(n - m) // 2 for n, m in zip(each.shape, shape, strict=True)]
        part[...] = each.data[tuple(slice(a, a + m) for a, m in zip(starts, shape, strict=True))]
    name = f"{len(volumes)} scans"
    return dataclasses.replace(
        first, data=joined, axes=f"t{first.axes}", name=name, source="", auxiliary={}
    )


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
        `orientations`: as from `hushpore.patches.places.draw_orientations`. `scan`: int64, shape
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


#: The settings that name a region.
REGIONS = ("train_at", "leave_out")

#: Memory for each voxel while the positions of patches are determined, in bytes.
PLACES_BYTES = 56

#: Number of voxels of a mask that are read in one piece.
_PIECE = 1 << 21

_NONE_LEFT = (
    "There are no training patches: train_at has no points, or all patches around them overlap "
    "leave_out. Add points, or exclude less."
)


def has_regions(settings: DenoiseSettings) -> bool:
    """Whether the settings restrict the training to regions."""
    return any(getattr(settings, name) for name in REGIONS)


def regions_fingerprint(volume: Volume, settings: DenoiseSettings) -> str:
    """Return a fingerprint of the training regions; empty if there are none."""
    found = (volume.auxiliary_of(settings, name) for name in REGIONS)
    return "".join("" if each is None else fingerprint(each) for each in found)


class PatchPlaces(Protocol):
    """Weights of the positions that training patches are drawn from."""

    @property
    def voxel_bytes(self) -> int:
        """Memory for each voxel while the positions are determined, in bytes."""

    def places(self, images: Int64s, rows: slice, shares: Float64s | None = None) -> Places:
        """Return the positions of patches in a part of the volume.

        `images`: int64: numbers of the images of the part, in order. `rows`: range of rows along
        the first axis, with start and stop. `shares`: float64, shape (n_images, n_first_rows):
        factors for the weights of the positions, by image and first row of the patch in the part.
        Returns: over (image, *size) of the part, on the CPU.
        Raises InputError if no patch can be placed.
        """

    def row_weights(self) -> Generator[float, None, Float64s]:
        """Calculate the weights of all positions, summed by image and first row of the patch.

        Yields: the completed share.
        Returns: float64, shape (n_images, n_first_rows).
        Raises InputError if no patch can be placed.
        """


class TrainingRegions:
    """The positions that training patches are drawn from.

    `volume`: with any points, labels or masks that the settings name. `settings`: only ``train_at``
    and ``leave_out`` are used.
    Raises InputError if there are points, but no patch can be placed around any of them.
    """

    #: See `PatchPlaces`.
    voxel_bytes = PLACES_BYTES

    def __init__(
        self,
        volume: Volume,
        settings: DenoiseSettings,
        arrangement: Arrangement,
        size: tuple[int, ...],
    ) -> None:
        self._size = size
        self._plane = volume.shape[-len(size) :]
        self._included = volume.auxiliary_of(settings, "train_at")
        self._excluded = volume.auxiliary_of(settings, "leave_out")
        # masks have one axis more than patches if slices are processed separately
        self._is_stack = volume.n_spatial > len(size)
        n_masks = volume.spatial_shape[0] if self._is_stack else 1
        # planes that are predicted in one image differ only in their channel
        self._mask_of = arrangement.predicted[:, 0] % n_masks
        self._corners: Int64s | None = None
        if self._included is not None and self._included.shape != volume.spatial_shape:
            corners, _ = patches_at(self._included, volume.shape, size)
            corners[:, 0] = arrangement.predicted_by[0][corners[:, 0]]
            self._corners = corners[self._allowed(corners)]
            if not len(self._corners):
                raise InputError(_NONE_LEFT)

    def places(self, images: Int64s, rows: slice, shares: Float64s | None = None) -> Places:
        """Return the positions of patches in a part of the volume; see `PatchPlaces.places`."""
        shape = (len(images), rows.stop - rows.start, *self._plane[1:])
        if self._corners is not None:
            image, first = self._corners[:, 0], self._corners[:, 1]
            inside = (first >= rows.start) & (first + self._size[0] <= rows.stop)
            found = self._corners[np.isin(image, images) & inside]
            found[:, 0] = np.searchsorted(images, found[:, 0])
            found[:, 1] -= rows.start
            weights = None if shares is None else torch.from_numpy(shares[found[:, 0], found[:, 1]])
            return Places.from_corners(torch.from_numpy(found), shape, weights)
        sums = self._sums(images, rows)
        if shares is not None:
            sums = sums * torch.from_numpy(shares.reshape(*shares.shape, *[1] * (sums.ndim - 2)))
        return Places.from_sums(sums, shape)

    def row_weights(self) -> Generator[float, None, Float64s]:
        """Calculate the weights of all rows, reading masks in pieces; see `PatchPlaces`."""
        n_first = self._plane[0] - self._size[0] + 1
        if self._corners is not None:
            weight = np.zeros((len(self._mask_of), n_first))
            np.add.at(weight, (self._corners[:, 0], self._corners[:, 1]), 1)
            return weight
        # images with the same mask have the same weights
        _, one_of_each, back = np.unique(self._mask_of, return_index=True, return_inverse=True)
        weight = np.zeros((len(one_of_each), n_first))
        parts = self._parts(*weight.shape)
        for done, (images, first) in enumerate(parts, start=1):
            rows = slice(first.start, first.stop + self._size[0] - 1)
            weight[images, first] = self._sums(one_of_each[images], rows).flatten(2).sum(2).numpy()
            yield done / len(parts)
        if not weight.any():
            raise no_place((1, *self._size))
        return weight[back.ravel()]

    def _parts(self, n_images: int, n_first: int) -> list[tuple[slice, slice]]:
        """Cut masks into pieces: ranges of images, and of first rows of patches in them."""
        row = math.prod(self._plane[1:])
        # rows are read again for the patches of the next piece, so pieces must not be too thin
        rows = min(n_first, max(_PIECE // row, self._size[0]))
        together = max(1, _PIECE // (row * self._plane[0]))
        return [
            (slice(image, min(image + together, n_images)), slice(at, min(at + rows, n_first)))
            for image in range(0, n_images, together)
            for at in range(0, n_first, rows)
        ]

    def _sums(self, images: Int64s, rows: slice) -> torch.Tensor:
        """Return the weight of every position in a part, (image, *positions along each axis)."""
        forbidden = None if self._excluded is None else self._mask(self._excluded, images, rows)
        if self._included is not None:
            wanted = self._mask(self._included, images, rows)
        else:
            shape = (len(images), rows.stop - rows.start, *self._plane[1:])
            wanted = torch.ones(shape, dtype=torch.bool)
        return window_sums(wanted, (1, *self._size), forbidden)

    def _mask(self, data: Any, images: Int64s, rows: slice) -> torch.Tensor:
        """Read the mask of some images, (image, *size)."""
        numbers, back = np.unique(self._mask_of[images], return_inverse=True)
        found = [data[int(k), rows] if self._is_stack else data[rows] for k in numbers]
        return torch.from_numpy((np.stack([np.asarray(each) for each in found]) != 0)[back])

    def _allowed(self, corners: Int64s) -> Mask:
        """Return which patches are free of excluded voxels."""
        if self._excluded is None:
            return np.ones(len(corners), bool)
        where = corners[:, 1:]
        if self._is_stack:
            where = np.column_stack([self._mask_of[corners[:, 0]], where])
        size = (1, *self._size)[-where.shape[1] :]
        boxes = (tuple(map(slice, at, at + np.array(size))) for at in where)
        return np.array([not np.asarray(self._excluded[box]).any() for box in boxes], bool)
