"""Steps and tiles that are captured and replayed: the same as if they were done anew.

On a GPU it is a CUDA graph. Here it is a tape of PyTorch's operations, played back into the same
memory: whatever a step takes from the host stays as it was when it was captured, and
shows.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import hushpore
from hushpore import Volume
from hushpore.denoising.images import Images
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.training.schedule import learning_rate
from hushpore.denoising.training.step import BatchSampler, Learner
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.graphs import WARM_UP
from hushpore.device.switches import Switches

if TYPE_CHECKING:
    from collections.abc import Callable


class Tape(TorchDispatchMode):
    """Operations with what they were given and what they returned."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[tuple[Any, Any, Any, list[torch.Tensor]]] = []
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.result = torch.empty(0)
        self.played = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # batch normalisation writes its statistics without saying so
        if function._schema.is_mutable or "batch_norm" in function.name():
            self.before += [(each, each.clone()) for each in _tensors((args, kwargs))]
        out = function(*args, **(kwargs or {}))
        self.entries.append((function, args, kwargs or {}, _tensors(out)))
        return out

    def undo(self) -> None:
        """Leave all as it was: a CUDA graph is captured without doing anything."""
        for there, value in reversed(self.before):
            there.copy_(value)
        self.before.clear()

    @torch.no_grad()
    def replay(self) -> torch.Tensor:
        self.played += 1
        for function, args, kwargs, before in self.entries:
            for old, new in zip(before, _tensors(function(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)
        return self.result

    def release(self) -> None:
        self.entries.clear()


@pytest.fixture(autouse=True)
def _strict_captures(strict: Any) -> None:
    GraphCapture.capturing = strict.capturing


def _tensors(values: Any) -> list[torch.Tensor]:
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


@dataclass
class GraphCapture:
    """Captures tapes; what a CUDA graph could not hold is refused."""

    capturing: ClassVar[Any]
    tapes: list[Tape] = field(default_factory=list)

    def room(self) -> tuple[int, int]:
        return 0, 1

    def capture(self, work: Callable[[], torch.Tensor], draws: torch.Generator | None) -> Tape:
        state = None if draws is None else draws.get_state()
        tape = Tape()
        with GraphCapture.capturing(draws), tape:
            tape.result = work()
        with torch.no_grad():
            tape.undo()
        if draws is not None and state is not None:
            draws.set_state(state)
        self.tapes.append(tape)
        return tape


@dataclass(frozen=True)
class RecordingBackend(Backend):
    """A CPU on which work is captured."""

    tapes: GraphCapture = field(default_factory=GraphCapture)

    def graph_capture(self) -> GraphCapture:
        return self.tapes


def backend_with(state: str) -> RecordingBackend:
    return RecordingBackend(switches=Switches(graphs=state))


def trained(
    backend: RecordingBackend, steps: int, kept_at: int = -1
) -> tuple[Learner, list[float]]:
    network = build_network(Architecture(2, features=4), torch.Generator().manual_seed(0))
    learner = Learner(network, backend=backend)
    images = Images.of(torch.randn(4, 64, 64, generator=torch.Generator().manual_seed(1)))
    batches = BatchSampler((32, 32), 2, 0.03, torch.Generator().manual_seed(2))
    losses = []
    for step in range(steps):
        learner.keeps_patch_losses = step == kept_at
        rate = learning_rate(step / steps, 1e-3)
        losses.append(float(learner.step(images, batches, rate, step)))
    return learner, losses


def test_replayed_steps_train_as_steps_do() -> None:
    plain, expected = trained(backend_with("off"), 20)
    backend = backend_with("on")
    replayed, found = trained(backend, 20, kept_at=12)
    (tape,) = backend.tapes.tapes
    # all but those that warm up, and the one that was looked at
    assert tape.played == 20 - WARM_UP - 1
    assert found == expected
    for one, other in zip(plain.average.parameters(), replayed.average.parameters(), strict=True):
        assert torch.equal(one, other)
    assert backend.choices.lines()["graphs of training steps"] == "on, as requested"


def test_of_a_captured_step_the_host_asks_for_little_more_than_that(
    strict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, launched = backend_with("on"), torch.zeros(())
    network = build_network(Architecture(2, features=4), torch.Generator().manual_seed(0))
    learner = Learner(network, backend=backend)
    images = Images.of(torch.randn(2, 32, 32))
    batches = BatchSampler((16, 16), 2, 0.03, torch.Generator().manual_seed(2))
    for step in range(WARM_UP + 1):
        learner.step(images, batches, 1e-3, step)
    # what is captured is one launch
    monkeypatch.setattr(Tape, "replay", lambda tape: launched)
    total = torch.zeros(())
    with strict.Operations() as operations:
        for step in range(10):
            total += learner.step(images, batches, 1e-3, step)
    assert operations.of.total() <= 25 * 10
    # the rate, the weight in the average, and the sum
    assert operations.of == {"fill_": 2 * 10, "add_": 10}


def test_other_images_are_another_graph() -> None:
    backend = backend_with("on")
    network = build_network(Architecture(2, features=4), torch.Generator().manual_seed(0))
    learner = Learner(network, backend=backend)
    batches = BatchSampler((16, 16), 2, 0.03, torch.Generator().manual_seed(2))
    for _ in range(2):
        images = Images.of(torch.randn(2, 32, 32))
        for step in range(WARM_UP + 2):
            learner.step(images, batches, 1e-3, step)
    assert len(backend.tapes.tapes) == 2


def test_a_job_replays_its_steps_and_its_tiles() -> None:
    values = np.random.default_rng(0).normal(size=(24, 24, 24)).astype(np.float32)
    training = {"steps": 20, "batch_size": 2, "patch_size": 16, "precision": "float32"}
    # turned tiles have a tape of their own
    how = {**training, "test_time_augmentation": False}
    scan, backend = Volume(values), backend_with("on")
    found = hushpore.run("denoise", scan, how, backend)
    steps, tiles = (tape.played for tape in backend.tapes.tapes)
    # all but those that warm up, and those that are looked at, which depends on the time
    assert 0 < steps < 20 - WARM_UP
    assert tiles > 0
    expected = hushpore.run("denoise", scan, how, backend_with("off"))
    np.testing.assert_allclose(found.volume.data, expected.volume.data, atol=1e-5)
    lines = found.provenance["optimisations"]
    assert lines["graphs of training steps"] == lines["graphs of tiles"] == "on, as requested"


@pytest.mark.usefixtures("small_network")
@pytest.mark.parametrize("dimensions", [2, 3])
def test_steps_in_regions_are_captured_too(
    dimensions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a step whose batch is looked at is not; the first is, and however slow it is, no other
    monkeypatch.setattr("hushpore.denoising.training.loop.BATCH_INTERVAL", math.inf)
    values = np.random.default_rng(0).normal(size=(12, 24, 24)).astype(np.float32)
    beside = {"where": values > 0, "not there": values > 3}
    scan, backend = Volume(values, auxiliary=beside), backend_with("on")
    how = {"train_at": "where", "leave_out": "not there", "method": "n2v2", "patch_depth": 4}
    how |= {"steps": WARM_UP + 2, "batch_size": 1, "patch_size": 16, "precision": "float32"}
    found = hushpore.run("denoise", scan, {**how, "dimensions": dimensions}, backend)
    lines = found.provenance["optimisations"]
    assert lines["graphs of training steps"] == "on, as requested"


@pytest.mark.parametrize(
    ("asks_for", "said"),
    [
        (lambda draws: torch.tensor([3], device="cpu"), "values of the host cannot be sent"),
        (lambda draws: torch.arange(3).nonzero(), "nonzero is not permitted"),
        (lambda draws: torch.arange(3)[torch.arange(3) > 1], "index is not permitted"),
        (lambda draws: torch.arange(3).sum().item(), "item brings values to the host"),
        (lambda draws: torch.rand(3), "a generator that is not of the job"),
        (lambda draws: torch.rand(3, generator=torch.Generator()), "that is not registered"),
        (lambda draws: draws.manual_seed(3), "was seeded"),
    ],
)
def test_what_a_cuda_graph_cannot_hold_is_refused_here_too(
    asks_for: Callable[[torch.Generator], object], said: str, strict: Any
) -> None:
    draws = torch.Generator()

    def captured() -> None:
        with strict.capturing(draws):
            torch.rand(3, generator=draws)
            asks_for(draws)

    with pytest.raises(strict.CaptureError, match=said):
        captured()


def test_on_the_cpu_the_record_says_that_there_is_nothing_to_record_with() -> None:
    values = np.random.default_rng(0).normal(size=(24, 24)).astype(np.float32)
    how = {"steps": 2, "batch_size": 1, "patch_size": 16}
    lines = hushpore.run("denoise", Volume(values), how, "cpu").provenance["optimisations"]
    assert lines["graphs"] == "off, no CUDA device"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_captured_steps_train_as_steps_do(dtype: torch.dtype) -> None:
    gpu = choose_backend("cuda")
    losses: dict[str, list[float]] = {}
    for state in ("off", "on"):
        backend = replace(gpu, switches=Switches(graphs=state))
        network = build_network(2, torch.Generator().manual_seed(0)).to(gpu.device)
        learner = Learner(network, dtype, backend)
        images = torch.randn(4, 96, 96, generator=torch.Generator().manual_seed(1))
        draws = torch.Generator(gpu.device).manual_seed(2)
        batches, there = BatchSampler((64, 64), 4, 0.03, draws), Images.of(images.to(gpu.device))
        found = [learner.step(there, batches, 1e-4, step).clone() for step in range(40)]
        losses[state] = [float(each) for each in found]
    assert backend.choices.lines()["graphs of training steps"] == "on, as requested"
    # sums are in no certain order on a GPU
    np.testing.assert_allclose(losses["on"], losses["off"], rtol=0.02)
    assert len(set(losses["on"])) == 40


FAILING = """
from dataclasses import replace
import torch
from hushpore.device.backend import choose_backend
from hushpore.device.graphs import WARM_UP
from hushpore.device.switches import Switches

gpu = replace(choose_backend("cuda"), switches=Switches(graphs="on"))
draws = torch.Generator(gpu.device).manual_seed(0)
replays = gpu.graph_replays("what waits")

def work():
    values = torch.rand(3, device=gpu.device, generator=draws)
    assert float(values.sum()) > 0  # waits, which cannot be captured
    return values

for _ in range(WARM_UP + 3):
    assert replays.call("", work, generator=draws).shape == (3,)
torch.rand(3, device=gpu.device)
assert torch.cuda.current_stream() == torch.cuda.default_stream()
gpu.release()
torch.cuda.empty_cache()
print(gpu.choices.lines()["graphs of what waits"])
"""


@pytest.mark.gpu
def test_on_a_gpu_a_capture_that_fails_leaves_the_training_as_it_was() -> None:
    # in a process of its own, for what it may leave behind
    command = [sys.executable, "-c", FAILING]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.startswith("off, capture failed"), done.stderr


@pytest.mark.gpu
def test_on_a_gpu_tiles_are_the_same_replayed() -> None:
    gpu = replace(choose_backend("cuda"), switches=Switches(graphs="on"))
    replays = gpu.graph_replays("tiles")
    assert replays is not None
    network = build_network(2, torch.Generator().manual_seed(0)).to(gpu.device).eval()
    with torch.inference_mode():
        for _ in range(WARM_UP + 3):
            tile = torch.randn(2, 1, 64, 64, device=gpu.device)
            found = replays.call("", network, tile)
            torch.testing.assert_close(found, network(tile), rtol=1e-3, atol=1e-3)
    assert gpu.choices.lines()["graphs of tiles"] == "on, as requested"
