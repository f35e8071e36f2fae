"""What the first segmentation costs: in a fresh installation, and in each process after.

Every call is a process of its own, with a cache of compiled code of its own: empty for the first,
full for those after. Timed from before the first import to the result, tables included, of a small
void; and of small grey values with Otsu's threshold, for which scikit-image is loaded as well.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 5

_CALL = """
import json, sys, time
start, used = time.perf_counter(), time.process_time()
import numpy as np
import numba
numba_in = time.perf_counter()
from hushpore.jobs import run
from hushpore.device.backend import Backend
stages = []
noise = np.random.default_rng(0).random((40, 40, 40))
volume = noise > 0.3 if sys.argv[1] == "void" else (255 * noise).astype(np.uint8)
result = run("pores", volume, {}, Backend(), lambda event: stages.append(event))
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "cpu_seconds": time.process_time() - used,
    "numba and numpy": numba_in - start,
    "preparing": result.timings["preparing"],
    "other stages": sum(result.timings.values()) - result.timings["preparing"],
}))
"""


def measure() -> dict[str, object]:
    """Seconds of the first call and of those after, for a void and for grey values."""
    figures: dict[str, object] = {}
    for kind in ("void", "grey"):
        with tempfile.TemporaryDirectory() as cache:
            first = _call(kind, cache)
            after = [_call(kind, cache) for _ in range(ROUNDS)]
        figures[f"{kind}: first call, fresh"] = _rounded(first)
        median = {name: statistics.median(each[name] for each in after) for name in first}
        figures[f"{kind}: first call, a process after"] = _rounded(median)
    return figures


def _call(kind: str, cache: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _CALL, kind],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in found.items()}
