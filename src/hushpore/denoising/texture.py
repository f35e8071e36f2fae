"""Features of voxels by a trained denoiser: what its last two blocks find in a slice.

A network that has learned to predict a scan tells its textures apart. Its features mean something
to that network alone, so it is stored with whatever was learned from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hushpore.base.errors import InputError
from hushpore.denoising.inference.volumes import plan_tiles
from hushpore.denoising.model import fuse_batch_norm, upsample
from hushpore.denoising.trained_model import load_model, model_of_content
from hushpore.denoising.training.step import channels_last

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Float32s, Int64s, UInt8s
    from hushpore.base.volume import Volume


class TextureNetwork:
    """Finds features of the voxels of a volume with a trained denoiser.

    Slices are cut into tiles that depend on the volume alone, and each is always worked on as a
    whole: any part of the volume then has the same features, bit for bit, as the whole.

    Parameters
    ----------
    model : str or numpy.ndarray
        File of a model that was trained on slices (.safetensors); or uint8, shape (bytes,), what
        `stored` gave.
    volume : Volume
        2D or 3D; only its axes and shape are used.

    Attributes
    ----------
    stored : numpy.ndarray
        uint8, shape (bytes,): the network, for another volume.
    fingerprint : str
        That of the model, see `hushpore.denoising.trained_model.Model.fingerprint`.
    count : int
        Number of features.
    reach : int
        Number of slices on either side of a slice on which its features depend.

    Raises
    ------
    InputError
        If there is no such file, it is no model or a damaged one, if it was trained in 3D or on
        several channels, or if the volume has too few slices for it.
    """

    #: Edge of a tile in pixels, without the margins around it.
    EDGE = 256

    def __init__(self, model: str | UInt8s, volume: Volume) -> None:
        if isinstance(model, str):
            found = load_model(model)
        else:
            found = model_of_content(model.tobytes(), "The network of the classifier")
        architecture = found.network.architecture
        if architecture.dimensions != 2:
            raise InputError(
                "Texture needs a model that was trained on slices, and this one was trained in 3D. "
                "Denoise the scan with dimensions=2, save that model, and give it as texture."
            )
        self._members = found.arrange(volume).members
        self.stored = np.frombuffer(found.content, np.uint8)
        self.fingerprint = found.fingerprint
        self.count, self.reach = 2 * architecture.features, found.context
        self._scale, self._steps = found.scale, architecture.steps
        self._network = fuse_batch_norm(found.network)
        last_but_one = [self._network.bottom, *self._network.up][-1]
        last_but_one.register_forward_hook(self._keep)
        self._tiles = plan_tiles((1, *volume.shape[-2:]), (1, self.EDGE, self.EDGE), architecture)

    def _keep(self, module: torch.nn.Module, given: object, found: torch.Tensor) -> None:
        self._lower = found

    def find(
        self, slices: Array, first: int, box: Sequence[tuple[int, int]], out: Float32s
    ) -> None:
        """Write the features of the voxels in a box.

        `slices`: grey values, (z, y, x): whole slices of the volume from `first` on, those of the
        box and `reach` more on either side, as far as there are any. `box`: first voxel and the one
        after the last, for each axis. `out`: float32, (`count`, z, y, x), of the box.
        """
        (top, bottom), *sides = box
        for tile in self._tiles:
            both = list(zip(tile.target[1:], sides, strict=True))
            ends = [(max(part.start, low), min(part.stop, high)) for part, (low, high) in both]
            if any(low >= high for low, high in ends):
                continue
            place = _within(ends, [low for low, _ in sides])
            kept = _within(ends, [part.start for part in tile.source[1:]])
            for z in range(top, bottom):
                found = self._features(slices, self._members[z] - first, tile.source[1:])
                out[:, z - top][:, *place] = found[:, *kept]

    @torch.inference_mode()
    def _features(self, slices: Array, members: Int64s, source: Sequence[slice]) -> Float32s:
        """Return the features of a part of one slice, (`count`, y, x); `members`: what it sees."""
        index = []
        for part, n in zip(source, slices.shape[1:], strict=True):
            at = np.arange(part.start, part.stop)
            # beyond the far face values are mirrored, as in denoising
            index.append(np.maximum(np.where(at < n, at, 2 * n - 2 - at), 0))
        values = torch.from_numpy(slices[np.ix_(members, *index)].astype(np.float64))
        image = self._scale.normalise(values, np.zeros(len(members), np.int64))
        upper = self._network.features(channels_last(image[None]))
        found: Float32s = torch.cat([upper[0], upsample(self._lower, self._steps)[0]]).numpy()
        return found


def _within(ends: Sequence[tuple[int, int]], starts: Sequence[int]) -> tuple[slice, ...]:
    """Return ranges along axes, counted from `starts`."""
    return tuple(slice(low - at, high - at) for (low, high), at in zip(ends, starts, strict=True))
