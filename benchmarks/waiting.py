"""Whether threads that wait should spin: a training step alone, beside a busy program or thread.

The thread is one that has done a step before and does nothing now: GNU's OpenMP counts its helpers
too, finds more threads than processors, and lets them spin less. Each measurement is a process of
its own, since the policy is read when OpenMP is loaded; they take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

STEPS = 15
ROUNDS = 4

# PyTorch first, so that the policy is what the environment says
STEP = f"""
import sys, threading, time
import torch
from benchmarks.denoise_step import training_step
from hushpore.device.backend import Backend
from hushpore.denoising.training.step import choose_precision
step = training_step("cpu", choose_precision("auto", Backend()))
def measure():
    step(), step()
    start = time.perf_counter()
    for _ in range({STEPS}): step()
    print((time.perf_counter() - start) / {STEPS})
if "thread" in sys.argv:
    step()
    thread = threading.Thread(target=measure)
    thread.start(), thread.join()
else:
    measure()
"""

BUSY = "while True: pass"

ALONE, PROGRAM, THREAD = "alone", "beside a busy program", "beside a thread that is done"

#: What the environment says, by name. The counts are of GNU's OpenMP, which is PyTorch's on Linux.
POLICIES = {
    "default": {},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "a thousand turns": {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "1000"},
    "a thousand turns, passive": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"},
    "a thousand turns, no policy": {"GOMP_SPINCOUNT": "1000"},
    "ten thousand turns": {"OMP_WAIT_POLICY": "ACTIVE", "GOMP_SPINCOUNT": "10000"},
}


def measure() -> dict[str, object]:
    """Median milliseconds a step, by policy and by what is beside it."""
    figures: dict[str, object] = {}
    for name in (ALONE, PROGRAM, THREAD):
        times: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        for _ in range(ROUNDS):
            for policy, found in times.items():
                found.append(_milliseconds(policy, name))
        figures[name] = {
            f"{policy}_ms": round(statistics.median(found), 1) for policy, found in times.items()
        }
    return figures


def _milliseconds(policy: str, beside: str) -> float:
    other = subprocess.Popen([sys.executable, "-c", BUSY]) if beside == PROGRAM else None
    try:
        inherited = {k: v for k, v in os.environ.items() if k not in POLICIES["a thousand turns"]}
        environment = inherited | POLICIES[policy]
        command = [sys.executable, "-c", STEP, *(["thread"] if beside == THREAD else [])]
        done = subprocess.run(command, env=environment, check=True, capture_output=True)
    finally:
        if other is not None:
            other.kill()
            other.wait()
    return 1e3 * float(done.stdout)
