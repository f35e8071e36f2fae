"""Beside CAREamics' N2V2: steps per second, prediction, and how long until the first step.

Needs ``pip install careamics``, best in an environment of its own. Steps of both are run in turn,
in one process: ours within CAREamics' own loop, after each step of its. Same network size, batch
and patch; its data loading, masking and logging count, as ours do. With them the bare network as
one would write it with PyTorch alone, on a batch in place.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks._missing import require_package
from benchmarks._plain import plain_step
from benchmarks.denoise_step import training_step
from hushpore.device.backend import choose_backend
from hushpore.device.memory import freed_memory_kept
from hushpore.n2v2.images import Images
from hushpore.n2v2.inference.tiles import predict_images
from hushpore.n2v2.model import build_network, fuse_batch_norm
from hushpore.n2v2.training.step import choose_precision

if TYPE_CHECKING:
    from collections.abc import Callable

#: Steps of each, of which the first are left out.
STEPS, WARM_UP = 40, 5

_FIRST_STEP = """
import time; start = time.perf_counter()
import numpy as np, hushpore
from hushpore.base.events import Progress
imported = time.perf_counter() - start
scan = np.random.default_rng(0).normal(100, 20, (64, 512, 512)).astype(np.float32)
start = time.perf_counter()
for event in hushpore.start("denoise", scan, {}):
    if isinstance(event, Progress) and event.stage == "training":
        break
print(imported, time.perf_counter() - start)
"""


def measure() -> dict[str, object]:
    """Medians of both, and of the ratio step by step."""
    require_package("careamics")
    imported, first = (
        float(text)
        for text in subprocess.run(
            [sys.executable, "-c", _FIRST_STEP], check=True, capture_output=True, text=True
        ).stdout.split()
    )
    start = time.perf_counter()
    import careamics

    figures: dict[str, object] = {
        "careamics": metadata.version("careamics"),
        "import_seconds": {
            "hushpore": round(imported, 2),
            "careamics": round(time.perf_counter() - start, 2),
        },
        "first_step_seconds": round(first, 2),
    }
    rival, steps = _train(careamics)
    figures["step"] = steps
    figures["predict_1024"] = _predictions(rival)
    return figures


def _train(careamics: Any) -> tuple[Any, dict[str, object]]:
    from careamics.config import create_advanced_n2v_config
    from lightning.pytorch.callbacks import Callback

    backend = choose_backend()
    precisions = {name: choose_precision(name, backend) for name in ("float32", "auto")}
    device = backend.device
    ours = {name: training_step(device, dtype) for name, dtype in precisions.items()}
    plain = {f"plain {name}": plain_step(device, dtype) for name, dtype in precisions.items()}
    every = {**ours, **plain}
    times: dict[str, list[float]] = {"careamics": [], **{name: [] for name in every}}

    class InTurn(Callback):  # type: ignore[misc]
        last = 0.0

        def on_train_batch_end(self, *args: Any) -> None:
            if self.last:
                times["careamics"].append(time.perf_counter() - self.last)
            for name, step in every.items():
                times[name].append(_timed(step))
            self.last = time.perf_counter()

    photos = np.random.default_rng(0).normal(100, 20, (100, 180, 180)).astype(np.float32)
    config = create_advanced_n2v_config(
        "steps", "array", "SYX", (64, 64), 16, num_epochs=1, num_steps=STEPS, use_n2v2=True,
        num_workers=0,
    )  # fmt: skip
    folder = tempfile.mkdtemp()
    rival = careamics.CAREamist(
        config, work_dir=folder, callbacks=[InTurn()], enable_progress_bar=False
    )
    rival.train(train_data=photos)
    kept = {name: each[WARM_UP:] for name, each in times.items()}

    def times_as_fast(rival: str, name: str) -> float:
        # CAREamics' first step has no end of one before it
        pairs = zip(kept[rival], kept[name], strict=False)
        return round(statistics.median(a / b for a, b in pairs), 2)

    return rival, {
        "ms": {name: round(1e3 * statistics.median(each), 1) for name, each in kept.items()},
        "times_as_fast": {name: times_as_fast("careamics", name) for name in every},
        "times_as_fast_as_plain": {name: times_as_fast(f"plain {name}", name) for name in ours},
        "precision_of_auto": str(choose_precision("auto", backend)).removeprefix("torch."),
    }


def _predictions(rival: Any) -> dict[str, object]:
    image = np.random.default_rng(0).normal(100, 20, (1024, 1024)).astype(np.float32)
    backend = choose_backend()
    network = fuse_batch_norm(build_network(2, torch.Generator().manual_seed(0)).eval()).to(
        backend.device
    )
    network = network.to(memory_format=torch.channels_last)
    dtype = choose_precision("auto", backend)

    def whole() -> object:
        return rival.predict(image, axes="YX", data_type="array", num_workers=0)

    def tiled() -> object:
        return rival.predict(
            image, axes="YX", data_type="array", tile_size=(256, 256), num_workers=0
        )

    def ours() -> object:
        images = Images.of(backend.put(image)[None])
        with freed_memory_kept():
            return backend.get(predict_images(network, images, dtype=dtype))

    times: dict[str, list[float]] = {}
    for _ in range(3):
        for name, work in (("careamics", whole), ("careamics tiled", tiled), ("hushpore", ours)):
            times.setdefault(name, []).append(_timed(work))
    seconds = {name: round(min(each), 2) for name, each in times.items()}
    best = min(seconds["careamics"], seconds["careamics tiled"])
    return {"seconds": seconds, "times_as_fast": round(best / min(times["hushpore"]), 2)}


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start
