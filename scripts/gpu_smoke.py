"""Run each kind of job once on a small volume on a device.

What fails is printed, and the rest goes on::

    python scripts/gpu_smoke.py cuda

With ``cpu`` as the device it is the script itself that is tried.
"""

from __future__ import annotations

import sys
import time
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import ndimage as ndi

import hushpore
from hushpore import ndimage
from hushpore.device.backend import choose_backend

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (64, 96, 96)
#: Copies of the small volume that make one on which ``auto`` tries the GPU.
TILES = (6, 4, 4)


def main(device: str) -> None:
    """Run all steps, and print what each returned and how long it took."""
    rng = np.random.default_rng(0)
    structure = ndi.gaussian_filter(rng.standard_normal(SHAPE), 3) * 4000
    grey = (structure + rng.normal(900, 60, SHAPE)).clip(0, 4095).astype(np.uint16)
    step("device", lambda: "\n".join(choose_backend(device).details()))
    step("pores", lambda: outcome("pores", grey, device))
    equal = partial(np.array_equal, labels(grey, "cpu"))
    step("labels equal the CPU's", lambda: equal(labels(grey, device)))
    step("labels left on the device", lambda: left(grey, device))
    step("denoise", lambda: outcome("denoise", grey, device, steps=60))
    step("MiB allocated and reserved afterwards", memory)
    step("pores on 'auto'", lambda: outcome("pores", np.tile(grey, TILES), "auto"))


def step(name: str, work: Callable[[], object]) -> None:
    """Print what some work returns, or its traceback."""
    start = time.perf_counter()
    try:
        result = work()
    except Exception:
        result = traceback.format_exc()
    print(f"== {name}: {time.perf_counter() - start:.1f} s\n{result}", flush=True)


def left(grey: np.ndarray, device: str) -> object:
    """Return where the labels are, and whether functions find the same number of pores there."""
    found = hushpore.segment_pores(grey, device=device, device_result=True)
    labels = found.labels if found.device_labels is None else found.device_labels
    table = ndimage.regionprops_table(labels, properties=("label", "area"))
    return type(labels), len(table["label"]) == len(found.pores)


def outcome(job: str, grey: np.ndarray, device: str, **settings: Any) -> object:
    """Run a job; returns what it ran on, what it said and decided, and its times."""
    result = hushpore.run(job, grey, settings or None, device)
    record = result.provenance
    return record["device"], record["notes"], record["optimisations"], result.timings


def labels(grey: np.ndarray, device: str) -> np.ndarray:
    """Segment pores; returns their labels."""
    return hushpore.run("pores", grey, None, device).labels


def memory() -> tuple[int, int]:
    """Return what PyTorch holds on the GPU, in MiB; zeros without one."""
    return torch.cuda.memory_allocated() >> 20, torch.cuda.memory_reserved() >> 20


if __name__ == "__main__":
    main(*sys.argv[1:])
