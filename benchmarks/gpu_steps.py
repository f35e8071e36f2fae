"""Training and prediction on a GPU: plainly, recorded as CUDA graphs, and compiled.

Every variant has a network of its own from the same seed; they run in turn, a few steps each.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore.base.volume import Volume
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.graphs import replays_on
from hushpore.device.switches import Switches
from hushpore.n2v2.applying import Applied
from hushpore.n2v2.images import Images, arrange
from hushpore.n2v2.model import UNet, build_network
from hushpore.n2v2.settings import DenoiseSettings
from hushpore.n2v2.source import Scale, Source
from hushpore.n2v2.training import Batches, Learner, choose_precision, mixed_precision

if TYPE_CHECKING:
    from collections.abc import Callable

VARIANTS = {
    "plain": Switches(graphs="off"),
    "graphs": Switches(graphs="on"),
    "compiled": Switches(graphs="off", compile="on"),
    "graphs, compiled": Switches(graphs="on", compile="on"),
}
ROUNDS, STEPS, WARM_UP = 7, 40, 20


def measure() -> dict[str, Any]:
    """Rates of training, of tiles, and of slabs with and without a side stream."""
    gpu = choose_backend("cuda")
    figures: dict[str, Any] = {}
    for precision in ("float32", "auto"):
        dtype = choose_precision(precision, gpu)
        name = str(dtype).removeprefix("torch.")
        figures[f"training, {name}"] = _training(gpu, dtype)
        figures[f"tiles, {name}"] = _tiles(gpu, dtype)
    figures["slabs"] = _slabs(gpu)
    return figures


def _training(gpu: Backend, dtype: torch.dtype) -> dict[str, Any]:
    trainings = {name: _Training(gpu, switches, dtype) for name, switches in VARIANTS.items()}
    first = {name: _timed(lambda t=each: t.go(WARM_UP)) for name, each in trainings.items()}
    seconds: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for name, each in trainings.items():
            seconds.setdefault(name, []).append(_timed(lambda t=each: t.go(STEPS)))
    plain = trainings["plain"].weights()
    figures: dict[str, Any] = {}
    for name, each in trainings.items():
        figures[name] = {
            "steps a second": round(STEPS / statistics.median(seconds[name]), 1),
            f"first {WARM_UP} steps, s": round(first[name], 2),
            "weights differ by": float((each.weights() - plain).abs().max()),
            "host waits": each.waits(),
            "decided": "; ".join(
                f"{switch}: {line}"
                for switch, line in each.backend.choices.lines().items()
                if switch.startswith(("graphs of", "compile"))
            ),
        }
    auto = _Training(gpu, Switches(), dtype)
    auto.go(60)
    torch.cuda.synchronize()
    auto.go(1)
    figures["a job decides"] = auto.backend.choices.lines().get("graphs of training steps", "")
    return figures


class _Training:
    def __init__(self, gpu: Backend, switches: Switches, dtype: torch.dtype) -> None:
        self.backend = dataclasses.replace(gpu, switches=switches)
        self.learner = Learner(_network(gpu.device), dtype, self.backend)
        seeded = torch.Generator().manual_seed(1)
        self.images = Images.of(torch.randn(40, 256, 256, generator=seeded).to(gpu.device))
        draw = torch.Generator(gpu.device).manual_seed(0)
        self.batches = Batches((64, 64), 16, DenoiseSettings().masked_share, draw)
        self.step = 0

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.learner.step(self.images, self.batches, 1e-4, self.step)
            self.step += 1

    def waits(self) -> str:
        """Say whether the host waits for the GPU in ten steps."""
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            self.go(10)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return "none in 10 steps"

    def weights(self) -> torch.Tensor:
        return torch.cat([each.detach().flatten() for each in self.learner.network.parameters()])


@torch.inference_mode()
def _tiles(gpu: Backend, dtype: torch.dtype) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    network = _network(gpu.device).eval()
    for size in (64, 256, 576):
        batch = torch.randn(4, 1, size, size, device=gpu.device)
        batch = batch.to(memory_format=torch.channels_last)
        rates = {}
        for name in ("plain", "graphs"):
            replays = replays_on(dataclasses.replace(gpu, switches=VARIANTS[name]), "tiles")
            assert replays is not None

            def tiles(replays: Any = replays, batch: torch.Tensor = batch) -> None:
                for _ in range(STEPS):
                    with mixed_precision("cuda", dtype):
                        replays.call("", network, batch)

            tiles()
            seconds = statistics.median(_timed(tiles) for _ in range(ROUNDS))
            rates[f"{name}, M voxels/s"] = round(STEPS * batch.numel() / seconds / 1e6, 1)
            replays.release()
        figures[f"4 tiles of {size} x {size}"] = rates
    return figures


def _slabs(gpu: Backend) -> dict[str, Any]:
    """Predict slices in slabs, which are copied plainly, pinned, and in a stream of their own."""
    values = np.random.default_rng(0).integers(0, 2**12, (192, 512, 512)).astype(np.uint16)
    volume = Volume(values)
    out = np.empty(volume.shape, np.float32)
    seconds: dict[str, list[float]] = {}
    lines: dict[str, str] = {}
    states = {
        "plain": Switches(pinned="off", stream="off"),
        "pinned": Switches(pinned="on", stream="off"),
        "pinned, stream": Switches(pinned="on", stream="on"),
        "auto": Switches(),
    }
    network = _network(gpu.device).eval()
    for _ in range(3):
        for name, switches in states.items():
            backend = dataclasses.replace(gpu, switches=switches)
            applied = Applied(
                network, arrange(volume, 2), Scale((2048.0,), (1000.0,)), 2 * values.nbytes,
                choose_precision("auto", gpu),
            )  # fmt: skip

            def predict(applied: Applied = applied, backend: Backend = backend) -> None:
                for _ in applied.to(Source(volume, 2), out, backend):
                    pass

            seconds.setdefault(name, []).append(_timed(predict))
            lines[name] = backend.choices.lines()["stream"]
    return {
        **{f"{name}, s": round(min(each), 3) for name, each in seconds.items()},
        "a job decides": lines["auto"],
    }


def _network(device: str) -> UNet:
    network = build_network(2, torch.Generator().manual_seed(0)).to(device)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _timed(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start
