from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from hushpore import InputError
from hushpore.denoising.images import Images
from hushpore.denoising.model import Architecture, UNet, build_network
from hushpore.denoising.pairs import Line, Replacement
from hushpore.denoising.training.schedule import learning_rate
from hushpore.denoising.training.step import (
    Adam,
    BatchSampler,
    Learner,
    channels_last,
    choose_precision,
)
from hushpore.device.backend import Backend


@pytest.mark.parametrize(
    ("dimensions", "size"), [(2, (16, 16)), (3, (8, 16, 16))], ids=["2D", "3D"]
)
def test_a_training_step_reads_nothing_back(dimensions: int, size: tuple[int, ...]) -> None:
    """On the meta device tensors have no values, so that any hidden host read raises."""
    learner = Learner(UNet(dimensions).to("meta"))
    image = Images.of(torch.empty((6, 10, 40, 40)[-dimensions - 1 :], device="meta"))
    for step in range(2):
        loss = learner.step(image, BatchSampler(size, 4, 0.03, None), 1e-3, step)
        assert loss.is_meta
        assert loss.shape == ()
    with pytest.raises((RuntimeError, NotImplementedError)):
        loss.item()


def test_a_training_step_sends_nothing_to_the_device_after_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tensor made of host numbers is a copy that a GPU waits for; constants are sent once."""
    learner = Learner(UNet(2).to("meta"))
    image = Images.of(torch.empty((6, 40, 40), device="meta"))
    batches = BatchSampler((16, 16), 4, 0.03, None, Replacement(line=Line(1, 3)))
    learner.step(image, batches, 1e-3, 0)

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("host values were sent to the device")

    for name in ("tensor", "as_tensor", "from_numpy"):
        monkeypatch.setattr(torch, name, refuse)
    learner.step(image, batches, 1e-3, 1)


@pytest.mark.gpu
def test_a_training_step_makes_no_host_wait_on_a_gpu() -> None:
    network = build_network(2, torch.Generator().manual_seed(0)).cuda()
    learner = Learner(network, torch.bfloat16)
    image = Images.of(torch.randn(4, 128, 128, device="cuda"))
    batches = BatchSampler((64, 64), 8, 0.03, torch.Generator("cuda").manual_seed(0))
    learner.step(image, batches, 1e-3, 0)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(1, 4):
            learner.step(image, batches, 1e-3, step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_the_rate_rises_is_held_and_ends_at_nothing() -> None:
    steps, peak = 200, 3e-3
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    parts = [
        torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0, 0),
        torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, 60),
    ]
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [140])
    held_and_down = []
    for _ in range(steps):
        held_and_down.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    found = np.array([learning_rate(step / steps, peak) for step in range(steps)])
    np.testing.assert_allclose(found[20:], held_and_down[20:], rtol=1e-9, atol=1e-12)
    assert found[0] == pytest.approx(peak / 25)
    assert found[10] == pytest.approx((peak + peak / 25) / 2)
    assert (np.diff(found[:21]) > 0).all()
    assert learning_rate(1.0, peak) == 0


def test_the_average_follows_the_weights_and_forgets_the_start() -> None:
    learner = Learner(build_network(2, torch.Generator().manual_seed(0)))
    first = learner.average.out.weight.clone()
    image = Images.of(torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(0)))
    for step in range(12):
        draw = torch.Generator().manual_seed(step)
        learner.step(image, BatchSampler((16, 16), 2, 0.03, draw), 1e-2, step)
    trained = learner.network.out.weight
    distance = torch.linalg.vector_norm
    assert distance(learner.average.out.weight - trained) < distance(first - trained)
    assert not learner.average.training


def test_weights_that_are_cast_at_once_are_trained_as_those_that_are_cast_one_by_one(
    strict: Any,
) -> None:
    found, casts = {}, {}
    for is_at_once in (True, False):
        # in 3D bfloat16 is not reliable on a CPU
        architecture = Architecture(2, features=4)
        network = build_network(architecture, torch.Generator().manual_seed(0))
        learner = Learner(network, torch.bfloat16)
        assert learner._low is not None
        if not is_at_once:
            learner._low = None
        images = Images.of(torch.randn(2, 32, 32, generator=torch.Generator().manual_seed(1)))
        batches = BatchSampler((16, 16), 2, 0.03, torch.Generator().manual_seed(2))
        with strict.Operations() as counted:
            losses = [learner.step(images, batches, 1e-3, step) for step in range(3)]
        found[is_at_once] = [*losses, *network.parameters(), *learner.average.buffers()]
        casts[is_at_once] = counted.of["_to_copy"] / 3
    for one, other in zip(found[True], found[False], strict=True):
        assert torch.equal(one, other)
    # weights and biases of ten convolutions, there and back
    assert casts[False] - casts[True] == 40


def test_a_step_computes_nothing_that_is_known_beforehand(strict: Any) -> None:
    network = build_network(Architecture(2, features=4), torch.Generator().manual_seed(0))
    learner = Learner(network, torch.bfloat16)
    images = Images.of(torch.randn(2, 32, 32))
    batches = BatchSampler((16, 16), 2, 0.03, torch.Generator().manual_seed(2))
    learner.step(images, batches, 1e-3, 0)
    with strict.Operations() as operations:
        learner.step(images, batches, 1e-3, 1)
    # no ranges or grids, and batches are not counted, layer by layer
    assert operations.of["arange"] == operations.of["meshgrid"] == 0
    assert network.down[0][1].num_batches_tracked == 0
    assert operations.computing <= 220


def test_batches_halve_down_to_one_patch() -> None:
    counts = []
    batches: BatchSampler | None = BatchSampler((16, 16), 12, 0.03, None)
    while batches is not None:
        counts.append(batches.count)
        batches = batches.halved()
    assert counts == [12, 6, 3, 1]


def test_precision_is_as_asked() -> None:
    assert choose_precision("float32", Backend()) == torch.float32
    assert choose_precision("bfloat16", Backend()) == torch.bfloat16
    assert choose_precision("auto", Backend()) in (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("has_tiles", [False, True])
def test_in_3d_the_cpu_computes_in_float32_unless_told(
    has_tiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_tiles, raising=False)
    assert choose_precision("auto", Backend(), 3) == torch.float32
    if has_tiles:
        assert choose_precision("bfloat16", Backend(), 3) == torch.bfloat16
        return
    with pytest.raises(InputError, match="without AMX, precision='bfloat16' is not reliable"):
        choose_precision("bfloat16", Backend(), 3)


@pytest.mark.skipif(
    not getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)(),
    reason="needs a processor with tiles of bfloat16 (AMX)",
)
def test_in_3d_bfloat16_trains_alike_whatever_memory_holds() -> None:
    found = []
    for _ in range(3):
        network = build_network(Architecture(3, "r2r"), torch.Generator().manual_seed(0))
        learner = Learner(network, torch.bfloat16)
        batch = channels_last(
            torch.randn(2, 1, 8, 16, 16, generator=torch.Generator().manual_seed(1))
        )
        # what is not written before it is read would be no number
        poison = [torch.full((2**n,), math.nan) for n in range(8, 22)]
        del poison
        learner._features_of(network, batch).float().square().mean().backward()
        assert learner._low is not None
        learner._low.take_gradients()
        found.append([each.grad for each in network.parameters() if each.grad is not None])
    for first, *others in zip(*found, strict=True):
        assert first.isfinite().all()
        assert all(torch.equal(first, other) for other in others)


def weights() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (5,))]


@pytest.mark.parametrize("as_tensor", [False, True])
def test_it_is_pytorchs_adam(as_tensor: bool) -> None:
    ours, theirs = weights(), weights()
    adam, expected = Adam(ours), torch.optim.Adam(theirs)
    for rate in (1e-2, 3e-3, 1e-3):
        for each in (ours, theirs):
            loss = sum((w**3).sum() for w in each)
            for w in each:
                w.grad = None
            loss.backward()
        adam.step(torch.tensor(rate) if as_tensor else rate)
        expected.param_groups[0]["lr"] = rate
        expected.step()
    for w, reference, moments in zip(ours, theirs, adam.moments, strict=True):
        torch.testing.assert_close(w, reference)
        for name, value in expected.state[reference].items():
            torch.testing.assert_close(moments[name], value)


def test_gradients_are_let_go_of() -> None:
    ours = weights()
    adam = Adam(ours)
    ours[0].sum().backward()
    adam.zero_grad()
    assert all(w.grad is None for w in ours)
