"""What the first segmentation costs: in a fresh installation, and in each process after.

Every call is a process of its own, with a cache of compiled code of its own: empty for the first,
full for those after. Timed from before the first import to the result, tables included, of a small
void; and of small grey values with Otsu's threshold, for which scikit-image is loaded as well.
Where the environment variable HUSHPORE_BEFORE names the ``src`` of an earlier version, that version
runs in turn with this one.
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
noise = np.random.default_rng(0).random((40, 40, 40))
volume = noise > 0.3 if sys.argv[1] == "void" else (255 * noise).astype(np.uint8)
result = run("pores", volume, {}, Backend())
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "cpu_seconds": time.process_time() - used,
    "importing numpy and numba, s": numba_in - start,
    "preparing, s": result.timings["preparing"],
    "other stages, s": sum(result.timings.values()) - result.timings["preparing"],
}))
"""


def measure() -> dict[str, object]:
    """Seconds of the first call and of those after, for a void and for grey values."""
    before = os.environ.get("HUSHPORE_BEFORE")
    sources = {"now": "", **({"before": before} if before else {})}
    figures: dict[str, object] = {}
    for kind in ("void", "grey"):
        calls: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(1 + ROUNDS):
                for name, source in sources.items():
                    calls[name].append(_call(kind, os.path.join(folder, name), source))
        for name, (first, *after) in calls.items():
            median = {key: statistics.median(each[key] for each in after) for key in first}
            figures[f"{kind}, {name}"] = {
                "first call, fresh": _rounded(first),
                "first call, each process after": _rounded(median),
            }
    return figures


def _call(kind: str, cache: str, source: str) -> dict[str, float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    if source:
        environment["PYTHONPATH"] = source
    done = subprocess.run(
        [sys.executable, "-c", _CALL, kind],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in found.items()}
