"""Reading and grouping patches, against the loops that they replace.

Reading: 20,000 patches of 64 x 64 at positions between pixels, out of a complex image and out of
one of two channels, each 512 x 512. The loop that it is measured against moves the whole image
once for each patch, as ptychography codes do, here in its quicker form: linear interpolation by
NumPy slices; SciPy's ``ndimage.shift`` is shown too. The loops are timed on 100 patches and their
time is scaled to 20,000. The compared variants take turns.

Grouping: four of the seven nearest, for 5,000 and 20,000 points, against making groups about every
point first, as many as it has neighbours, and only then drawing from them.
"""

from __future__ import annotations

import statistics
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage
from scipy.spatial import cKDTree

from benchmarks._clock import seconds_of
from hushpore.patches.grouping import draw_groups
from hushpore.patches.reading import iterate_patches, read_patches
from hushpore.patches.reassembly import reassemble

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

N_PATCHES, EDGE, IMAGE = 20_000, 64, 512

#: Patches on which the loops are timed.
SUBSET = 100

#: Points that are grouped, few and many.
POINTS = (5000, 20_000)

BUDGET = 64 << 20

ROUNDS = 3


def measure() -> dict[str, object]:
    """Seconds, their ratios, the largest difference and the memory beside the result."""
    rng = np.random.default_rng(0)
    real, imaginary = rng.normal(size=(2, IMAGE, IMAGE)).astype(np.float32)
    return {
        "complex": _reading(real + 1j * imaginary, rng),
        "two channels": _reading(np.stack([real, imaginary]), rng),
        "reassembly": _reassembly(real),
        "grouping": _grouping(rng),
    }


def _reading(image: npt.NDArray[Any], rng: np.random.Generator) -> dict[str, object]:
    positions = rng.uniform(0, IMAGE - EDGE, (N_PATCHES, 2))
    few, size = positions[:SUBSET], (EDGE, EDGE)
    out = read_patches(image, positions, size)

    def ours() -> Any:
        return read_patches(image, positions, size, budget=BUDGET, out=out)

    def loop() -> Any:
        return np.stack([_moved(image, position) for position in few])

    def scipy_loop() -> Any:
        return np.stack([_moved_by_scipy(image, position) for position in few])

    times: dict[str, list[float]] = {"ours": [], "loop": [], "scipy": []}
    for _ in range(ROUNDS):
        for name, work, times_as_many in (
            ("ours", ours, 1.0),
            ("loop", loop, N_PATCHES / SUBSET),
            ("scipy", scipy_loop, N_PATCHES / SUBSET),
        ):
            times[name].append(times_as_many * seconds_of(work))
    seconds = {name: statistics.median(found) for name, found in times.items()}
    return {
        "n_patches": N_PATCHES,
        "patches_timed_in_loops": SUBSET,
        "seconds": round(seconds["ours"], 3),
        "loop_seconds": round(seconds["loop"], 1),
        "scipy_loop_seconds": round(seconds["scipy"], 1),
        "times_as_fast_as_loop": round(_ratio(times["loop"], times["ours"]), 1),
        "times_as_fast_as_scipy_loop": round(_ratio(times["scipy"], times["ours"]), 1),
        "largest_difference_from_loop": float(np.abs(ours()[:SUBSET] - loop()).max()),
        "budget_bytes": BUDGET,
        "bytes_beside_the_result": _peak(ours),
        "bytes_in_chunks": _peak(lambda: _drain(image, positions)),
    }


def _moved(image: npt.NDArray[Any], position: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Move the whole image so that the patch begins at its corner, then cut the patch out."""
    low = np.floor(position).astype(int)
    share = (position - low).astype(np.float32)
    moved = np.roll(image, tuple(-low), (-2, -1))
    moved = moved + (np.roll(moved, -1, -2) - moved) * share[0]
    moved = moved + (np.roll(moved, -1, -1) - moved) * share[1]
    return moved[..., :EDGE, :EDGE]


def _moved_by_scipy(image: npt.NDArray[Any], position: npt.NDArray[Any]) -> npt.NDArray[Any]:
    shift = (*[0.0] * (image.ndim - 2), *-position)
    moved: npt.NDArray[Any] = ndimage.shift(image, shift, order=1)
    return moved[..., :EDGE, :EDGE]


def _drain(image: npt.NDArray[Any], positions: npt.NDArray[Any]) -> None:
    for _ in iterate_patches(image, positions, (EDGE, EDGE), budget=BUDGET):
        pass


def _reassembly(image: npt.NDArray[Any]) -> dict[str, object]:
    from hushpore.patches.places import grid_corners

    corners = grid_corners(image.shape, (EDGE, EDGE), EDGE // 2).numpy()
    patches = read_patches(image, corners, (EDGE, EDGE))
    seconds = statistics.median(
        seconds_of(lambda: reassemble(patches, corners, image.shape)) for _ in range(ROUNDS)
    )
    back = reassemble(patches, corners, image.shape)
    exact = bool((back == image).all())
    return {"n_patches": len(corners), "seconds": round(seconds, 4), "is_exact": exact}


def _grouping(rng: np.random.Generator) -> dict[str, object]:
    few, many = POINTS
    points = {n: rng.uniform(0, np.sqrt(n), (n, 2)) for n in POINTS}

    def ours(n: int) -> Callable[[], Any]:
        return lambda: draw_groups(points[n], n, 4, 7, 0)

    def first() -> Any:
        return _all_groups_first(points[few], few, 4, 7)

    times: dict[str, list[float]] = {f"{few}": [], f"{many}": [], "all groups first": []}
    for _ in range(4 * ROUNDS):
        times[f"{few}"].append(seconds_of(ours(few)))
        times[f"{many}"].append(seconds_of(ours(many)))
    beside = []
    for _ in range(ROUNDS):
        beside.append(seconds_of(ours(few)))
        times["all groups first"].append(seconds_of(first))
    seconds = {f"seconds_{name}": statistics.median(found) for name, found in times.items()}
    return {
        **{name.replace(" ", "_"): round(found, 5) for name, found in seconds.items()},
        f"{many}_over_{few}": round(_ratio(times[f"{many}"], times[f"{few}"]), 2),
        "times_as_fast_as_all_groups_first": round(_ratio(times["all groups first"], beside), 1),
    }


def _all_groups_first(
    points: npt.NDArray[Any], n_groups: int, group_size: int, n_neighbours: int
) -> npt.NDArray[Any]:
    """Make groups about every point, one at a time, and only then draw from them."""
    rng = np.random.default_rng(0)
    tree = cKDTree(points)
    groups = []
    for point in points:
        _, near = tree.query(point, n_neighbours)
        groups += [rng.choice(near, group_size, replace=False) for _ in range(n_neighbours)]
    return np.array(groups)[rng.choice(len(groups), n_groups, replace=False)]


def _ratio(slow: list[float], quick: list[float]) -> float:
    """Median of the ratios, turn by turn."""
    return statistics.median(a / b for a, b in zip(slow, quick, strict=True))


def _peak(work: Callable[[], object]) -> int:
    """Most bytes that NumPy held while something ran."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    work()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak
