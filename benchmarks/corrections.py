"""How long a correction of pores by hand takes, with the new tables, by the number of pores.

A foam of separate pores, some of which touch, is corrected in each way in turn. Afterwards the
tables are compared with those of `hushpore.measure_labels` for the corrected labels, which measures
all of them again; `equal` says whether they are the same to the last bit. Beside the time on the
clock stands the processor time, which other programs change less.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._clock import seconds_of
from hushpore import Corrections, Volume, measure_labels, segment_pores

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.pores.result import Pores

#: Pores along each edge of the volume, of about 10 voxels each.
EDGES = (6, 13, 27)
CELL = 10

#: Times that each correction is made, each time of other pores.
ROUNDS = 5


def measure() -> dict[str, Any]:
    """Seconds of each correction, the least and the median, and those of measuring from scratch."""
    return {f"{edge**3:,} pores": _corrected(edge) for edge in EDGES}


def foam(edge: int) -> Volume:
    """Return a solid with a ball in each cell; larger balls touch those beside them."""
    along = np.arange(CELL) - (CELL - 1) / 2
    away = np.sqrt(along[:, None, None] ** 2 + along[:, None] ** 2 + along**2)
    radii = np.random.default_rng(0).uniform(3.5, 5.3, (edge,) * 3)
    void = away[None, :, None, :, None, :] <= radii[:, None, :, None, :, None]
    return Volume(np.where(void, np.uint8(20), np.uint8(200)).reshape((edge * CELL,) * 3), 1.0)


def _corrected(edge: int) -> dict[str, Any]:
    scan = foam(edge)
    found = segment_pores(scan, threshold=100)
    fix, labels = Corrections(found), found.pores["label"].to_numpy()
    took: dict[str, list[tuple[float, float]]] = {}
    # pores far from each other, so that no correction meets another
    for number, first in enumerate(np.linspace(0, len(labels) - 2, ROUNDS + 1).astype(int)):
        for name, act in _ways(fix, found, labels[first], labels[first + 1]).items():
            seconds = _seconds(fix, act)
            # the first round compiles
            if number:
                took.setdefault(name, []).append(seconds)
    scratch: list[Pores] = []
    again = seconds_of(lambda: scratch.append(_from_scratch(fix.result, scan)))
    return {
        "voxels": found.labels.size,
        "pores": len(labels),
        "seconds": {name: _least_and_median([each[0] for each in took[name]]) for name in took},
        "processor seconds": {
            name: _least_and_median([each[1] for each in took[name]]) for name in took
        },
        "seconds from scratch": round(again, 3),
        "equal to measuring from scratch": _are_equal(fix.result, scratch[0]),
    }


def _ways(fix: Corrections, found: Pores, one: int, other: int) -> dict[str, Callable[[], None]]:
    """Return the corrections of two pores, in order."""
    box = found.pores.set_index("label").loc[one]
    start, stop = (
        np.array([box[f"bbox_{axis}_{end}"] for axis in "zyx"], int) for end in ("start", "stop")
    )
    middle = (start + stop) // 2
    ends = np.array([middle, middle])
    ends[0, 2], ends[1, 2] = start[2] + 1, stop[2] - 2
    stroke = np.array([(*middle[:2], x) for x in range(start[2], stop[2])])
    line = np.array([[middle[0], start[1], middle[2] + 0.5], [middle[0], stop[1], middle[2] + 0.5]])
    return {
        "split": lambda: fix.split(one, ends),
        "undo": fix.undo,
        "cut": lambda: fix.cut(one, line),
        "merge": lambda: fix.merge([one, other]),
        "erase": lambda: fix.erase(stroke),
        "paint": lambda: fix.paint(stroke),
        "delete": lambda: fix.delete([_at(fix, middle)]),
    }


def _at(fix: Corrections, voxel: np.ndarray) -> int:
    return int(fix.result.labels[tuple(voxel)])


def _seconds(fix: Corrections, act: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of a correction with its tables: on the clock, and of the processor."""

    def work() -> None:
        act()
        result = fix.result
        _ = result.pores, result.throats, result.porosity_profile

    start = time.process_time()
    return seconds_of(work), time.process_time() - start


def _from_scratch(result: Pores, scan: Volume) -> Pores:
    volume = Volume(result.labels, result.volume.spacing, result.volume.unit)
    again = measure_labels(volume, values="labels", image=scan)
    _ = again.pores, again.throats, again.porosity_profile
    return again


def _are_equal(found: Pores, truth: Pores) -> bool:
    """Whether the columns of all pores, and the totals of the void, are the same to the bit."""
    ours, theirs = found.pores.drop(columns="label"), truth.pores
    totals, true = found.provenance["result"], truth.provenance["result"]
    names = "porosity", "count", "open_porosity", "closed_porosity", "euler_number"
    return ours.equals(theirs[list(ours)]) and all(totals[name] == true[name] for name in names)


def _least_and_median(seconds: list[float]) -> dict[str, float]:
    return {"least": round(min(seconds), 4), "median": round(float(np.median(seconds)), 4)}
