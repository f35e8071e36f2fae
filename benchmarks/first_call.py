"""What the first segmentation costs: in a fresh installation, and in each process after.

Every call is a process of its own, with a cache of compiled code of its own: empty for a fresh one,
full for those after. Timed from before the first import to the result, tables included, of grey
values with Otsu's threshold, for which scikit-image is loaded as well. Processor time is that of
this process, which a user waits for, and of those that compile beside it. Where the environment
variable HUSHPORE_BEFORE names the ``src`` of an earlier version, that version runs in turn with
this one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROUNDS = 3
SHAPE = (48, 160, 160)

_CALL = """
import json, os, sys, time
start, used = time.perf_counter(), time.process_time()
import numpy as np
import numba
numba_in = time.perf_counter()
from numba.core import event
from hushpore.jobs import run
from hushpore.device.backend import Backend

class Compiled(event.Listener):
    count = 0
    def on_start(self, what): Compiled.count += 1
    def on_end(self, what): pass

event.register("numba:compile", Compiled())
noise = np.random.default_rng(0).random(json.loads(sys.argv[1]))
result = run("pores", (255 * noise).astype(np.uint8), {}, Backend())
others = os.times()
print(json.dumps({
    "seconds": time.perf_counter() - start,
    "cpu_seconds": time.process_time() - used,
    "cpu_seconds beside": others.children_user + others.children_system,
    "compilations": Compiled.count,
    "importing numpy and numba, s": numba_in - start,
    "preparing, s": result.timings["preparing"],
    "other stages, s": sum(result.timings.values()) - result.timings["preparing"],
}))
"""


def measure() -> dict[str, object]:
    """The median of each figure of the first call, and of those after, of each version."""
    before = os.environ.get("HUSHPORE_BEFORE")
    sources = {"now": "", **({"before": before} if before else {})}
    fresh: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    after: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            for calls in (fresh, after):
                for name, source in sources.items():
                    calls[name].append(_call(os.path.join(folder, name), source))
    return {
        name: {
            "first call, fresh": _median(fresh[name]),
            "first call, each process after": _median(after[name]),
        }
        for name in sources
    }


def _median(calls: list[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(each[key] for each in calls), 3) for key in calls[0]}


def _call(cache: str, source: str) -> dict[str, float]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    if source:
        environment["PYTHONPATH"] = source
    done = subprocess.run(
        [sys.executable, "-c", _CALL, json.dumps(SHAPE)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found
