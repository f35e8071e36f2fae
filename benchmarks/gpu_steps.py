"""Training and prediction on a GPU: plainly, and recorded as CUDA graphs.

Every variant has a network of its own from the same seed; they run in turn, a few steps each.
"""

from __future__ import annotations

import copy
import dataclasses
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from benchmarks._parts import Figures, in_one
from hushpore.base.volume import Volume
from hushpore.denoising.images import Images, arrange
from hushpore.denoising.inference.volumes import VolumePredictor
from hushpore.denoising.model import UNet, build_network
from hushpore.denoising.plane_reader import PlaneReader, Scale
from hushpore.denoising.settings import DenoiseSettings
from hushpore.denoising.training.step import (
    BatchSampler,
    Learner,
    channels_last,
    choose_precision,
    mixed_precision,
)
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.switches import Switches

if TYPE_CHECKING:
    from collections.abc import Callable

VARIANTS = {"plain": Switches(graphs="off"), "graphs": Switches(graphs="on")}
ROUNDS, STEPS, WARM_UP = 7, 40, 20
WINS = 1.1  # ratio from which an optimisation is worth it
DECIDED = 60  # steps after which a job has decided by itself
WAITS = 10  # steps in which waits of the host are looked for
PATCHES, SIZE = 16, 64
TOGETHER = 4  # steps in one graph
BATCHES = (16, 32, 64, 128, 256)  # patches of a batch
MULTIPLE = 8  # channels that the fast kernels in bfloat16 take
SLABS, TILES = (192, 512, 512), (64, 256, 576)


def measure() -> Figures:
    """Rates of training, of tiles, and of slabs with and without pinned memory."""
    return in_one(PARTS)


def _training(precision: str) -> Figures:
    gpu = choose_backend("cuda")
    dtype = choose_precision(precision, gpu)
    trainings = {name: _Training(gpu, VARIANTS[name], dtype) for name in VARIANTS}
    first = {name: _timed(lambda t=each: t.go(WARM_UP)) for name, each in trainings.items()}
    seconds = _in_turn({name: lambda t=each: t.go(STEPS) for name, each in trainings.items()})
    rates = {name: STEPS / statistics.median(each) for name, each in seconds.items()}
    plain = trainings["plain"].weights()
    figures: Figures = {
        name: {
            "steps a second": round(rates[name], 1),
            "times as fast as plain": round(rates[name] / rates["plain"], 2),
            f"first {WARM_UP} steps, s": round(first[name], 2),
            "weights differ by": float((each.weights() - plain).abs().max()),
            "host waits": each.waits(),
            "decided": "; ".join(
                f"{switch}: {line}"
                for switch, line in each.backend.choices.lines().items()
                if switch.startswith("graphs of")
            ),
        }
        for name, each in trainings.items()
    }
    auto = _Training(gpu, Switches(), dtype)
    auto.go(DECIDED)
    torch.cuda.synchronize()
    auto.go(1)
    line = auto.backend.choices.lines().get("graphs of training steps", "")
    figures |= _decision(line, rates["graphs"] / rates["plain"])
    figures |= {"precision": str(dtype).removeprefix("torch."), "samples": {"s": seconds}}
    return figures


def _decision(line: str, ratio: float) -> Figures:
    """What a job decides by itself, and whether that is what was measured here."""
    return {
        "a job decides": line,
        "that is the faster way here": line.startswith("on") == (ratio >= WINS),
    }


class PaddedFirst(nn.Module):
    """The first convolution, with channels of zeros up to a multiple of 8."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the convolution returns, rounded in another order."""
        of = self.convolution
        missing = (0, 0, 0, 0, 0, -x.shape[1] % MULTIPLE)
        wider = channels_last(nn.functional.pad(x, missing))
        weight = nn.functional.pad(of.weight, missing)
        return nn.functional.conv2d(wider, weight, of.bias, padding=of.padding)


class SingleFirst(nn.Module):
    """The first convolution in float32, whatever the others compute in."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        # no convolution, so that there is no copy of its weights in bfloat16
        self.weight, self.bias = convolution.weight, convolution.bias
        self.padding = convolution.padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the convolution returns in float32."""
        with torch.autocast(x.device.type, enabled=False):
            return nn.functional.conv2d(x.float(), self.weight, self.bias, padding=self.padding)


#: Ways to compute the first convolution, the gradient of which takes a quarter of a step.
FIRST: dict[str, Callable[[Any], nn.Module]] = {
    "as the others": lambda convolution: convolution,
    "padded to 8 channels": PaddedFirst,
    "in float32": SingleFirst,
}


def _first_layers() -> Figures:
    """Steps a second with each way to compute the first convolution, in turn."""
    gpu = choose_backend("cuda")
    dtype = choose_precision("auto", gpu)
    how = {"switches": VARIANTS["graphs"], "dtype": dtype}
    trainings = {name: _Training(gpu, first=each, **how) for name, each in FIRST.items()}
    for each in trainings.values():
        each.go(WARM_UP)
    seconds = _in_turn({name: partial(each.go, STEPS) for name, each in trainings.items()})
    plain = trainings["as the others"].weights()
    return {
        **{
            name: {
                "steps a second": round(STEPS / statistics.median(each), 1),
                "weights differ by": float((trainings[name].weights() - plain).abs().max()),
            }
            for name, each in seconds.items()
        },
        "samples": {"s": seconds},
    }


def _together() -> Figures:
    """Steps a second, each in a graph of its own, and several in one, in turn."""
    gpu = choose_backend("cuda")
    dtype = choose_precision("auto", gpu)
    ways = {name: _Training(gpu, VARIANTS["graphs"], dtype) for name in ("one", "several")}
    ways["several"].record(TOGETHER)
    for each in ways.values():
        each.go(WARM_UP * TOGETHER)
    seconds = _in_turn({name: partial(each.go, STEPS * TOGETHER) for name, each in ways.items()})
    steps = {"one": STEPS * TOGETHER, "several": STEPS * TOGETHER * TOGETHER}
    return {
        **{
            f"{name} in a graph, steps a second": round(steps[name] / statistics.median(each), 1)
            for name, each in seconds.items()
        },
        "samples": {"s": seconds},
    }


def _batches() -> Figures:
    """Patches a second by the number of patches of a batch: where the device is full."""
    gpu = choose_backend("cuda")
    dtype = choose_precision("auto", gpu)
    figures: Figures = {}
    for count in BATCHES:
        training = _Training(gpu, VARIANTS["graphs"], dtype, count=count)
        training.go(WARM_UP)
        seconds = _in_turn({"": partial(training.go, STEPS)})[""]
        rate = STEPS / statistics.median(seconds)
        figures[f"{count} patches"] = {
            "steps a second": round(rate, 1),
            "patches a second": round(count * rate),
        }
    return figures


class _Training:
    def __init__(
        self,
        gpu: Backend,
        switches: Switches,
        dtype: torch.dtype,
        first: Callable[[Any], nn.Module] | None = None,
        count: int = PATCHES,
    ) -> None:
        self.backend = dataclasses.replace(gpu, switches=switches)
        network = copy.deepcopy(_network(gpu.device))
        if first is not None:
            layers: Any = network.down[0]
            layers[0] = first(layers[0])
        self.learner = Learner(network, dtype, self.backend)
        seeded = torch.Generator().manual_seed(1)
        self.images = Images.of(torch.randn(40, 256, 256, generator=seeded).to(gpu.device))
        draw = torch.Generator(gpu.device).manual_seed(0)
        self.batches = BatchSampler((SIZE, SIZE), count, DenoiseSettings().masked_share, draw)
        self.step = 0

    def record(self, steps: int) -> None:
        """Have each step be so many, which are recorded in one graph."""
        train = self.learner._train

        def several(images: Images, batches: BatchSampler) -> torch.Tensor:
            return torch.stack([train(images, batches) for _ in range(steps)])

        self.learner._train = several  # type: ignore[method-assign]

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.learner.step(self.images, self.batches, 1e-4, self.step)
            self.step += 1

    def waits(self) -> str:
        """Say whether the host waits for the GPU in some steps."""
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            self.go(WAITS)
        except RuntimeError as error:
            return str(error).splitlines()[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return f"none in {WAITS} steps"

    def weights(self) -> torch.Tensor:
        return torch.cat([each.detach().flatten() for each in self.learner.network.parameters()])


def _kind_of(call: str) -> str:
    """Say what a call of CUDA is: a wait of the host, a copy, a launch, or nothing of these."""
    if not call.startswith(("cuda", "cu")):
        return ""
    if "Synchronize" in call or call == "cudaMemcpy":
        return "waits"
    if "Memcpy" in call:
        return "copies"
    return "launches" if "Launch" in call else ""


def _profiled() -> Figures:
    """Count, by PyTorch's profiler, what the host asks the driver for in a replayed step."""
    gpu = choose_backend("cuda")
    training = _Training(gpu, VARIANTS["graphs"], choose_precision("auto", gpu))
    training.go(WARM_UP)
    few, many = (_calls(training, steps) for steps in (WAITS, 2 * WAITS))
    # what comes with the profiler comes once
    return {f"{kind} a step": (many[kind] - few[kind]) / WAITS for kind in many}


def _calls(training: _Training, steps: int) -> dict[str, int]:
    torch.cuda.synchronize()
    with torch.profiler.profile() as profile:
        training.go(steps)
    found = dict.fromkeys(("waits", "copies", "launches"), 0)
    for event in profile.key_averages():
        kind = _kind_of(event.key)
        if kind:
            found[kind] += event.count
    return found


def _timed_and_not() -> Figures:
    """Steps with a stage timer, as a job has them, and without, in turn."""
    gpu = choose_backend("cuda")
    training = _Training(gpu, VARIANTS["graphs"], choose_precision("auto", gpu))
    timer = training.backend.timer()

    def timed() -> None:
        for _ in range(STEPS):
            with timer.stage("training", voxels=training.batches.voxels):
                training.go(1)
        timer.timing()

    training.go(WARM_UP)
    timed()
    seconds = _in_turn({"timed": timed, "not timed": lambda: training.go(STEPS)})
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return {
        "timed over not timed": round(medians["timed"] / medians["not timed"], 4),
        "samples": {"s": seconds},
    }


@torch.inference_mode()
def _tiles(precision: str) -> Figures:
    gpu = choose_backend("cuda")
    dtype = choose_precision(precision, gpu)
    figures: Figures = {}
    samples: Figures = {}
    network = _network(gpu.device).eval()
    for size in TILES:
        batch = torch.randn(4, 1, size, size, device=gpu.device)
        batch = batch.to(memory_format=torch.channels_last)
        graphs = dataclasses.replace(gpu, switches=VARIANTS["graphs"]).graph_replays("tiles")
        assert graphs is not None
        ways: dict[str, Callable[..., Any]] = {"plain": network}
        ways["graphs"] = partial(graphs.call, "", network)

        def tiles(compute: Callable[..., Any], batch: torch.Tensor = batch) -> None:
            for _ in range(STEPS):
                with mixed_precision(batch.device.type, dtype):
                    compute(batch)

        for compute in ways.values():
            tiles(compute)
        seconds = _in_turn({name: partial(tiles, compute) for name, compute in ways.items()})
        graphs.release()
        voxels = STEPS * batch.numel() / 1e6
        name = f"4 tiles of {size} x {size}"
        samples[name] = seconds
        figures[name] = {
            f"{way}, M voxels/s": round(voxels / statistics.median(each), 1)
            for way, each in seconds.items()
        }
    return {**figures, "samples": samples}


def _slabs() -> Figures:
    """Predict slices in slabs, which are copied plainly and through pinned memory."""
    gpu = choose_backend("cuda")
    values = np.random.default_rng(0).integers(0, 2**12, SLABS).astype(np.uint16)
    volume = Volume(values)
    out = np.empty(volume.shape, np.float32)
    lines: dict[str, str] = {}
    states = {"plain": Switches(pinned="off"), "pinned": Switches(pinned="on"), "auto": Switches()}
    network = _network(gpu.device).eval()

    def predict(name: str) -> None:
        backend = dataclasses.replace(gpu, switches=states[name])
        predictor = VolumePredictor(
            network, arrange(volume, 2), Scale((2048.0,), (1000.0,)), 2 * values.nbytes,
            choose_precision("auto", gpu),
        )  # fmt: skip
        for _ in predictor.predict(PlaneReader(volume, 2), out, backend):
            pass
        lines[name] = backend.choices.lines()["pinned"]

    seconds = _in_turn({name: partial(predict, name) for name in states})
    best = {name: min(each) for name, each in seconds.items()}
    return {
        **{f"{name}, s": round(each, 3) for name, each in best.items()},
        **_decision(lines["auto"], best["plain"] / best["pinned"]),
        "samples": {"s": seconds},
    }


def _in_turn(works: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return the seconds that each takes, several times, one after the other."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            seconds[name].append(round(_timed(work), 6))
    return seconds


def _network(device: str) -> UNet:
    network = build_network(2, torch.Generator().manual_seed(0)).to(device)
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _timed(work: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


#: Float32, and what a job takes where it is left to choose.
PARTS = {
    "training": partial(_training, "auto"),
    "training, by the profiler": _profiled,
    "training, timed and not": _timed_and_not,
    "training, first layer": _first_layers,
    "training, several steps in a graph": _together,
    "training, by the batch": _batches,
    "tiles": partial(_tiles, "auto"),
    "slabs": _slabs,
    "training, float32": partial(_training, "float32"),
}
