from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hushpore.denoising.images import Images
from hushpore.denoising.inference.tiles import (
    CORES,
    CORES_ON_GPU,
    core_on_gpu,
    core_within,
    halve_core,
    pad,
    plan_tiles,
    predict_images,
    predict_tile,
    tile_bytes,
)
from hushpore.denoising.model import Architecture, UNet, build_network
from hushpore.device.transfers import constant

sizes = st.integers(1, 90)


@given(st.tuples(st.integers(1, 5), sizes, sizes), st.sampled_from([4, 16, 32]))
@settings(max_examples=60, deadline=None)
def test_an_identity_network_returns_the_input_exactly(shape: tuple[int, ...], core: int) -> None:
    images = torch.from_numpy(np.random.default_rng(0).normal(size=shape).astype("f4"))
    found = predict_images(lambda x: x, Images.of(images), (2, core, core))
    assert torch.equal(found[:, 0], images)


@pytest.mark.parametrize(
    "shape", [(1, 513, 513), (3, 7, 5), (2, 1, 1), (1, 5, 33, 130), (1, 512, 3)]
)
def test_identity_holds_for_odd_sizes_and_sizes_below_a_tile(shape: tuple[int, ...]) -> None:
    images = torch.rand(shape)
    assert torch.equal(predict_images(lambda x: x, Images.of(images))[:, 0], images)


@given(st.tuples(st.integers(1, 9), sizes, sizes), st.integers(1, 4), st.sampled_from([4, 24]))
@settings(max_examples=60, deadline=None)
def test_tiles_cover_every_pixel_once_and_start_on_the_pooling_grid(
    shape: tuple[int, ...], images: int, core: int
) -> None:
    covered = np.zeros(shape, int)
    padded = (shape[0], *(math.ceil(n / 4) * 4 for n in shape[1:]))
    for tile in plan_tiles(shape, (images, core, core)):
        covered[tile.target] += 1
        for source, length in zip(tile.source[1:], padded[1:], strict=True):
            assert source.start % 4 == source.stop % 4 == 0
            assert source.stop <= length
    assert (covered == 1).all()


@pytest.mark.parametrize(
    ("architecture", "shape", "core"),
    [
        (Architecture(2, features=4), (2, 150, 131), (1, 48, 40)),
        (Architecture(3, features=4), (1, 20, 75, 70), (1, 8, 32, 36)),
    ],
    ids=["2D", "3D"],
)
def test_tiles_leave_no_seams(
    architecture: Architecture, shape: tuple[int, ...], core: tuple[int, ...]
) -> None:
    network = UNet(architecture).eval()
    network.initialise(torch.Generator().manual_seed(0))
    images = Images.of(torch.rand(shape, generator=torch.Generator().manual_seed(1)))
    how = {"architecture": architecture}
    whole = predict_images(network, images, tuple(4 * math.ceil(n / 4) for n in shape), **how)
    parts = predict_images(network, images, core, **how)
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-5)


def test_padding_mirrors_the_far_end() -> None:
    images = torch.arange(6.0).reshape(1, 1, 6)
    assert pad(images)[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 4, 3]
    assert pad(images).shape == (1, 4, 8)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_cores_halve_to_the_smallest_and_end(dimensions: int) -> None:
    core: tuple[int, ...] | None = CORES[dimensions]
    seen = []
    while core is not None:
        assert all(edge % 4 == 0 for edge in core[1:])
        seen.append(math.prod(core))
        core = halve_core(core)
    assert seen == sorted(seen, reverse=True)
    assert len(set(seen)) == len(seen)
    assert seen[-1] == 4**dimensions


@pytest.mark.parametrize("dimensions", [2, 3])
def test_tiles_become_smaller_where_there_is_little_memory(dimensions: int) -> None:
    network = Architecture(dimensions)
    assert core_within(1e12, network, torch.float32) == CORES[dimensions]
    half = core_within(8e8, network, torch.bfloat16)
    least = core_within(1e6, network, torch.bfloat16)
    assert np.prod(least) < np.prod(half) <= np.prod(CORES[dimensions])
    assert min(least[1:]) >= 32
    assert tile_bytes(half, network, torch.bfloat16) <= 8e8


def test_a_tile_takes_no_margin_where_the_image_ends() -> None:
    network = Architecture(3, flat=True)
    thin = tile_bytes(CORES[3], network, torch.float32, (8, 128, 128))
    assert thin < tile_bytes(CORES[3], network, torch.float32) / 4
    memory = 1.2 * thin
    assert core_within(memory, network, torch.float32, (8, 128, 128)) == CORES[3]
    assert core_within(memory, network, torch.float32) != CORES[3]


@pytest.mark.parametrize("dimensions", [2, 3])
def test_on_a_gpu_tiles_are_as_large_as_its_memory_allows(dimensions: int) -> None:
    network, largest = Architecture(dimensions), CORES_ON_GPU[dimensions]
    needed = tile_bytes(largest, network, torch.bfloat16)
    cores = [core_on_gpu(memory, network, torch.bfloat16) for memory in (needed, needed - 1, 1e6)]
    assert cores[0] == largest
    assert np.prod(CORES[dimensions]) < np.prod(cores[1]) < np.prod(largest)
    assert tile_bytes(cores[1], network, torch.bfloat16) < needed
    # where it is short it says so, and less is tried
    assert cores[2] == CORES[dimensions]


def test_with_augmentation_a_turned_image_gives_the_turned_result() -> None:
    network = UNet(Architecture(2, features=4)).eval()
    network.initialise(torch.Generator().manual_seed(0))
    image = torch.rand(1, 24, 16, generator=torch.Generator().manual_seed(1))

    def result(image: torch.Tensor) -> torch.Tensor:
        tile = plan_tiles(image.shape, (1, 64, 64))[0]
        return predict_tile(network, Images.of(image), tile, augment=True)[:, 0]

    expected = result(image)
    turned = result(image.transpose(1, 2).flip(2)).flip(2).transpose(1, 2)
    torch.testing.assert_close(turned, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 24, 16), (1, 8, 12, 16)])
def test_augmentation_leaves_an_identity_as_it_is(shape: tuple[int, ...]) -> None:
    images = torch.rand(shape)
    tile = plan_tiles(shape, (2, *[64] * (len(shape) - 1)))[0]
    found = predict_tile(lambda x: x, Images.of(images), tile, augment=True)
    torch.testing.assert_close(found[:, 0], images)


@pytest.mark.parametrize("shape", [(1, 9, 10), (1, 5, 6, 7)])
def test_a_first_preview_neither_sends_nor_reads_anything(
    shape: tuple[int, ...], strict: Any
) -> None:
    """It may come while a training runs, whose host is to wait for nothing."""
    network = build_network(
        Architecture(len(shape) - 1, features=4), torch.Generator().manual_seed(0)
    ).eval()
    images = Images.of(torch.zeros(shape))
    constant.cache_clear()
    with strict.capturing():
        found = predict_images(network, images, architecture=network.architecture)
    assert found.shape == (1, *shape)
