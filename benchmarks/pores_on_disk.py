"""Pores of a volume on disk, within a memory budget: time, peak memory and disk, in a new process.

The volume, of more than 2^31 voxels, is a smooth random void with noise, in tiles that are all
alike and have walls, written slice by slice as raw uint8 and read through a memory map. The truth
is one tile, segmented alone and in memory: every tile has to have its labels and its measures.
Peak memory is what the kernel states for the process at its highest, ``VmHWM``: private memory and
all pages of mapped files that were resident, with the interpreter and all libraries; the file cache
of the system is not in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from hushpore.device.backend import cpu_threads

SIZE = 1300
TILE = 130
BUDGET = 2.5  # GB

_RUN = """
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from hushpore.device.backend import Backend
from hushpore.jobs import segment_pores
from hushpore.device.scratch import scratch_folder

path, size, edge, budget = sys.argv[1], *map(int, sys.argv[2:4]), float(sys.argv[4])


def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


most = {"disk": 0, "RssAnon": 0, "RssFile": 0}
done = threading.Event()


def watch():
    while not done.wait(0.05):
        try:
            files = scratch_folder().glob("hushpore-*/*.raw")
            used = sum(file.stat().st_blocks * 512 for file in files)
        except FileNotFoundError:  # removed meanwhile
            continue
        most["disk"] = max(most["disk"], used)
        for key in ("RssAnon", "RssFile"):
            most[key] = max(most[key], status(key))


values = np.memmap(path, np.uint8, "r", shape=(size,) * 3)
segment_pores(np.asarray(values[:16, :64, :64]), device=Backend())
before = status("VmHWM")
threading.Thread(target=watch, daemon=True).start()
start, cpu = time.perf_counter(), time.process_time()
result = segment_pores(values, device=Backend(), memory_budget=budget)
wall, cpu = time.perf_counter() - start, time.process_time() - cpu
done.set()
figures = {
    "voxels": size**3,
    "memory_budget, GB": budget,
    "notes": list(result.notes),
    "wall, s": round(wall, 1),
    "cpu, s": round(cpu, 1),
    "wall_ns_a_voxel": round(wall / size**3 * 1e9, 1),
    "stages, s": {stage: round(seconds, 1) for stage, seconds in result.timings.items()},
    "pores": len(result.pores),
    "throats": len(result.throats),
    "basins": result._graph.count,
    "porosity": result.porosity,
    "peak resident memory (VmHWM), GiB": round(status("VmHWM") / 2**30, 2),
    "of it before the run, GiB": round(before / 2**30, 2),
    "most private memory (RssAnon), GiB": round(most["RssAnon"] / 2**30, 2),
    "most mapped files (RssFile), GiB": round(most["RssFile"] / 2**30, 2),
    "most temporary files, bytes a voxel": round(most["disk"] / size**3, 2),
}

tile = segment_pores(np.asarray(values[:edge, :edge, :edge]), device=Backend())
tiles = [
    tuple(slice(at, at + edge) for at in (z, y, x))
    for z in range(0, size, edge) for y in range(0, size, edge) for x in range(0, size, edge)
]
places = ["centroid_z", "centroid_y", "centroid_x"]
same = ["num_voxels", "surface_area", "inscribed_diameter", "equivalent_diameter", "num_throats"]
table = result.pores.set_index("label")


def is_same(at):
    labels, truth = result.labels[at], tile.labels
    label_of = np.zeros(len(tile.pores) + 1, labels.dtype)
    label_of[truth] = labels
    if label_of[0] or not np.array_equal(label_of[truth], labels):
        return False
    found = table.loc[label_of[tile.pores["label"]]]
    corner = [each.start for each in at]
    return bool(
        len(np.unique(label_of)) == label_of.size
        and np.allclose(found[same], tile.pores[same], rtol=1e-9, equal_nan=True)
        and np.allclose(found[places] - corner, tile.pores[places], atol=1e-6)
    )


alike = sum(map(is_same, tiles))
figures["tiles with the labels and measures of one alone"] = f"{alike} of {len(tiles)}"
figures["pores and throats beyond those"] = [
    len(all_of) - len(tiles) * len(of_one)
    for all_of, of_one in ((result.pores, tile.pores), (result.throats, tile.throats))
]
print(json.dumps(figures))
"""


def write_volume(path: Path, size: int) -> None:
    """Write a noisy scan of a foam in tiles, (size, size, size), uint8, slice by slice."""
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


def measure() -> dict[str, Any]:
    """Run it once; ten minutes, and about 25 GB of disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "volume.raw"
        write_volume(path, SIZE)
        command = [sys.executable, "-c", _RUN, str(path), str(SIZE), str(TILE), str(BUDGET)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return {"threads": cpu_threads(), **figures}
