"""Pores of a volume on disk, within a memory budget: time, peak memory and disk, in a new process.

The volume, of more than 2^31 voxels, is one of `benchmarks._tiles`, raw uint8 that is read through
a memory map. Peak memory is what the kernel states for the process at its highest, ``VmHWM``:
private memory and all pages of mapped files that were resident, with the interpreter and all
libraries; the file cache of the system is not in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._tiles import write_volume
from hushpore.device.backend import cpu_threads

SIZE = 1300
BUDGET = 2.5  # GB

_RUN = """
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from benchmarks._tiles import compare
from hushpore.device.backend import Backend
from hushpore.jobs.functions import segment_pores
from hushpore.device.memory import scratch_folder

path, size, budget = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


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
    "most temporary files, GiB": round(most["disk"] / 2**30, 2),
}

figures |= compare(values, result.labels, result.pores, result.throats)
print(json.dumps(figures))
"""


def measure() -> dict[str, Any]:
    """Run it once; ten minutes, and about 25 GB of disk."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "volume.raw"
        write_volume(path, SIZE)
        command = [sys.executable, "-c", _RUN, str(path), str(SIZE), str(BUDGET)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return {"threads": cpu_threads(), **figures}
