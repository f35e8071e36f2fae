"""What fusing the batch normalisation and keeping freed memory do to a prediction.

The variants are run in turn in one process: the network as it was trained, with its batch norm
fused ("folded"), and so while the C library keeps what is freed, which is how a job predicts.
"""

from __future__ import annotations

import contextlib
import statistics
from functools import partial

import torch

from benchmarks._clock import seconds_of
from hushpore.device.backend import choose_backend
from hushpore.device.memory import freed_memory_kept
from hushpore.n2v2.images import Images
from hushpore.n2v2.inference.tiles import predict_images
from hushpore.n2v2.model import Architecture, build_network, fuse_batch_norm
from hushpore.n2v2.training.step import choose_precision

#: Shapes of the images, (n, *size).
SHAPES = {2: (1, 1024, 1024), 3: (1, 32, 128, 128)}
ROUNDS, FEATURES = 7, 32


def measure() -> dict[str, object]:
    """Median seconds on the CPU, and as a multiple of those of the network as it was trained."""
    backend = choose_backend("cpu")
    return {
        f"{dimensions}D, {str(dtype).removeprefix('torch.')}": _measured(dimensions, dtype)
        for dimensions, dtype in (
            (2, torch.float32), (2, choose_precision("auto", backend)), (3, torch.float32),
        )
    }  # fmt: skip


def _measured(dimensions: int, dtype: torch.dtype) -> dict[str, object]:
    layout = torch.channels_last if dimensions == 2 else torch.channels_last_3d
    architecture = Architecture(dimensions, features=FEATURES)
    trained = build_network(architecture, torch.Generator().manual_seed(0)).eval()
    trained = trained.to(memory_format=layout)  # type: ignore[call-overload]
    variants = {
        "as trained": (trained, contextlib.nullcontext),
        "folded": (fuse_batch_norm(trained), contextlib.nullcontext),
        "folded, memory kept": (fuse_batch_norm(trained), freed_memory_kept),
    }
    images = Images.of(torch.randn(SHAPES[dimensions]))
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, (network, kept) in variants.items():
            with kept():
                work = partial(predict_images, network, images, dtype=dtype)
                # the first takes the memory that the next ones have
                work()
                times[name].append(seconds_of(work))
    before = times["as trained"]
    return {
        name: {
            "seconds": round(statistics.median(each), 3),
            "ratio": round(statistics.median(a / b for a, b in zip(each, before, strict=True)), 3),
        }
        for name, each in times.items()
    }
