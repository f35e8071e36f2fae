"""Numbers that describe a patch, to colour, sort and choose it by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.patches.weights import gradient_magnitude

if TYPE_CHECKING:
    import numpy.typing as npt

#: Voxels that are worked on at once.
_PIECE = 1 << 21


def patch_features(patches: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Return order, mean, standard deviation and mean gradient of patches.

    Parameters
    ----------
    patches : numpy.ndarray
        Shape (n_patches, *size), with two or three spatial axes; real values.

    Returns
    -------
    dict of str to numpy.ndarray
        float64, shape (n_patches,). ``"order"`` counts from 1; ``"gradient"`` is in values a
        voxel.
    """
    count, n_spatial = len(patches), patches.ndim - 1
    found = {name: np.empty(count) for name in ("mean", "sd", "gradient")}
    together = max(1, _PIECE // max(1, math.prod(patches.shape[1:])))
    for start in range(0, count, together):
        part = slice(start, start + together)
        # in double precision: a small deviation may stand on a large mean
        values = torch.from_numpy(patches[part].astype(np.float64))
        flat = values.flatten(1)
        found["mean"][part] = flat.mean(1)
        found["sd"][part] = flat.std(1, correction=0)
        found["gradient"][part] = gradient_magnitude(values, n_spatial).flatten(1).mean(1)
    # whole numbers would be taken for classes where patches are coloured by them
    return {"order": np.arange(1.0, count + 1), **found}
