"""Volumes of any size of which the truth is known: tiles that are all alike, with walls around.

In each is a smooth random void, with noise. The truth is one tile, segmented alone and in memory:
every other has to have its labels and its measures.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

import hushpore
from hushpore.device.backend import Backend

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hushpore.pores.result import Pores

TILE = 130
_PLACES = ["centroid_z", "centroid_y", "centroid_x"]
_SAME = [
    "num_voxels",
    "surface_area",
    "inscribed_diameter",
    "equivalent_diameter",
    "coordination_number",
]


def write_volume(path: Path, size: int) -> None:
    """Write a noisy scan of such a volume, (size, size, size), uint8, slice by slice."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(TILE,) * 3).astype(np.float32)
    smooth = ndimage.gaussian_filter(noise, 5.0, mode="wrap")
    void = np.pad((smooth > np.median(smooth))[1:-1, 1:-1, 1:-1], 1)
    grey = np.where(void, 60, 180)
    tile = (grey + rng.normal(0, 12, grey.shape)).clip(0, 255).astype(np.uint8)
    repeats = -(-size // TILE)
    with path.open("wb") as file:
        for z in range(size):
            file.write(np.tile(tile[z % TILE], (repeats, repeats))[:size, :size].tobytes())


def compare(values: Any, labels: Any, pores: pd.DataFrame, throats: pd.DataFrame) -> dict[str, Any]:
    """Say how many tiles are as one alone, and which pores and throats there are beside theirs.

    `values`, `labels`: (size, size, size), of whole tiles; NumPy arrays, or read like them.
    """
    tile = hushpore.segment_pores(np.asarray(values[:TILE, :TILE, :TILE]), device=Backend())
    along_z, *across = (range(0, length, TILE) for length in values.shape)
    table = pores.set_index("label")
    count = alike = 0
    for z in along_z:
        # chunks are no tiles: each is decoded once for all tiles of a layer
        layer = np.asarray(labels[z : z + TILE])
        for y, x in itertools.product(*across):
            own = layer[:, y : y + TILE, x : x + TILE]
            count += 1
            alike += _is_same(tile, own, table, np.array([z, y, x]))
    return {
        "tiles with the labels and measures of one alone": f"{alike} of {count}",
        "pores beyond those": len(pores) - count * len(tile.pores),
        "throats beyond those": len(throats) - count * len(tile.throats),
    }


def _is_same(tile: Pores, labels: np.ndarray, table: pd.DataFrame, corner: np.ndarray) -> bool:
    """Whether the labels of a tile, (z, y, x), are those of `tile` by other numbers."""
    label_of = np.zeros(len(tile.pores) + 1, labels.dtype)
    label_of[tile.labels] = labels
    if label_of[0] or not np.array_equal(label_of[tile.labels], labels):
        return False
    found = table.loc[label_of[tile.pores["label"]]]
    return bool(
        len(np.unique(label_of)) == label_of.size
        and np.allclose(found[_SAME], tile.pores[_SAME], rtol=1e-9, equal_nan=True)
        and np.allclose(found[_PLACES] - corner, tile.pores[_PLACES], atol=1e-6)
    )
