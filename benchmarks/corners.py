"""Voids that are unlike a rock: processor time and memory a voxel, beside those of a rock.

Half noise, single voxels of void, a checkerboard, an image, a thin plate, one void without any
wall, and pores by the thousand, each of about as many voxels as the rock. Each is segmented and
measured in a process of its own, in one thread, as often as `ROUNDS` says, with no result of
another round beside it: of times the least counts, and of memory the most that was in use beyond
the input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from benchmarks import pores

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
EDGE = 200  # of cubes, as of the rock
IMAGE = 2828  # edge of an image
PLATE = 894  # edge of a plate of ten slices
_CHILD = """
import json
import sys
import time
from pathlib import Path
import numpy as np
import hushpore
from hushpore.device.backend import Backend
from hushpore.pores import parallel

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

void, rounds = np.load(sys.argv[1]), int(sys.argv[2])
kept, parallel.cpu_threads = parallel.cpu_threads, lambda: 1
tiny = tuple(slice(0, min(length, 12)) for length in void.shape)
# with its tables, so that pandas is there
len(hushpore.segment_pores(np.ascontiguousarray(void[tiny]), device=Backend()).pores)
before = status("VmRSS")
seconds, found = [], None
for _ in range(rounds):
    del found
    start = time.process_time()
    found = hushpore.segment_pores(void, device=Backend())
    seconds.append(time.process_time() - start)
parallel.cpu_threads = kept
peak = (status("VmHWM") - before) / void.size
print(json.dumps([min(seconds) / void.size * 1e9, peak, len(found.pores)]))
"""


def measure() -> dict[str, Any]:
    """Run all; two minutes."""
    found: dict[str, Any] = {}
    for name, make in {"berea": pores.berea, **_corners()}.items():
        found[name] = _in_new_process(make())
        rock = found["berea"]["cpu ns a voxel"]
        found[name]["times a rock's"] = round(found[name]["cpu ns a voxel"] / max(rock, 1e-9), 2)
    return found


def _corners() -> dict[str, Callable[[], np.ndarray]]:
    cube = (EDGE,) * 3
    return {
        "half noise": lambda: _random(cube) < 0.5,
        "single voxels": lambda: _random(cube) < 0.02,
        "checkerboard": lambda: np.indices(cube, np.int32).sum(axis=0) % 2 == 0,
        "an image": lambda: _smooth((IMAGE, IMAGE)),
        "an image of half noise": lambda: _random((IMAGE, IMAGE)) < 0.5,
        "a plate of 10 slices": lambda: _smooth((10, PLATE, PLATE)),
        "one void": lambda: np.pad(np.ones(np.subtract(cube, 2), np.bool_), 1),
        "no solid": lambda: np.ones(cube, np.bool_),
        "a pore for 216 voxels": _grid,
    }


def _random(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32)


def _smooth(shape: tuple[int, ...]) -> np.ndarray:
    """Return a smooth void, half of the volume."""
    smooth = ndimage.gaussian_filter(_random(shape), 5.0, mode="wrap")
    void: np.ndarray = smooth > np.median(smooth)
    return void


def _grid() -> np.ndarray:
    """Return cubes of four voxels, two apart."""
    along = np.arange(EDGE) % 6 < 4
    void: np.ndarray = along[:, None, None] & along[:, None] & along
    return void


def _in_new_process(void: np.ndarray) -> dict[str, Any]:
    """Return time and memory a voxel, and how many pores there are."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "void.npy"
        np.save(path, void)
        command = [sys.executable, "-c", _CHILD, str(path), str(ROUNDS)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    nanoseconds, peak, count = json.loads(done.stdout)
    return {
        "cpu ns a voxel": round(nanoseconds, 1),
        "peak bytes a voxel": round(peak, 1),
        "pores": count,
    }
