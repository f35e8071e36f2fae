"""The merge height, on volumes of which it is known how many pores they have.

Four sets of volumes. On two the rule of ``h="auto"`` was chosen: balls that lie apart, ellipsoids
of 1.6 : 1 : 1, balls in a row that open into each other through windows half as wide, and a foam of
such balls at random, of 4 to 28 voxels; and, of 6 to 9 voxels, where heights matter most, more of
these, ellipsoids of 1.4 : 1.4 : 1 and windows 0.55 times as wide. A third was held out from an
earlier rule, and looked at when that was mended: flat ellipsoids of 1.6 : 1.6 : 1, rows with
windows 0.6 times as wide, foams with windows 0.4 times as wide, and foams of balls of which the
largest are 1.5 times as wide as the smallest. The rule as it is was judged once, on the set that
comes first, of shapes, sizes and seeds that nobody had seen: long boxes with round edges, rows with
windows 0.53 times as wide, foams with windows 0.45 times as wide that are 0.7 times as high as
wide, and foams of wide windows and balls of very different sizes. Walls are smooth, or rough by
0.35 or 0.7 voxels, or are those of a scan with noise that was smoothed before the threshold.

Of each volume, for ``"auto"``, for some fixed heights alone (``join_near_peaks=False``), for the
rule of SNOW, and for two rivals (PoreSpy's own SNOW, and the watershed of scikit-image from the
h-maxima of the distance map): pores found, as a multiple of those that there are, and F1, where a
pore is found if it shares more than half of the voxels of both with one that there is. Specks of
fewer than 8 voxels are left out: no height merges what does not touch.

A volume is resolvable if any height from 0 to 2, chosen with the truth in hand, finds a number of
pores within 5 % with an F1 of 0.9 or more: with less, more than one pore in ten is split or lost,
and the number is right by accident. Which of these ``"auto"`` misses is listed; and for each kind
of walls, shape and size, and for all three together, how far its F1 lies below that of the best
fixed height or SNOW, chosen with the truth in hand. A pore that is split or lost is 0.8 % of the F1
of 128, so that one or two volumes cannot tell 0.02: of the set that it was judged on groups are of
twelve, which the rivals, many times as slow, are not compared on. Each group that lies farther
below is listed with the standard error of that.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

import hushpore
from hushpore.base.errors import MissingPackageError
from hushpore.device.backend import cpu_threads
from hushpore.pores.result import number_basins
from hushpore.pores.settings import PoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from hushpore.pores.result import Pores

#: Heights that are compared, in voxels.
HEIGHTS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)

#: Heights of which one is chosen with the truth in hand.
_TRIED = (*np.arange(0, 0.6, 0.025), *np.arange(0.6, 2.01, 0.1))

#: How near the number of pores has to come, and F1 of a volume that is resolvable.
_NEAR, _RESOLVED = 0.05, 0.9

#: How far F1 may lie below that of the best other way.
_CLOSE = 0.02

#: Ways of other programs.
_PEERS = ("PoreSpy SNOW", "scikit-image, h-maxima 0.2")

WALLS = ("smooth", "rough 0.35", "rough 0.7", "denoised")

#: Pores of fewer voxels are left out.
_SPECK = 8

#: Voxels along an edge that a volume has at most, where it holds more than 8 pores.
_LONGEST = 96

#: Pores of so many voxels are drawn once, smaller ones as often as the set says.
_LARGE = 20


@dataclass(frozen=True)
class Shape:
    """How pores lie, and what they are like.

    `arrangement`: ``"apart"``, ``"chain"`` (rows that open into each other) or ``"foam"``.
    `window`: radius of a window, as a share of that of the pores that it joins. `axes`: of
    ellipsoids, along which directions they are longer by how much, and of a foam, how much it is
    stretched along z, y and x. `power`: of the norm whose balls they are; from 2 on they are boxes
    more and more. `spread`: radii from 1 / (1 + spread) of the largest on.
    """

    arrangement: str
    window: float = 0.5
    axes: tuple[float, float, float] = (1, 1, 1)
    power: float = 2
    spread: float = 0.0


@dataclass(frozen=True)
class Volumes:
    """A set of volumes: shapes by name, diameters in voxels, seeds of small and of large pores.

    `peers`: whether other programs are compared on them.
    """

    shapes: dict[str, Shape]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    peers: bool = True


SETS = {
    "judged on": Volumes(
        {
            "long boxes": Shape("apart", axes=(1.7, 1, 1), power=3),
            "chain, 0.53": Shape("chain", 0.53),
            "flat foam": Shape("foam", 0.45, axes=(1, 1, 0.7), spread=0.2),
            "foam of most sizes": Shape("foam", 0.55, spread=0.7),
        },
        (5, 6, 7, 8, 10, 12, 14, 18),
        tuple(range(400, 412)),
        peers=False,
    ),
    "held out": Volumes(
        {
            "flat ellipsoids": Shape("apart", axes=(1.6, 1.6, 1)),
            "chain, wide windows": Shape("chain", 0.6),
            "foam, narrow windows": Shape("foam", 0.4),
            "foam of many sizes": Shape("foam", 0.5, spread=0.5),
        },
        (4, 5, 7, 10, 14, 18, 24, 40),
        (10, 11),
    ),
    "chosen on": Volumes(
        {
            "balls": Shape("apart"),
            "ellipsoids": Shape("apart", axes=(1.6, 1, 1)),
            "chain": Shape("chain"),
            "foam": Shape("foam"),
        },
        (4, 5, 6, 7, 8, 10, 12, 20, 28),
        (0, 1),
    ),
    "chosen on, small pores": Volumes(
        {
            "balls": Shape("apart"),
            "ellipsoids": Shape("apart", axes=(1.6, 1, 1)),
            "chain": Shape("chain"),
            "foam": Shape("foam"),
            "chain, 0.55": Shape("chain", 0.55),
            "flat ellipsoids, 1.4": Shape("apart", axes=(1.4, 1.4, 1)),
        },
        (6, 7, 8, 9),
        (2, 3, 4),
    ),
}


def measure(peers: dict[str, Any] | None = None) -> Iterator[dict[str, object]]:
    """Figures of all sets, and by walls, shape and size.

    `peers`: an earlier result, of which the figures of other programs are kept.
    """
    if peers is None and find_spec("porespy") is None:
        raise MissingPackageError("it needs PoreSpy: pip install porespy")
    found: dict[str, object] = {}
    with ProcessPoolExecutor(cpu_threads(), get_context("spawn")) as workers:
        yield from _measured(found, workers, peers)


def _measured(
    found: dict[str, object], workers: ProcessPoolExecutor, peers: dict[str, Any] | None
) -> Iterator[dict[str, object]]:
    for name, volumes in SETS.items():
        rows: list[dict[str, Any]] = []
        for shape in volumes.shapes:
            once = [
                (name, shape, walls, size, seed, volumes.peers and peers is None)
                for walls in WALLS
                for size in volumes.sizes
                for seed in volumes.seeds[: 1 if size >= _LARGE else None]
            ]
            rows += workers.map(_compared, *zip(*once, strict=True))
            found[name] = {
                "volumes": len(rows),
                "missed": missed(rows),
                "f1_below_best": below_best(rows),
                **_with_peers(summed_up(rows), (peers or {"figures": {}})["figures"].get(name, {})),
            }
            yield found


def _with_peers(groups: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Return figures of groups with those of other programs that are kept, of the same volumes."""
    for name, ways in groups.items():
        earlier = kept.get(name, {})
        if earlier.get("auto", {}).get("of") == ways["auto"]["of"]:
            ways.update({way: earlier[way] for way in _PEERS if way in earlier})
    return groups


def missed(rows: list[dict[str, Any]]) -> list[str]:
    """Return which volumes are resolvable, but not by auto, with pores found and pores there."""
    return [
        f"{row['shape']}, {row['walls']}, {row['size']} voxels: "
        f"{row['auto']['count'] * row['pores']:.0f} of {row['pores']}"
        for row in rows
        if row["resolvable"] and not _is_near(row["auto"])
    ]


def below_best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how far F1 of auto lies below that of the best fixed height or SNOW: the worst group.

    By kind of walls, shape and size, and by all three together; 0 where auto is the best.
    """
    ways = [way for way in rows[0] if way.startswith("h = ") or "SNOW" in way]
    found = {}
    for kinds in (("walls",), ("shape",), ("size",), ("shape", "walls", "size")):
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            groups.setdefault(", ".join(str(row[kind]) for kind in kinds), []).append(row)
        below = {group: _below(own, ways) for group, own in groups.items()}
        worst = max(below, key=lambda group: below[group][0])
        found[" x ".join(kinds)] = {
            "worst": round(below[worst][0], 4),
            "of": worst,
            "within": sum(each <= _CLOSE for each, _, _ in below.values()),
            "groups": len(below),
            "volumes": len(groups[worst]),
            "not_within": [
                f"{group}: {each:.3f} ± {error:.3f} below {way}"
                for group, (each, error, way) in below.items()
                if each > _CLOSE
            ],
        }
    return found


def _below(rows: list[dict[str, Any]], ways: list[str]) -> tuple[float, float, str]:
    """Return how far the mean F1 of auto lies below the best, with its standard error; and which.

    `ways`: of which the best is chosen; auto itself is the best where none is better.
    """
    apart = {way: np.array([row[way]["f1"] - row["auto"]["f1"] for row in rows]) for way in ways}
    best = max(apart, key=lambda way: apart[way].mean())
    error = apart[best].std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
    return max(float(apart[best].mean()), 0.0), float(error), best


def summed_up(rows: list[dict[str, Any]]) -> dict[str, object]:
    """Return, for each way, how many counts are within 5 %, and the mean F1: of all, of each kind.

    `rows`: one a volume: what it is, whether it is resolvable, and `score` for each way.
    """
    groups: dict[str, list[dict[str, Any]]] = {"all": rows}
    for kind in ("walls", "shape", "size"):
        for value in dict.fromkeys(row[kind] for row in rows):
            name = f"{value} voxels" if kind == "size" else str(value)
            groups[name] = [row for row in rows if row[kind] == value]
    return {
        name: {
            way: {
                "within_5_percent": sum(map(_is_near, (row[way] for row in own))),
                "of": len(own),
                "within_5_percent_of_resolvable": sum(
                    _is_near(row[way]) for row in own if row["resolvable"]
                ),
                "resolvable": sum(row["resolvable"] for row in own),
                "f1": round(float(np.mean([row[way]["f1"] for row in own])), 3),
            }
            for way in own[0]
            if way not in ("shape", "walls", "size", "pores", "resolvable")
        }
        for name, own in groups.items()
    }


def _drawn_volume(
    name: str, shape: str, walls: str, size: int, seed: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
    """Return a volume of a set, and its pores; see `volume_of`."""
    # the seed of a shape is its place in its set
    shapes = SETS[name].shapes
    return volume_of(shapes[shape], walls, size, (seed, size, list(shapes).index(shape)))


def _compared(
    name: str, shape: str, walls: str, size: int, seed: int, with_peers: bool
) -> dict[str, Any]:
    """Return what a volume is, whether it is resolvable, and the score of each way."""
    void, truth = _drawn_volume(name, shape, walls, size, seed)
    common = {"minimum_voxels": _SPECK, "outside": "keep", "device": "cpu"}
    found = hushpore.segment_pores(void, **common)
    row: dict[str, Any] = {"shape": shape, "walls": walls, "size": size, "pores": int(truth.max())}
    row["auto"] = score(found.labels, truth)
    basins = _shared(found.basins, truth)
    for h in HEIGHTS:
        row[f"h = {h:g}"] = _by_height(found, basins, h)
    snow = hushpore.segment_pores(void, merging="snow", **common)
    row["SNOW"] = score(snow.labels, truth)
    by_height = (_by_height(found, basins, float(h)) for h in _TRIED)
    row["resolvable"] = any(_is_near(each) and each["f1"] >= _RESOLVED for each in by_height)
    if not with_peers:
        return row
    row["PoreSpy SNOW"] = score(_without_specks(_porespy_snow(void)), truth)
    distance = ndimage.distance_transform_edt(void).astype(np.float32)
    # of 0.2 and 0.5 the better one; it takes most of the time
    row["scikit-image, h-maxima 0.2"] = score(
        _without_specks(_h_maxima(void, distance, 0.2)), truth
    )
    return row


def _is_near(scored: dict[str, float]) -> bool:
    return abs(scored["count"] - 1) <= _NEAR


def _porespy_snow(void: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Regions of PoreSpy's SNOW, with its own settings."""
    import porespy

    porespy.settings.tqdm = {"disable": True}
    return np.asarray(porespy.filters.snow_partitioning(void).regions)


def _h_maxima(
    void: npt.NDArray[np.bool_], distance: npt.NDArray[np.float32], h: float
) -> npt.NDArray[Any]:
    """Regions of a watershed from the h-maxima of the distance map."""
    from skimage.morphology import h_maxima
    from skimage.segmentation import watershed

    markers = ndimage.label(h_maxima(distance, h), np.ones((3, 3, 3)))[0]
    return np.asarray(watershed(-distance, markers, mask=void))


def _without_specks(labels: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Number regions anew without those that are too small."""
    size = np.bincount(labels.ravel().astype(np.int64))
    size[0] = 0
    kept = size >= _SPECK
    return (np.cumsum(kept) * kept)[labels].astype(np.int32)


def volume_of(
    shape: Shape, walls: str, size: int, seed: tuple[int, ...]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int32]]:
    """Return a void, and which of its pores each voxel is of that lies in one."""
    rng = np.random.default_rng(seed)
    inside, truth = _drawn(*_pores(shape, size / 2, rng), shape.power)
    if walls == "denoised":
        grey = ndimage.gaussian_filter((inside < 0).astype(float), 0.7)
        noise = ndimage.gaussian_filter(rng.normal(size=inside.shape), 0.8)
        return grey + 0.12 * noise / noise.std() < 0.5, truth
    if walls.startswith("rough"):
        rough = ndimage.gaussian_filter(rng.normal(size=inside.shape), 1.0)
        inside = inside + float(walls.split()[1]) * rough / rough.std()
    return inside > 0, truth


def _pores(
    shape: Shape, radius: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Return centres, axes (pores, 3, 3) whose rows are directions over lengths, radii, an edge."""
    if shape.arrangement == "foam":
        return _foam(shape, radius, rng)
    lengths = radius * _proportions(shape)
    # to a corner, where they are boxes
    across = 2 * lengths.max() * 3 ** (1 / 2 - 1 / shape.power) + 4
    step = 2 * radius * np.sqrt(1 - shape.window**2) if shape.arrangement == "chain" else across
    count = int(np.clip((_LONGEST - 2 * radius) // across, 2, 4 if radius <= 6 else 3))
    length = int(np.ceil(count * across + 2 * radius))
    z, y, x = np.indices((count,) * 3).reshape(3, -1)
    # rows along x alone open into each other
    centres = np.stack([z * across, y * across, x * step], axis=1) + across / 2 + radius
    moved = (1 if shape.arrangement == "chain" else len(centres), 3)
    centres += rng.uniform(-0.5, 0.5, moved)
    turns = np.linalg.qr(rng.normal(size=(len(centres), 3, 3)))[0]
    return centres, turns / lengths[:, None], np.full(len(centres), radius), length


def _foam(
    shape: Shape, radius: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64], int]:
    """Return balls at random, of which no two are nearer than those that share a window.

    Where the foam is stretched, windows are as before it was.
    """
    length = min(int(np.ceil((5 if radius <= 6 else 4) * 2 * radius)), _LONGEST)
    centres, radii = np.empty((0, 3)), np.empty(0)
    largest, smallest = radius * np.array([1, 1 / (1 + shape.spread)])
    stretch = _proportions(shape)
    room = stretch * radius
    for _ in range(3000):
        one, own = rng.uniform(room, length - room) / stretch, rng.uniform(smallest, largest)
        # the window is the circle in which two balls meet, measured by the smaller one
        window = shape.window * np.minimum(radii, own)
        apart = np.sqrt(radii**2 - window**2) + np.sqrt(own**2 - window**2)
        if not len(centres) or (np.linalg.norm(centres - one, axis=1) >= apart).all():
            centres, radii = np.vstack([centres, one]), np.append(radii, own)
    return centres * stretch, np.diag(1 / stretch) / radii[:, None, None], radii, length


def _proportions(shape: Shape) -> npt.NDArray[np.float64]:
    """Return the axes of a shape, for those of a ball of the same volume 1."""
    axes: npt.NDArray[np.float64] = shape.axes / np.prod(shape.axes) ** (1 / 3)
    return axes


def _drawn(
    centres: npt.NDArray[np.float64],
    axes: npt.NDArray[np.float64],
    radii: npt.NDArray[np.float64],
    length: int,
    power: float,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return how deep each voxel lies in the pore that it is of, below 0 outside; and which."""
    depth = np.full((length,) * 3, -1e3, np.float32)
    truth = np.zeros(depth.shape, np.int32)
    pores = zip(centres, axes.astype(np.float32), radii, strict=True)
    for pore, (centre, own, radius) in enumerate(pores):
        low = np.maximum(0, (centre - 2 * radius - 4).astype(int))
        part = tuple(slice(a, min(a + int(4 * radius + 10), length)) for a in low)
        sides = [np.arange(each.start, each.stop, dtype=np.float32) for each in part]
        away = np.stack(np.meshgrid(*sides, indexing="ij"), -1) - centre.astype(np.float32)
        here = radius * (1 - np.linalg.norm(away @ own.T, power, axis=-1))
        deeper = here > depth[part]
        depth[part][deeper] = here[deeper]
        truth[part][deeper & (here > 0)] = pore + 1
    return depth, truth


def score(labels: npt.NDArray[np.int32], truth: npt.NDArray[np.int32]) -> dict[str, float]:
    """Return pores found over pores that there are, and F1 at an overlap of more than half."""
    return _score(_shared(labels, truth))


def _by_height(found: Pores, basins: npt.NDArray[np.int64], h: float) -> dict[str, float]:
    """Return the score of a height alone, from the voxels that basins share with pores."""
    how = PoreSettings(h=h, join_near_peaks=False, minimum_voxels=_SPECK, outside="keep")
    label_of = number_basins(found.graph, how, found.volume).label_of
    shared = np.zeros((label_of.max() + 1, basins.shape[1]), np.int64)
    np.add.at(shared, label_of, basins)
    return _score(shared)


def _shared(labels: npt.NDArray[np.int32], truth: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return how many voxels each label, 0 included, shares with each pore that there is."""
    n_true = int(truth.max())
    both = labels.astype(np.int64).ravel() * (n_true + 1) + truth.ravel()
    return np.bincount(both, minlength=(labels.max() + 1) * (n_true + 1)).reshape(-1, n_true + 1)


def _score(shared: npt.NDArray[np.int64]) -> dict[str, float]:
    n_found, n_true = shared.shape[0] - 1, shared.shape[1] - 1
    whole = shared.sum(axis=1, keepdims=True) + shared.sum(axis=0) - shared
    hits = int(np.count_nonzero((2 * shared > whole)[1:, 1:]))
    return {
        "count": round(n_found / n_true, 3),
        "f1": round(2 * hits / max(n_found + n_true, 1), 3),
    }
