from __future__ import annotations

import math
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Note, Progress, result_of
from hushpore.denoising.images import Images, arrange
from hushpore.denoising.inference import volumes
from hushpore.denoising.inference.volumes import (
    CORES,
    CORES_ON_GPU,
    Tile,
    VolumePredictor,
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
from hushpore.denoising.plane_reader import PlaneReader, Scale, measure_scale
from hushpore.denoising.trained_model import Model
from hushpore.device.backend import Backend
from hushpore.device.transfers import constant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MEAN, STD = (100.0,), (20.0,)


#: Where it does not matter whether predictions are averaged over orientations.
ONCE = {"test_time_augmentation": False}


def make_model(**architecture: object) -> Model:
    network = UNet(Architecture(features=4, **architecture)).eval()
    network.initialise(torch.Generator().manual_seed(0))
    channels = "together" if network.architecture.outputs > 1 else "independent"
    context = network.architecture.inputs // 2 if channels == "independent" else 0
    n = network.architecture.outputs
    return Model(network, MEAN * n, STD * n, channels, context)


@pytest.mark.parametrize(
    ("shape", "axes", "architecture"),
    [
        ((9, 40, 37), "zyx", {"dimensions": 2}),
        ((2, 3, 40, 37), "tcyx", {"dimensions": 2, "inputs": 3, "outputs": 3}),
        ((7, 40, 37), "zyx", {"dimensions": 2, "inputs": 5, "outputs": 1}),
        ((90, 24, 21), "zyx", {"dimensions": 3}),
        ((41, 24, 21), "zyx", {"dimensions": 3, "flat": True}),
        ((2, 2, 80, 16, 17), "tczyx", {"dimensions": 3, "inputs": 2, "outputs": 2}),
        ((40, 37), "yx", {"dimensions": 2}),
    ],
    ids=["2D", "channels", "2.5D", "3D", "flat", "3D channels", "one slice"],
)
def test_in_slabs_the_result_is_that_of_the_whole(
    rng: np.random.Generator, shape: tuple[int, ...], axes: str, architecture: dict[str, object]
) -> None:
    volume = Volume(rng.normal(100, 20, shape).astype(np.float32), axes=axes)
    model = make_model(**architecture)
    # averaged over orientations where that takes but a moment
    averaged = model.network.architecture.dimensions == 2
    whole = model.predict(volume, "cpu", test_time_augmentation=averaged).data
    slabs = model.predict(volume, "cpu", test_time_augmentation=averaged, memory=1).data
    np.testing.assert_allclose(slabs, whole, rtol=1e-5, atol=1e-3)


def test_a_slab_takes_no_more_memory_than_it_may(rng: np.random.Generator) -> None:
    for dimensions, shape in ((2, (64, 200, 200)), (3, (400, 40, 40))):
        source = PlaneReader(Volume(rng.normal(size=shape).astype(np.float32)), dimensions)
        model = make_model(dimensions=dimensions)
        budget = 10e6
        predictor = VolumePredictor(
            model.network, model.arrange(source.volume), model.scale, budget
        )
        slabs = predictor.plan(source, CORES[dimensions])
        assert len(slabs) > 2
        for slab in slabs:
            rows = slab.rows.stop - slab.rows.start
            voxels = (slab.images.stop - slab.images.start) * rows * np.prod(source.size[1:])
            assert 2 * 16 * voxels <= budget
        covered = np.zeros((len(predictor.arrangement.members), *source.size), int)
        for slab in slabs:
            for tile in slab.tiles:
                covered[tile.target] += 1
        assert (covered == 1).all()


def taken_by(work: Callable[[], object]) -> int:
    """Return the most bytes that PyTorch, and NumPy and Python, held in some work, each."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        tracemalloc.start()
        work()
        arrays = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    found = recorded.profiler.kineto_results.events()
    events = [each for each in found if each.name() == "[memory]"]
    sizes = [each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())]
    return int(np.cumsum(sizes).max()) + arrays


@pytest.mark.parametrize(
    ("architecture", "shape", "memory", "averaged"),
    [
        ({"dimensions": 2}, (1, 200, 300), 80e6, True),
        ({"dimensions": 2, "inputs": 5}, (5, 180, 180), 90e6, False),
        ({"dimensions": 3}, (36, 36, 96), 320e6, False),
    ],
    ids=["2D", "2.5D", "3D"],
)
def test_prediction_takes_no_more_memory_than_it_may(
    architecture: dict[str, Any], shape: tuple[int, ...], memory: float, averaged: bool
) -> None:
    network = build_network(Architecture(**architecture), torch.Generator().manual_seed(0)).eval()
    model = Model(network, (0.0,), (1.0,), context=network.architecture.inputs // 2)
    scan = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    out = np.zeros_like(scan)
    # what libraries take for themselves on their first use is not of the prediction
    model.predict(scan[:8, :32, :32], "cpu", memory=1e6)
    how = {"out": out, "test_time_augmentation": averaged, "memory": memory}
    taken = taken_by(lambda: model.predict(scan, "cpu", **how))
    # the other half is for what allocators keep beside; nor so little that memory would lie idle
    assert memory / 8 < taken < memory / 2


@pytest.mark.parametrize("dimensions", [2, 3])
def test_what_is_too_little_memory_is_said(rng: np.random.Generator, dimensions: int) -> None:
    volume = Volume(rng.normal(100, 20, (40, 40, 40)).astype(np.float32))
    model = make_model(dimensions=dimensions)
    for budget, is_little in ((1e5, True), (1e9, False)):
        predictor = VolumePredictor(model.network, model.arrange(volume), model.scale, budget)
        events: list[object] = []
        out = np.empty(volume.shape, np.float32)
        result_of(predictor.predict(PlaneReader(volume, dimensions), out, Backend()), events.append)
        notes = [event.message for event in events if isinstance(event, Note)]
        assert bool(notes) == is_little
        assert all("the tiles cannot be made smaller" in note for note in notes)


def test_a_computer_with_little_memory_predicts_the_same_in_smaller_tiles(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, model = rng.normal(100, 20, (3, 90, 70)), make_model(dimensions=2)
    expected = model.predict(values, "cpu").data
    seen = []
    predict_tile = volumes.predict_tile

    def spy(network: object, padded: object, tile: Tile, *more: object) -> torch.Tensor:
        seen.append(tile.target)
        return predict_tile(network, padded, tile, *more)

    monkeypatch.setattr(volumes, "predict_tile", spy)
    monkeypatch.setattr(Backend, "free_memory", lambda self: 1e6)
    found = model.predict(values, "cpu", memory=1e9).data
    assert max(part.stop - part.start for target in seen for part in target) == 32
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def test_a_memory_map_goes_into_a_memory_map(rng: np.random.Generator, tmp_path: Path) -> None:
    values = rng.normal(100, 20, (6, 40, 37)).astype(">i2")
    noisy = np.memmap(tmp_path / "noisy", values.dtype, "w+", shape=values.shape)
    noisy[:] = values
    out = np.memmap(tmp_path / "out", np.float32, "w+", shape=values.shape)
    model = make_model(dimensions=2)
    result = model.predict(Volume(noisy), "cpu", out=out, memory=1e5)
    assert result.data is out
    np.testing.assert_allclose(out, model.predict(values, "cpu").data, rtol=1e-5, atol=1e-3)


def test_zarr_goes_into_zarr(rng: np.random.Generator, tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    values = rng.normal(100, 20, (2, 6, 40, 37)).astype(np.float32)
    noisy = zarr.create_array(
        tmp_path / "in.zarr", shape=values.shape, dtype="f4", chunks=(1, 4, 32, 32)
    )
    noisy[:] = values
    out = zarr.create_array(
        tmp_path / "out.zarr", shape=values.shape, dtype="f4", chunks=(1, 4, 32, 32)
    )
    model = make_model(dimensions=2)
    model.predict(Volume(noisy), "cpu", out=out, memory=1e5, **ONCE)
    expected = model.predict(values, "cpu", **ONCE).data
    np.testing.assert_allclose(out[:], expected, rtol=1e-5, atol=1e-3)


def test_dask_is_read_slab_by_slab(rng: np.random.Generator) -> None:
    da = pytest.importorskip("dask.array")
    values = rng.normal(100, 20, (90, 24, 21)).astype(np.float32)
    most = 0

    def load(block: np.ndarray) -> np.ndarray:
        nonlocal most
        most = max(most, block.shape[0])
        return block

    lazy = da.from_array(values, chunks=(10, 24, 21)).map_blocks(load, dtype=values.dtype)
    model = make_model(dimensions=3)
    result = model.predict(Volume(lazy), "cpu", memory=1, **ONCE)
    expected = model.predict(values, "cpu", **ONCE)
    np.testing.assert_allclose(result.data, expected.data, rtol=1e-5, atol=1e-3)
    assert most == 10


@pytest.mark.usefixtures("small_network")
@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_job_trains_and_predicts_what_does_not_fit(
    rng: np.random.Generator, dimensions: int
) -> None:
    values = rng.normal(100, 20, (24, 40, 40)).astype(np.float32)
    quick = {"steps": 3, "patch_size": 16, "patch_depth": 4, "batch_size": 2, "device": "cpu"}
    result = hushpore.denoise(
        values, dimensions=dimensions, denoise_memory=0.001, precision="float32",
        test_time_augmentation=False, **quick,
    )  # fmt: skip
    assert any("read block by block" in note for note in result.provenance["notes"])
    assert not isinstance(result.volume.data, np.memmap)  # the result itself fits
    expected = result.model.predict(values, "cpu", test_time_augmentation=False).data
    np.testing.assert_allclose(result.volume.data, expected, rtol=1e-4, atol=1e-2)


@pytest.mark.usefixtures("small_network")
def test_a_result_that_does_not_fit_lies_in_a_file(rng: np.random.Generator) -> None:
    values = rng.normal(100, 20, (9, 128, 128)).astype(np.float32)
    result = hushpore.denoise(
        values, denoise_memory=0.001, steps=2, patch_size=16, batch_size=2, device="cpu",
        test_time_augmentation=False,
    )  # fmt: skip
    assert isinstance(result.volume.data, np.memmap)
    assert np.isfinite(result.volume.data).all()
    assert result.volume.data.std() > 0


def test_mean_and_deviation_are_those_of_all_values(rng: np.random.Generator) -> None:
    values = rng.integers(-3000, 30000, (2, 3, 5, 30, 40)).astype(np.int16)
    values[:, 1] //= 7
    for dimensions in (2, 3):
        scale = measure_scale(PlaneReader(Volume(values, axes="tczyx"), dimensions))
        axes = (0, 2, 3, 4)
        np.testing.assert_allclose(scale.mean, values.mean(axes, np.float64), rtol=1e-12)
        np.testing.assert_allclose(scale.std, values.std(axes, np.float64), rtol=1e-10)


def test_scaling_and_back_returns_the_values(rng: np.random.Generator) -> None:
    scale = Scale((100.0, -5.0), (20.0, 0.5))
    planes = rng.normal(size=(3, 8, 8)).astype(np.float32)
    channels = np.array([0, 1, 0])
    there = scale.normalise(torch.from_numpy(planes.copy()), channels)
    np.testing.assert_allclose(there[1], (planes[1] + 5) / 0.5, rtol=1e-5)
    np.testing.assert_allclose(
        scale.restore(there.numpy().copy(), channels), planes, rtol=1e-5, atol=1e-4
    )


def test_values_that_cannot_be_used_are_said_wherever_they_lie(tmp_path: Path) -> None:
    lazy = np.memmap(tmp_path / "noisy", np.float32, "w+", shape=(3, 20, 20))
    lazy[:] = np.arange(400).reshape(20, 20)
    lazy[1, 3, 4] = np.nan
    lazy[2, 3, 4] = np.inf
    with pytest.raises(InputError, match="2 NaN or infinite values of 1200"):
        measure_scale(PlaneReader(Volume(lazy), 2))
    constant = np.zeros((2, 3, 20, 20))
    constant[0] = np.arange(20)
    with pytest.raises(InputError, match="Channel 1 of volume is constant"):
        measure_scale(PlaneReader(Volume(constant, axes="czyx"), 2))


def test_predicting_tells_its_progress(rng: np.random.Generator) -> None:
    volume = Volume(rng.normal(100, 20, (9, 40, 37)))
    model = make_model(dimensions=2)
    predictor = VolumePredictor(
        model.network, arrange(volume, 2), model.scale, 1, progress_start=0.5
    )
    events: list[object] = []
    out = np.empty(volume.shape, np.float32)
    result_of(predictor.predict(PlaneReader(volume, 2), out, Backend()), events.append)
    fractions = [event.fraction for event in events if isinstance(event, Progress)]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.5, 1)


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
