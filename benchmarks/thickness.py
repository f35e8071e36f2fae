"""Local thickness against PoreSpy and the package localthickness: time, memory and values.

All run in turn in one process; CPU time is that of all threads, and the smallest of the rounds
counts. Values are compared with those of hushpore in the same run: widths between walls, where
earlier runs had diameters of balls about voxels. How far each is from a known truth is measured in
`thickness_truth`. PoreSpy 3 takes whole radii alone, rounded down; its former way,
``method="legacy"``, takes any, one distance map for each: with every distance that there is it
finds every ball about a voxel, with one in each half voxel it is as coarse as PoreSpy 2 was by
default, or finer. What takes minutes is run once. Volumes: the void and the solid of Berea
sandstone, 200^3, and a foam of 256^3. What a package that is not installed would do is left out.

With ``--peers FILE`` only hushpore is measured, and the rows of an earlier run are kept beside it,
hushpore's of that run among them, named by its commit: every size takes PoreSpy more than 1,000 s
of the foam, and was not waited for. Ratios are always of one run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from benchmarks.pores import berea
from hushpore.base.events import result_of
from hushpore.device.backend import cpu_threads
from hushpore.pores.geometry.thickness import find_thickness
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.plan import AT_A_TIME
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.watershed.distance import squared_distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROUNDS = 2
FOAM = 256  # edge
_PEAK = """
import sys
from pathlib import Path
import numpy as np
from benchmarks.thickness import CONTESTANTS

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

phase, run = np.load(sys.argv[1]), CONTESTANTS[sys.argv[2]]
run(phase[:40, :40, :40])
before = status("VmRSS")
run(phase)
print((status("VmHWM") - before) / phase.size)
"""


def hushpore_thickness(phase: np.ndarray) -> np.ndarray:
    """Diameters and their distribution; with the distance that they need."""
    with KernelThreads() as threads:
        ends = False, False, False
        distance = squared_distance(phase, (1, 1, 1), ends, threads)
        found = Stack(distance.shape, np.float32, None)
        slabs = Slabs(len(phase), max(8, AT_A_TIME // phase[0].size))
        result_of(find_thickness(Stack.of(distance), slabs, found, (1, 1, 1), ends, threads))
    return found.array()


def porespy_thickness(phase: np.ndarray) -> np.ndarray:
    """By PoreSpy, as it is by default; it gives radii."""
    import porespy

    porespy.settings.tqdm = {"disable": True}
    return 2 * np.asarray(porespy.filters.local_thickness(phase), np.float32)


def porespy_every_size(phase: np.ndarray) -> np.ndarray:
    """By PoreSpy with every distance that there is: every ball about a voxel."""
    return _porespy_sizes(phase, None)


def porespy_half_voxels(phase: np.ndarray) -> np.ndarray:
    """By PoreSpy with the smallest distance in each half voxel."""
    return _porespy_sizes(phase, 0.5)


def _porespy_sizes(phase: np.ndarray, step: float | None) -> np.ndarray:
    import porespy
    from porespy.tools import get_edt

    distance = get_edt()(phase)
    sizes = np.unique(distance[phase])
    if step is not None:
        sizes = sizes[np.unique(np.floor(sizes / step), return_index=True)[1]]
    given = {"dt": distance, "method": "legacy", "sizes": sizes}
    return 2 * np.asarray(porespy.filters.local_thickness(phase, **given), np.float32)


def localthickness_thickness(phase: np.ndarray) -> np.ndarray:
    """By the package localthickness at full size; it gives radii."""
    import localthickness

    return 2 * np.asarray(localthickness.local_thickness(phase), np.float32)


CONTESTANTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "hushpore": hushpore_thickness,
    "porespy": porespy_thickness,
    "porespy, half voxels": porespy_half_voxels,
    "porespy, every size": porespy_every_size,
    "localthickness": localthickness_thickness,
}
ONCE = ("porespy, every size", "localthickness")


def foam(size: int) -> np.ndarray:
    """Cells with windows between them, some 40 voxels wide: 70 % of the volume."""
    noise = np.random.default_rng(1).normal(size=(size,) * 3).astype(np.float32)
    smooth = ndimage.gaussian_filter(noise, 10, mode="wrap")
    void: np.ndarray = smooth > np.quantile(smooth, 0.3)
    return void


def _compared(phase: np.ndarray, contestants: Iterable[str]) -> dict[str, Any]:
    times: dict[str, list[tuple[float, float]]] = {}
    values: dict[str, np.ndarray] = {}
    for turn in range(ROUNDS):
        for name in contestants:
            if turn and name in ONCE:
                continue
            run = CONTESTANTS[name]
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                values[name] = run(phase)[phase]
            except ImportError:
                continue
            used = (time.perf_counter() - wall, time.process_time() - cpu)
            times.setdefault(name, []).append(used)
    own, ours = min(cpu for _, cpu in times["hushpore"]), values["hushpore"].astype(np.float64)
    return {
        name: {
            "wall_s": round(min(wall for wall, _ in used), 2),
            "cpu_s": round(min(cpu for _, cpu in used), 2),
            "cpu_ratio": round(min(cpu for _, cpu in used) / own, 2),
            "mean": round(float(values[name].mean(dtype=np.float64)), 3),
            "distinct_values": len(np.unique(values[name])),
            "mean_difference": round(float((values[name] - ours).mean()), 3),
            "rms_difference": round(float(np.sqrt(((values[name] - ours) ** 2).mean())), 3),
            "largest_difference": round(float(np.abs(values[name] - ours).max()), 3),
        }
        for name, used in times.items()
    }


def _kept(peers: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the rows of an earlier run, each with the commit of its run."""
    return {
        row if "(of " in row else f"{row} (of {peers['commit']})": figures
        for row, figures in peers["figures"].get(name, {}).items()
        # what was measured beside rows that were kept is not kept itself
        if "(of " in row or not any("(of " in other for other in peers["figures"][name])
    }


def measure(peers: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Run all of it; half an hour, most of it for the others.

    `peers`: an earlier result, whose rows are kept; then it takes a minute.
    """
    rock = berea()
    volumes = {"berea void": rock, "berea solid": ~rock, f"foam {FOAM}": foam(FOAM)}
    contestants = list(CONTESTANTS) if peers is None else ["hushpore"]
    for name in contestants:
        with suppress(ImportError):
            CONTESTANTS[name](rock[:40, :40, :40])
    figures: dict[str, Any] = {"threads": cpu_threads(), "unit": "voxels of diameter"}
    for name, phase in volumes.items():
        figures[name] = _compared(phase, contestants) | (_kept(peers, name) if peers else {})
        yield figures
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "phase.npy"
        np.save(path, volumes[f"foam {FOAM}"][:, :, : FOAM // 2])
        command = [sys.executable, "-c", _PEAK, str(path)]
        title, peak = f"peak bytes a voxel above the input, half a foam {FOAM}", {}
        for name in ("hushpore", "porespy"):
            if name not in figures["berea void"]:
                continue
            done = subprocess.run([*command, name], check=True, capture_output=True, text=True)
            peak[name] = round(float(done.stdout), 1)
    figures[title] = peak | (_kept(peers, title) if peers else {})
    yield figures
