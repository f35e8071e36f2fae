"""A training step against the bare network: what sampling, masking and averaging cost.

Both are run in turn in one process, since these machines are shared. The ceiling is the same
network, batch, layout, precision and optimiser on a batch that already lies in place.
"""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch

from hushpore.denoising.images import Images
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.settings import DenoiseSettings
from hushpore.denoising.training.step import (
    BatchSampler,
    Learner,
    channels_last,
    choose_precision,
    mixed_precision,
)
from hushpore.device.backend import choose_backend

if TYPE_CHECKING:
    from collections.abc import Callable

#: Channels of the network's top level, images, patches, and pairs of steps, the first to warm up.
FEATURES, IMAGES = 32, (40, 256, 256)
EDGE, BATCH = 64, 16
PAIRS, WARM_UP = 44, 4


def measure() -> dict[str, object]:
    """Median milliseconds of both, and the median of the ratio pair by pair."""
    figures: dict[str, object] = {}
    backend = choose_backend()
    for precision in ("float32", "auto"):
        dtype = choose_precision(precision, backend)
        whole, bare = training_step(backend.device, dtype), _ceiling(backend.device, dtype)
        pairs = [(_timed(whole), _timed(bare)) for _ in range(PAIRS)][WARM_UP:]
        figures[str(dtype).removeprefix("torch.")] = {
            "step_ms": round(statistics.median(a for a, _ in pairs), 2),
            "network_ms": round(statistics.median(b for _, b in pairs), 2),
            "ratio": round(statistics.median(a / b for a, b in pairs), 3),
        }
    return figures


def training_step(device: str, dtype: torch.dtype) -> Callable[[], object]:
    learner = Learner(_network(device), dtype)
    image = Images.of(torch.randn(*IMAGES, device=device))
    batches = BatchSampler(
        (EDGE, EDGE), BATCH, DenoiseSettings().masked_share, torch.Generator(device).manual_seed(0)
    )
    return lambda: learner.step(image, batches, 1e-3, 1000)


def _ceiling(device: str, dtype: torch.dtype) -> Callable[[], object]:
    batch = channels_last(torch.randn(BATCH, 1, EDGE, EDGE, device=device))
    return bare_step(_network(device), batch, dtype)


def bare_step(
    network: torch.nn.Module, batch: torch.Tensor, dtype: torch.dtype
) -> Callable[[], object]:
    """Return a training step on a batch in place: without sampling, masking or average."""
    optimizer = torch.optim.Adam(network.parameters(), fused=True)

    def step() -> None:
        with mixed_precision(batch.device.type, dtype):
            output = network(batch)
        optimizer.zero_grad(set_to_none=True)
        (output.float() ** 2).mean().backward()
        optimizer.step()

    return step


def _network(device: str) -> torch.nn.Module:
    network = build_network(
        Architecture(2, features=FEATURES), torch.Generator().manual_seed(0)
    ).to(device)
    return network.to(memory_format=torch.channels_last)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)
