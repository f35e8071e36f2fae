"""The merge height, on volumes of which it is known how many pores they have.

Pores of 4 to 40 voxels across: balls that lie apart, ellipsoids of 1.6 : 1 : 1, balls in a row
that open into each other through windows half as wide, and a foam of such balls at random. Their
walls are smooth, or rough by 0.35 or 0.7 voxels, or are those of a scan with noise that was
smoothed before the threshold. Of each volume, for some fixed heights, for one that follows the
size of the pores, and for the rule of SNOW: pores found, as a multiple of those that there are,
and F1, where a pore is found if it shares more than half of the voxels of both with one that there
is. Specks of fewer than 8 voxels are left out: no height merges what does not touch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

import hushpore

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from hushpore.pores.result import Pores

#: Diameters of pores, in voxels.
SIZES = (4, 6, 8, 12, 20, 28, 40)

#: Heights that are compared, in voxels.
HEIGHTS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)

WALLS = ("smooth", "rough 0.35", "rough 0.7", "denoised")
SHAPES = ("balls", "ellipsoids", "chain", "foam")

#: Pores from this size on are drawn once, smaller ones twice.
_LARGE = 28

#: The height that follows the size: a share of the radius, and its limits in voxels.
SHARE, LEAST, MOST = 1 / 15, 0.2, 0.5

#: Radius of a window, as a share of that of the pores that it joins.
WINDOW = 0.5


def measure() -> Iterator[dict[str, object]]:
    """Figures of all volumes, and by walls, shape and size."""
    hushpore.segment_pores(np.zeros((4, 4, 4), bool))
    rows: list[dict[str, Any]] = []
    for shape in SHAPES:
        for walls in WALLS:
            for size in SIZES:
                seeds = (0, 1) if size < _LARGE else (0,)
                rows += [_compared(shape, walls, size, seed) for seed in seeds]
            yield {"volumes": len(rows), **summed_up(rows)}


def summed_up(rows: list[dict[str, Any]]) -> dict[str, object]:
    """Return, for each way, how many counts are within 5 %, and the mean F1: of all, of each kind.

    `rows`: one a volume: what it is, and `score` for each way.
    """
    groups: dict[str, list[dict[str, Any]]] = {"all": rows}
    for kind, values in (("walls", WALLS), ("shape", SHAPES), ("size", SIZES)):
        for value in values:
            name = f"{value} voxels" if kind == "size" else str(value)
            groups[name] = [row for row in rows if row[kind] == value]
    return {
        name: {
            way: {
                "within_5_percent": sum(abs(row[way]["count"] - 1) <= 0.05 for row in own),
                "of": len(own),
                "f1": round(float(np.mean([row[way]["f1"] for row in own])), 3),
            }
            for way in (*map(_named, HEIGHTS), FOLLOWING, "SNOW")
        }
        for name, own in groups.items()
        if own
    }


#: What the height is called that follows the size.
FOLLOWING = "h = R / 15, from 0.2 to 0.5"


def height_for(pores: Pores) -> float:
    """Return a height for a segmentation: by the inscribed radius of its pores, by volume."""
    table = pores.remerge(LEAST).pores.sort_values("inscribed_diameter")
    volume = np.cumsum(table["num_voxels"].to_numpy())
    if not volume.size:
        return LEAST
    middle = int(np.searchsorted(volume, volume[-1] / 2))
    radius = table["inscribed_diameter"].to_numpy()[middle] / 2
    return float(np.clip(SHARE * radius, LEAST, MOST))


def _named(h: float) -> str:
    return f"h = {h:g}"


def _compared(shape: str, walls: str, size: int, seed: int) -> dict[str, Any]:
    void, truth = volume_of(shape, walls, size, seed)
    common = {"minimum_voxels": 8, "outside": "keep", "device": "cpu"}
    found = hushpore.segment_pores(void, h=HEIGHTS[0], **common)
    row: dict[str, Any] = {"shape": shape, "walls": walls, "size": size}
    for h in HEIGHTS:
        row[_named(h)] = score(found.remerge(h).labels, truth)
    row[FOLLOWING] = score(found.remerge(height_for(found)).labels, truth)
    snow = hushpore.segment_pores(void, merging="snow", **common)
    row["SNOW"] = score(snow.labels, truth)
    return row


def volume_of(
    shape: str, walls: str, size: int, seed: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
    """Return a void, and which of its pores each voxel is of that lies in one."""
    rng = np.random.default_rng([seed, size, SHAPES.index(shape)])
    centres, axes, length = _pores(shape, size / 2, rng)
    inside, truth = _drawn(centres, axes, size / 2, length)
    if walls == "denoised":
        grey = ndimage.gaussian_filter((inside < 0).astype(float), 0.7)
        noise = ndimage.gaussian_filter(rng.normal(size=inside.shape), 0.8)
        return grey + 0.12 * noise / noise.std() < 0.5, truth
    if walls.startswith("rough"):
        rough = ndimage.gaussian_filter(rng.normal(size=inside.shape), 1.0)
        inside = inside + float(walls.split()[1]) * rough / rough.std()
    return inside > 0, truth


def _pores(
    shape: str, radius: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Return centres, axes (pores, 3, 3) whose rows are directions over their lengths, an edge."""
    count = 4 if radius <= 6 else 3
    apart = 2 * radius * np.sqrt(1 - WINDOW**2)
    step = apart if shape == "chain" else 2 * radius + 4
    if shape == "foam":
        return _foam(radius, apart, rng)
    if shape == "ellipsoids":
        step = 2 * radius * 1.6 ** (2 / 3) + 4
    length = int(np.ceil(count * step + 2 * radius))
    places = (np.arange(count) + 0.5) * step + radius
    z, y, x = np.meshgrid(places, places, places, indexing="ij")
    if shape == "chain":
        # rows along x alone open into each other
        y = (y - radius) * (2 * radius + 4) / step + radius
        z = (z - radius) * (2 * radius + 4) / step + radius
        length = int(np.ceil(count * (2 * radius + 4) + 2 * radius))
    centres = np.stack([z.ravel(), y.ravel(), x.ravel()], axis=1)
    centres += rng.uniform(-0.5, 0.5, (1 if shape == "chain" else len(centres), 3))
    lengths = np.full(3, radius)
    if shape == "ellipsoids":
        lengths = radius * np.array([1.6, 1, 1]) / 1.6 ** (1 / 3)
    turns = np.linalg.qr(rng.normal(size=(len(centres), 3, 3)))[0]
    return centres, turns / lengths[:, None], length


def _foam(
    radius: float, apart: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Return balls at random, of which no two are nearer than those that share a window."""
    length = int(np.ceil((5 if radius <= 6 else 4) * 2 * radius))
    centres = np.empty((0, 3))
    for _ in range(3000):
        one = rng.uniform(radius, length - radius, 3)
        if not len(centres) or cKDTree(centres).query(one)[0] >= apart:
            centres = np.vstack([centres, one])
    return centres, np.broadcast_to(np.eye(3) / radius, (len(centres), 3, 3)), length


def _drawn(
    centres: npt.NDArray[np.float64],
    axes: npt.NDArray[np.float64],
    radius: float,
    length: int,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return how deep each voxel lies in the pore that it is of, below 0 outside; and which."""
    depth = np.full((length,) * 3, -1e3, np.float32)
    truth = np.zeros(depth.shape, np.int32)
    for pore, (centre, own) in enumerate(zip(centres, axes.astype(np.float32), strict=True)):
        low = np.maximum(0, (centre - 2 * radius - 4).astype(int))
        part = tuple(slice(a, min(a + int(4 * radius + 10), length)) for a in low)
        sides = [np.arange(each.start, each.stop, dtype=np.float32) for each in part]
        away = np.stack(np.meshgrid(*sides, indexing="ij"), -1) - centre.astype(np.float32)
        here = radius * (1 - np.linalg.norm(away @ own.T, axis=-1))
        deeper = here > depth[part]
        depth[part][deeper] = here[deeper]
        truth[part][deeper & (here > 0)] = pore + 1
    return depth, truth


def score(labels: npt.NDArray[np.int32], truth: npt.NDArray[np.int32]) -> dict[str, float]:
    """Return pores found over pores that there are, and F1 at an overlap of more than half."""
    n_found, n_true = int(labels.max()), int(truth.max())
    both = labels.astype(np.int64).ravel() * (n_true + 1) + truth.ravel()
    shared = np.bincount(both, minlength=(n_found + 1) * (n_true + 1)).reshape(-1, n_true + 1)
    whole = shared.sum(axis=1, keepdims=True) + shared.sum(axis=0) - shared
    hits = int(np.count_nonzero((2 * shared > whole)[1:, 1:]))
    return {
        "count": round(n_found / n_true, 3),
        "f1": round(2 * hits / max(n_found + n_true, 1), 3),
    }
