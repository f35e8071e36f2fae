"""Whether threads that wait should spin: a training step alone, and beside one busy program.

Each measurement is a process of its own, since the policy is read when OpenMP is loaded; spinning
and passive processes take turns.
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
import time
import torch
from benchmarks.denoise_step import training_step
from hushpore.device.backend import Backend
from hushpore.n2v2.training import choose_precision
step = training_step("cpu", choose_precision("auto", Backend()))
step(), step()
start = time.perf_counter()
for _ in range({STEPS}): step()
print((time.perf_counter() - start) / {STEPS})
"""

BUSY = "while True: pass"

#: What the environment says, by name. The counts are of GNU's OpenMP, which is PyTorch's on Linux.
POLICIES = {
    "default": {},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "a thousand turns": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"},
    "ten thousand turns": {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"},
}


def measure() -> dict[str, object]:
    """Median milliseconds a step, by policy, alone and beside a busy program."""
    figures: dict[str, object] = {}
    for name, busy in (("alone", False), ("beside a busy program", True)):
        times: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        for _ in range(ROUNDS):
            for policy, found in times.items():
                found.append(_milliseconds(policy, busy))
        figures[name] = {
            f"{policy}_ms": round(statistics.median(found), 1) for policy, found in times.items()
        }
    return figures


def _milliseconds(policy: str, busy: bool) -> float:
    other = subprocess.Popen([sys.executable, "-c", BUSY]) if busy else None
    try:
        inherited = {k: v for k, v in os.environ.items() if k not in POLICIES["a thousand turns"]}
        environment = inherited | POLICIES[policy]
        done = subprocess.run(
            [sys.executable, "-c", STEP], env=environment, check=True, capture_output=True
        )
    finally:
        if other is not None:
            other.kill()
            other.wait()
    return 1e3 * float(done.stdout)
