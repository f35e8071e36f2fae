"""Blocks of a volume for a training; on a GPU each is put where the one before lay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from hushpore import Volume
from hushpore.denoising.images import arrange
from hushpore.denoising.plane_reader import PlaneReader, Scale
from hushpore.denoising.training import blocks
from hushpore.denoising.training.blocks import BlockSampler, draw_weighted_block
from hushpore.device.backend import Backend
from hushpore.device.timing import StageTimer

SHAPE = (12, 20, 22)


@dataclass(frozen=True)
class OnGpu(Backend):
    """A CPU that is taken for a GPU, to which copies are plain."""

    @property
    def is_cuda(self) -> bool:
        return True

    def bus(self) -> None:
        return None

    def limit_memory(self) -> None:
        pass


def sampler(
    backend: Backend, dimensions: int = 2, context: int = 0, volume: Volume | None = None
) -> BlockSampler:
    if volume is None:
        volume = Volume(np.arange(np.prod(SHAPE), dtype=np.uint16).reshape(SHAPE))
    arrangement = arrange(volume, dimensions, context=context)
    a_slice = SHAPE[1] * SHAPE[2] * 10
    return BlockSampler(
        PlaneReader(volume, dimensions), arrangement, Scale((100.0,), (7.0,)), backend,
        StageTimer(), 4 * a_slice * arrangement.inputs, 4, 0,
    )  # fmt: skip


@pytest.mark.parametrize(("dimensions", "context"), [(2, 0), (2, 1), (3, 0)])
def test_blocks_on_a_gpu_hold_what_others_hold_and_stay_where_they_are(
    dimensions: int, context: int
) -> None:
    plain, on_gpu = (sampler(each, dimensions, context) for each in (Backend(), OnGpu()))
    first = on_gpu.at(0)
    places = {first.planes.data_ptr(), first.members.data_ptr()}
    for number in range(5):
        expected = plain.at(number * plain.steps_per_block)
        found = on_gpu.at(number * on_gpu.steps_per_block)
        # what was captured as a CUDA graph goes by the object, and reads its memory
        assert found is first
        assert {found.planes.data_ptr(), found.members.data_ptr()} == places
        whole = tuple(slice(0, length) for length in expected.shape)
        assert torch.equal(found.region(whole), expected.region(whole))


def test_a_block_is_kept_for_as_many_steps_as_it_takes_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sampler(Backend()).steps_per_block == blocks.STEPS_PER_BLOCK
    assert sampler(OnGpu()).steps_per_block == blocks.STEPS_PER_BLOCK
    # four slices of 16 bits
    monkeypatch.setattr(blocks, "_BYTES_PER_STEP", 4)
    assert sampler(OnGpu()).steps_per_block == 4 * SHAPE[1] * SHAPE[2] * 2 // 4


@pytest.mark.parametrize(("n_images", "fitting", "count"), [(1, 3, 1), (3, 4, 2), (4, 2, 6)])
def test_over_many_blocks_each_place_is_trained_on_by_its_weight(
    n_images: int, fitting: int, count: int
) -> None:
    rng = np.random.default_rng(0)
    # some places are left out, one is asked for ten times as often
    weight = rng.random((n_images, 9)) * (rng.random((n_images, 9)) < 0.7)
    weight[0, 4] = 10 * weight.max()
    seen, draws = np.zeros_like(weight), 20_000
    for _ in range(draws):
        chosen, start, shares = draw_weighted_block(weight, fitting, count, rng)
        assert (np.diff(chosen) > 0).all()
        rows = slice(start, start + fitting)
        seen[chosen, rows] += shares * weight[chosen, rows]
    # as many patches are drawn of each block, by what is in it
    expected = weight / weight.sum()
    found = seen / (draws * count)
    assert (found[weight == 0] == 0).all()
    np.testing.assert_allclose(found, expected, atol=0.1 * expected[weight > 0].min() + 0.005)
