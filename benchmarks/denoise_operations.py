"""What a training step spends its time in, and how fast its convolutions could be at best.

The best is the arithmetic of the convolutions at the rate at which a product of two large matrices
runs in the same precision. The operations are timed by PyTorch's profiler, which costs a little.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from benchmarks import denoise_step
from benchmarks._clock import seconds_of
from hushpore.device.backend import choose_backend
from hushpore.n2v2.model import Architecture, UNet
from hushpore.n2v2.training.step import choose_precision

#: Edge of the matrices, and steps that are looked at, of which the first only warm up.
EDGE, STEPS, WARM_UP = 2048, 12, 4

#: Operations that belong together, by PyTorch's names for them.
KINDS = {
    "convolutions": ("aten::mkldnn_convolution", "aten::convolution_backward"),
    "batch normalisation": ("aten::native_batch_norm", "aten::native_batch_norm_backward"),
    "rectifiers": ("aten::clamp_min_", "aten::threshold_backward"),
}


def measure() -> dict[str, object]:
    """Milliseconds of a step on the CPU, by kind of operation and precision."""
    figures: dict[str, object] = {}
    backend = choose_backend("cpu")
    for precision in ("float32", "auto"):
        dtype = choose_precision(precision, backend)
        step = denoise_step.training_step("cpu", dtype)
        seconds = [seconds_of(step) for _ in range(STEPS)][WARM_UP:]
        with profile(activities=[ProfilerActivity.CPU]) as found:
            for _ in range(STEPS):
                step()
        spent = {e.key: e.self_cpu_time_total / 1e3 / STEPS for e in found.key_averages()}
        kinds = {name: sum(spent.get(op, 0.0) for op in ops) for name, ops in KINDS.items()}
        rate = _matrix_rate(dtype)
        figures[str(dtype).removeprefix("torch.")] = {
            "step, ms": round(1e3 * statistics.median(seconds), 1),
            **{f"{name}, ms": round(value, 1) for name, value in kinds.items()},
            "all else, ms": round(sum(spent.values()) - sum(kinds.values()), 1),
            "matrix product, GFLOP/s": round(rate / 1e9),
            "convolutions at that rate, ms": round(1e3 * _operations() / rate, 1),
        }
    return figures


def _operations() -> float:
    """Floating-point operations of the convolutions of a step, 16 patches of 64 x 64 pixels."""
    counted = 0.0

    def count(module: Any, inputs: Any, output: torch.Tensor) -> None:
        nonlocal counted
        counted += 2 * output.numel() * module.weight[0].numel()

    network = UNet(Architecture(2, features=denoise_step.FEATURES))
    first = network.down_top[0]
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(count)
    with torch.no_grad():
        network(torch.zeros(16, 1, 64, 64))
    # each has two gradients as costly as itself; that of the input of the first is not needed
    return 3 * counted - 2 * 16 * 64 * 64 * first.weight.numel()


def _matrix_rate(dtype: torch.dtype) -> float:
    a, b = (torch.randn(EDGE, EDGE).to(dtype) for _ in range(2))
    return 2 * EDGE**3 / min(seconds_of(lambda: a @ b) for _ in range(10))
