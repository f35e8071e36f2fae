"""The merge height, on volumes of which it is known how many pores they have.

Four sets of volumes. On two the rule of ``h="auto"`` was chosen: balls that lie apart, ellipsoids
of 1.6 : 1 : 1, balls in a row that open into each other through windows half as wide, and a foam of
such balls at random, of 4 to 28 voxels; and, of 6 to 9 voxels, where heights matter most, more of
these, ellipsoids of 1.4 : 1.4 : 1 and windows 0.55 times as wide. The third is of other shapes,
sizes and seeds: flat ellipsoids of 1.6 : 1.6 : 1, rows with windows 0.6 times as wide, foams with
windows 0.4 times as wide, and foams of balls of which the largest are 1.5 times as wide as the
smallest. Which of these an earlier rule missed was known when it was mended; so the fourth is of
others again, that nobody had seen. Walls are smooth, or rough by 0.35 or 0.7 voxels, or are those
of a scan with noise that was smoothed before the threshold.

Of each volume, for some fixed heights, for ``"auto"``, for the rule of SNOW, and for two rivals
(PoreSpy's own SNOW, and the watershed of scikit-image from the h-maxima of the distance map): pores
found, as a multiple of those that there are, and F1, where a pore is found if it shares more than
half of the voxels of both with one that there is. Specks of fewer than 8 voxels are left out: no
height merges what does not touch.

A volume is resolvable if any height from 0 to 2, chosen with the truth in hand, finds a number of
pores within 5 % with an F1 of 0.9 or more: with less, more than one pore in ten is split or lost,
and the number is right by accident. Which of these ``"auto"`` misses is listed; and for each kind
of walls, shape and size, and for all three together, how far its F1 lies below that of the best
fixed height or SNOW, chosen with the truth in hand. A pore that is split or lost is 0.8 % of the F1
of 128, so that one or two volumes cannot tell 0.02: of what was held out groups are of twelve
volumes that are drawn for this alone, and each group that lies farther below is listed with the
standard error of that.
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
    ellipsoids, along which directions they are longer by how much. `spread`: radii from
    1 / (1 + spread) of the largest on.
    """

    arrangement: str
    window: float = 0.5
    axes: tuple[float, float, float] = (1, 1, 1)
    spread: float = 0.0


@dataclass(frozen=True)
class Volumes:
    """A set of volumes: shapes by name, diameters in voxels, seeds of small and of large pores.

    `f1_seeds`: of volumes of which F1 is compared by groups; none: of those of `seeds`.
    """

    shapes: dict[str, Shape]
    sizes: tuple[int, ...]
    seeds: tuple[int, ...]
    f1_seeds: tuple[int, ...] = ()


SETS = {
    "held out": Volumes(
        {
            "flat ellipsoids": Shape("apart", axes=(1.6, 1.6, 1)),
            "chain, wide windows": Shape("chain", 0.6),
            "foam, narrow windows": Shape("foam", 0.4),
            "foam of many sizes": Shape("foam", 0.5, spread=0.5),
        },
        (4, 5, 7, 10, 14, 18, 24, 40),
        (10, 11),
        tuple(range(200, 212)),
    ),
    "held out again": Volumes(
        {
            "uneven ellipsoids": Shape("apart", axes=(1.6, 1.3, 1)),
            "chain, 0.57": Shape("chain", 0.57),
            "foam, 0.45": Shape("foam", 0.45),
            "foam of some sizes": Shape("foam", 0.5, spread=0.25),
        },
        (6, 7, 9, 12, 16),
        (20, 21),
        tuple(range(200, 212)),
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
        grouped: list[dict[str, Any]] = []
        for shape in volumes.shapes:
            kinds = [(name, shape, walls, size) for walls in WALLS for size in volumes.sizes]
            once = [
                (*kind, seed, peers is None)
                for kind in kinds
                for seed in volumes.seeds[: 1 if kind[-1] >= _LARGE else None]
            ]
            rows += workers.map(_compared, *zip(*once, strict=True))
            again = [(*kind, seed) for kind in kinds for seed in volumes.f1_seeds]
            grouped += workers.map(_scored, *zip(*again, strict=True)) if again else ()
            found[name] = {
                "volumes": len(rows),
                "missed": [
                    _name(row) for row in rows if row["resolvable"] and not _is_near(row["auto"])
                ],
                "f1_below_best": below_best(grouped or rows),
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


def _name(row: dict[str, Any]) -> str:
    return f"{row['shape']}, {row['walls']}, {row['size']} voxels"


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
            if way not in ("shape", "walls", "size", "resolvable")
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


def _scored(name: str, shape: str, walls: str, size: int, seed: int) -> dict[str, Any]:
    """Return what a volume is, and the score of each way of ours."""
    return _ours(shape, walls, size, *_drawn_volume(name, shape, walls, size, seed))[0]


def _ours(
    shape: str, walls: str, size: int,
    void: npt.NDArray[np.bool_], truth: npt.NDArray[np.int32],
) -> tuple[dict[str, Any], Pores]:  # fmt: skip
    common = {"minimum_voxels": _SPECK, "outside": "keep", "device": "cpu"}
    found = hushpore.segment_pores(void, **common)
    row: dict[str, Any] = {"shape": shape, "walls": walls, "size": size}
    row["auto"] = score(found.labels, truth)
    for h in HEIGHTS:
        row[f"h = {h:g}"] = score(found.remerge(h).labels, truth)
    snow = hushpore.segment_pores(void, merging="snow", **common)
    row["SNOW"] = score(snow.labels, truth)
    return row, found


def _compared(
    name: str, shape: str, walls: str, size: int, seed: int, with_peers: bool
) -> dict[str, Any]:
    void, truth = _drawn_volume(name, shape, walls, size, seed)
    row, found = _ours(shape, walls, size, void, truth)
    row["resolvable"] = _is_resolvable(found, truth)
    if not with_peers:
        return row
    row["PoreSpy SNOW"] = score(_without_specks(_porespy_snow(void)), truth)
    distance = ndimage.distance_transform_edt(void).astype(np.float32)
    # of 0.2 and 0.5 the better one; it takes most of the time
    row["scikit-image, h-maxima 0.2"] = score(
        _without_specks(_h_maxima(void, distance, 0.2)), truth
    )
    return row


def _is_resolvable(found: Pores, truth: npt.NDArray[np.int32]) -> bool:
    """Whether any height finds the pores that there are."""
    before = None
    for h in _TRIED:
        labels = found.remerge(float(h)).labels
        if before is None or not np.array_equal(labels, before):
            scored = score(labels, truth)
            if _is_near(scored) and scored["f1"] >= _RESOLVED:
                return True
        before = labels
    return False


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
    inside, truth = _drawn(*_pores(shape, size / 2, rng))
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
    lengths = radius * np.array(shape.axes) / np.prod(shape.axes) ** (1 / 3)
    across = 2 * lengths.max() + 4
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
    """Return balls at random, of which no two are nearer than those that share a window."""
    length = min(int(np.ceil((5 if radius <= 6 else 4) * 2 * radius)), _LONGEST)
    centres, radii = np.empty((0, 3)), np.empty(0)
    largest, smallest = radius * np.array([1, 1 / (1 + shape.spread)])
    for _ in range(3000):
        one, own = rng.uniform(radius, length - radius, 3), rng.uniform(smallest, largest)
        # the window is the circle in which two balls meet, measured by the smaller one
        window = shape.window * np.minimum(radii, own)
        apart = np.sqrt(radii**2 - window**2) + np.sqrt(own**2 - window**2)
        if not len(centres) or (np.linalg.norm(centres - one, axis=1) >= apart).all():
            centres, radii = np.vstack([centres, one]), np.append(radii, own)
    return centres, np.eye(3) / radii[:, None, None], radii, length


def _drawn(
    centres: npt.NDArray[np.float64],
    axes: npt.NDArray[np.float64],
    radii: npt.NDArray[np.float64],
    length: int,
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
