"""Pore labels against PoreSpy and against SciPy with scikit-image, in time and memory a voxel.

All contestants run in turn in the same process, as often as `ROUNDS` says, and the median counts.
CPU time is that of all threads. What a package that is not installed would do is left out.
Volumes: a random smooth void at three sizes, and Berea sandstone where its file is there.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.device.backend import Backend, cpu_threads
from hushpore.pores.numbering import number_basins
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import (
    find_basins,
    find_closed,
    find_distance,
    find_grey_value,
    find_void,
    measure_basins,
    write_labels,
)
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.void.components import find_components
from hushpore.pores.watershed.basins import watershed_slab
from hushpore.pores.watershed.distance import squared_distance
from hushpore.pores.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
SIZES = (128, 256, 400)
ROCK = 200  # edge of what is taken of Berea sandstone
BEREA = Path(__file__).parents[1] / "tests" / "data" / "rocks" / "berea_200.npz"
CPU = Backend()
_COLD = """
import time
start = time.perf_counter()
import numpy as np
from hushpore.jobs.functions import segment_pores
from hushpore.device.backend import Backend
segment_pores(np.random.default_rng(0).random((40, 40, 40)) > 0.3, device=Backend())
print(time.perf_counter() - start)
"""
_PEAK = """
import sys
from pathlib import Path
import numpy as np
from hushpore.jobs.functions import segment_pores
from hushpore.device.backend import Backend

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

void = np.load(sys.argv[1])
segment_pores(void[:30, :30, :30], device=Backend())
before = status("VmRSS")
result = segment_pores(void, device=Backend())
print((status("VmHWM") - before) / void.size)
"""


def blobs(size: int) -> np.ndarray:
    """A smooth random void, half of the volume, with pores of about 20 voxels."""
    noise = np.random.default_rng(0).normal(size=(size,) * 3).astype(np.float32)
    smooth = ndimage.gaussian_filter(noise, 5.0, mode="wrap")
    void: np.ndarray = smooth > np.median(smooth)
    return void


def berea() -> np.ndarray:
    """Return the void of Berea sandstone, 200^3 voxels unless `ROCK` says less."""
    with np.load(BEREA) as stored:
        void = np.unpackbits(stored["void"], count=200**3).reshape(200, 200, 200)
    return np.ascontiguousarray(void[:ROCK, :ROCK, :ROCK].astype(bool))


def segment(void: np.ndarray) -> None:
    """hushpore: labels and all tables."""
    hushpore.segment_pores(void, device=CPU)


def label(void: np.ndarray) -> None:
    """hushpore: labels alone, without the search for closed pores, tables and record."""
    volume, settings = Volume(void), PoreSettings()
    slabs = Slabs(len(void), len(void))
    with closing(Scratch(on_disk=False)) as scratch, KernelThreads() as threads:
        work = Work(volume, settings, slabs, scratch, threads)
        phase = result_of(find_void(work, result_of(find_grey_value(work))))
        distance = result_of(find_distance(work, phase))
        closed = result_of(find_closed(work, phase))
        unstitched = result_of(find_basins(work, distance))
        graph = result_of(measure_basins(work, unstitched, closed, distance, None)).graph()
        numbering = number_basins(graph, settings, volume)
        labels = scratch.stack("labels", unstitched.stack.shape, np.int32)
        result_of(write_labels(unstitched.stack, numbering.label_of, slabs, labels, threads))


def scipy_skimage(void: np.ndarray) -> None:
    """The usual recipe: distance, its peaks as markers, watershed."""
    from skimage.feature import peak_local_max
    from skimage.segmentation import watershed

    distance = ndimage.distance_transform_edt(void)
    peaks = peak_local_max(distance, min_distance=4, labels=void.astype(np.uint8))
    markers = np.zeros(void.shape, np.int32)
    markers[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
    watershed(-distance, markers, mask=void)


def snow(void: np.ndarray) -> None:
    """PoreSpy's SNOW."""
    import porespy

    porespy.settings.tqdm = {"disable": True}
    porespy.filters.snow_partitioning(void)


def scipy_label(void: np.ndarray) -> None:
    """6-connected components by SciPy."""
    ndimage.label(void)


def scipy_distance(void: np.ndarray) -> None:
    """Distance by SciPy."""
    ndimage.distance_transform_edt(void)


def edt_distance(void: np.ndarray) -> None:
    """Squared distance by the package edt."""
    import edt

    edt.edtsq(void, parallel=cpu_threads())


def cc3d_label(void: np.ndarray) -> None:
    """6-connected components by cc3d."""
    import cc3d

    cc3d.connected_components(void, connectivity=6)


def _stages(threads: KernelThreads) -> dict[str, Callable[[np.ndarray], Any]]:
    def distance(void: np.ndarray) -> np.ndarray:
        return squared_distance(void, (1, 1, 1), (False,) * 3, threads)

    def basins(height: np.ndarray) -> np.ndarray:
        found = np.empty(height.shape, np.int32)
        watershed_slab(height, found, threads, 0, len(height))
        return found

    return {
        "components: hushpore": lambda void: find_components(void, (True,) * 3, threads),
        "components: scipy": scipy_label,
        "components: cc3d": cc3d_label,
        "distance: hushpore": distance,
        "distance: scipy": scipy_distance,
        "distance: edt": edt_distance,
        "distance and basins: hushpore": lambda void: basins(distance(void)),
    }


def _interleave(
    contestants: dict[str, Callable[[np.ndarray], Any]], void: np.ndarray, rounds: int
) -> dict[str, dict[str, float]]:
    """Run all in turn; returns nanoseconds a voxel, by clock and of CPU time."""
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                run(void)
            except ImportError:
                continue
            used = (time.perf_counter() - wall, time.process_time() - cpu)
            times.setdefault(name, []).append(used)
    return {
        name: {
            "wall_ns_a_voxel": round(statistics.median(w for w, _ in used) / void.size * 1e9, 1),
            "cpu_ns_a_voxel": round(statistics.median(c for _, c in used) / void.size * 1e9, 1),
        }
        for name, used in times.items()
    }


def _in_new_process(code: str, *arguments: str) -> float:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return round(float(done.stdout), 2)


def measure() -> dict[str, Any]:
    """Run all of it; several minutes."""
    import tempfile

    volumes = {f"blobs {size}": blobs(size) for size in SIZES}
    volumes[f"berea {ROCK}"] = berea()
    segment(volumes[f"blobs {SIZES[0]}"])
    figures: dict[str, Any] = {"threads": cpu_threads()}
    with KernelThreads() as threads:
        stages = _stages(threads)
        for name, void in volumes.items():
            whole = {"hushpore, labels alone": label, "hushpore, with all tables": segment}
            if void.size < 300**3:
                whole |= {"scipy and scikit-image": scipy_skimage, "porespy snow": snow}
            figures[name] = _interleave({**whole, **stages}, void, ROUNDS)
            result = hushpore.segment_pores(void, device=CPU)
            figures[name]["hushpore stages, s"] = {
                stage: round(seconds, 4) for stage, seconds in result.timings.items()
            }
            start = time.perf_counter()
            result.remerge(1.0)
            figures[name]["hushpore remerge, s"] = round(time.perf_counter() - start, 4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "void.npy"
        np.save(path, volumes[f"blobs {SIZES[1]}"])
        peak = _in_new_process(_PEAK, str(path))
        figures[f"peak bytes a voxel above the input, blobs {SIZES[1]}"] = peak
    figures["first call in a new process, s"] = _in_new_process(_COLD)
    return figures
