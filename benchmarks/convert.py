"""A scan of 1 GiB to OME-Zarr within a memory budget: seconds, speed and peak memory.

A noisy void of 512 x 1024 x 1024 uint16 voxels, uncompressed, as a DICOM series and as TIFF (one
file, and a file a slice), is converted by a new process each. The peak is what the kernel states
for the process at its highest, ``VmHWM``, above what it was after a small conversion, with all
libraries in memory; pages of mapped files are in it. The files were written before, and so come out
of the system's cache as far as that holds them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from scipy import ndimage

from hushpore.base.volume import Volume
from hushpore.io.dicom import write_series
from hushpore.io.zarr import write_zarr

SHAPE, TILE = (512, 1024, 1024), 128
BUDGETS = (0.25, 1.0)  # GB

_RUN = """
import json, sys, time
from pathlib import Path
import numpy as np
import hushpore

scan, target, small, budget = sys.argv[1:]


def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


hushpore.convert(small, target + ".small.ome.zarr", memory_budget=0.1)
before = peak()
begun = time.perf_counter()
done = hushpore.convert(scan, target, memory_budget=float(budget))
seconds = time.perf_counter() - begun
print(json.dumps({"seconds": seconds, "before": before, "peak": peak(), "stored": done.stored,
                  "levels": done.levels}))
"""


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        volume = _scan()
        nbytes = volume.nbytes
        kinds = {"TIFF, one file": root / "scan.tif", "TIFF, a file a slice": root / "slices",
                 "DICOM": root / "dicom"}  # fmt: skip
        tifffile.imwrite(root / "scan.tif", volume.data, photometric="minisblack")
        (root / "slices").mkdir()
        for number, plane in enumerate(volume.data):
            tifffile.imwrite(root / "slices" / f"{number:04}.tif", plane, photometric="minisblack")
        write_series(volume, root / "dicom")
        small = write_zarr(root / "small.zarr", volume.replace(volume.data[:4, :64, :64].copy()))
        del volume
        found: dict[str, Any] = {"voxels": list(SHAPE), "bytes": nbytes}
        for budget in BUDGETS:
            found[f"within {budget:g} GB"] = {
                kind: _converted(scan, root / "out.ome.zarr", small, budget)
                for kind, scan in kinds.items()
            }
        found["a copy of the file"] = _copied(root, nbytes)
    return found


def _converted(scan: Path, target: Path, small: Path, budget: float) -> dict[str, Any]:
    words = [sys.executable, "-c", _RUN, str(scan), str(target), str(small), str(budget)]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)
    known = json.loads(ran.stdout)
    for path in target.parent.glob("out.ome.zarr*"):
        shutil.rmtree(path)
    nbytes = 2 * int(np.prod(SHAPE))
    return {
        "seconds": round(known["seconds"], 2),
        "MB a second": round(nbytes / known["seconds"] / 1e6),
        "peak above the program, MB": round((known["peak"] - known["before"]) / 1e6),
        "program, MB": round(known["before"] / 1e6),
        "stored, MB": round(known["stored"] / 1e6),
        "levels": len(known["levels"]),
    }


def _copied(root: Path, nbytes: int) -> dict[str, float]:
    """Return how fast the same bytes are copied to the same disk, to compare with."""
    begun = time.perf_counter()
    shutil.copyfile(root / "scan.tif", root / "copy.tif")
    seconds = time.perf_counter() - begun
    return {"seconds": round(seconds, 2), "MB a second": round(nbytes / seconds / 1e6)}


def _scan() -> Volume:
    rng = np.random.default_rng(0)
    tile = ndimage.gaussian_filter(rng.normal(size=(TILE,) * 3).astype(np.float32), 3, mode="wrap")
    tile = np.where(tile > 0, 22000, 9000) + rng.normal(0, 900, tile.shape)
    values = np.tile(tile.astype(np.uint16), [n // TILE for n in SHAPE])
    return Volume(values, spacing=(0.01, 0.01, 0.01), unit="mm", name="scan")
