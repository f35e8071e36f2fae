from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Batch, result_of
from hushpore.denoising import images
from hushpore.denoising.images import arrange
from hushpore.denoising.plane_reader import PlaneReader, Scale
from hushpore.denoising.settings import DenoiseSettings
from hushpore.denoising.training import blocks
from hushpore.denoising.training.step import BatchSampler
from hushpore.device.backend import Backend
from hushpore.device.timing import StageTimer

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = {"steps": 6, "patch_size": 16, "batch_size": 4, "test_time_augmentation": False}


@pytest.fixture
def scan(rng):
    return rng.normal(0, 1, (6, 48, 48)).astype(np.float32)


@pytest.fixture
def drawn(monkeypatch):
    """All corners that a training draws, for the loss that is shown too."""
    found = []
    corners = BatchSampler.corners

    def spy(self, *images):
        found.append(corners(self, *images))
        return found[-1]

    monkeypatch.setattr(BatchSampler, "corners", spy)
    return lambda: torch.cat(found).numpy()


def denoise(scan, **settings):
    return hushpore.denoise(scan, device="cpu", **{**QUICK, **settings})


def test_training_patches_lie_about_the_points_given(scan, drawn):
    points = np.array([(2.0, 20.0, 30.0), (5.0, 8.0, 8.0)])
    result = denoise(scan, train_at=points)
    assert {tuple(corner) for corner in drawn().tolist()} == {(2, 12, 22), (5, 0, 0)}
    assert result.provenance["auxiliary"]["train_at"]["shape"] == [2, 3]


def test_training_patches_hold_some_of_the_labels_given(scan, drawn):
    labels = np.zeros(scan.shape, np.uint8)
    labels[3, 40:44, 40:44] = 2
    denoise(scan, train_at=labels)
    assert (drawn()[:, 0] == 3).all()
    assert (drawn()[:, 1:] > 24).all()


@pytest.mark.parametrize("context", [0, 1])
def test_no_training_patch_reaches_into_what_is_left_out(scan, drawn, context):
    mask = np.zeros(scan.shape, bool)
    mask[:, :, 30] = True
    mask[0] = True
    denoise(scan, leave_out=mask, context=context)
    image, _, x = drawn().T
    assert (image > 0).all()
    assert ((x + 16 <= 30) | (x > 30)).all()


def test_points_whose_patches_reach_into_what_is_left_out_are_left_out(scan, drawn):
    mask = np.zeros(scan.shape, bool)
    mask[2, 20, 30] = True
    denoise(scan, train_at=np.array([(2.0, 20.0, 30.0), (5.0, 20.0, 30.0)]), leave_out=mask)
    assert (drawn()[:, 0] == 5).all()


def test_points_of_a_time_series_say_which_time(rng, drawn):
    scan = Volume(rng.normal(size=(3, 4, 32, 32)).astype(np.float32), axes="tzyx")
    denoise(scan, train_at=np.array([(2.0, 1.0, 16.0, 16.0)]))
    assert {tuple(corner) for corner in drawn().tolist()} == {(2 * 4 + 1, 8, 8)}


def test_training_patches_of_a_volume_lie_about_the_points_given(scan, drawn):
    points = np.array([(3.0, 24.0, 20.0)])
    denoise(scan, dimensions=3, patch_depth=4, train_at=points, steps=2)
    assert {tuple(corner) for corner in drawn().tolist()} == {(0, 1, 16, 12)}


def test_where_no_patch_is_left_it_is_said(scan):
    with pytest.raises(InputError, match="No patch of"):
        denoise(scan, leave_out=np.ones(scan.shape, bool))
    with pytest.raises(InputError, match="There are no training patches"):
        denoise(scan, train_at=np.empty((0, 3)))


@pytest.fixture
def places_of_voxels(monkeypatch):
    """Where in the volume all patches lay, for one whose values number its voxels."""
    found = []
    corners = BatchSampler.corners

    def spy(self, images):
        drawn = corners(self, images)
        image, *within = drawn.T
        planes = images.members[image, images.first]
        found.append(images.planes[planes, *within])
        return drawn

    monkeypatch.setattr(BatchSampler, "corners", spy)
    return lambda model, shape: np.stack(
        np.unravel_index(
            np.rint(torch.cat(found).numpy() * model.std[0] + model.mean[0]).astype(int), shape
        ),
        axis=1,
    )


@pytest.mark.parametrize(
    "more", [{}, {"context": 1}, {"dimensions": 3, "patch_depth": 4}], ids=["2D", "2.5D", "3D"]
)
def test_what_is_read_block_by_block_is_trained_on_in_the_same_places(
    more, places_of_voxels, monkeypatch
):
    monkeypatch.setattr(blocks, "STEPS_PER_BLOCK", 2)
    shape = (24, 32, 66)
    scan = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    labels, mask = np.zeros((2, *shape), np.uint8)
    labels[[3, 20]] = 1
    labels[21, 10:, 40:] = 2
    mask[:, :, 30] = 1
    result = denoise(scan, train_at=labels, leave_out=mask, denoise_memory=0.001, **more)
    assert any("block by block" in note for note in result.provenance["notes"])
    depth = more.get("patch_depth", 1)
    found = places_of_voxels(result.model, shape)
    assert len(found) > 20
    for z, y, x in found:
        window = (slice(z, z + depth), slice(y, y + 16), slice(x, x + 16))
        assert labels[window].any()
        assert not mask[window].any()


def test_what_is_read_block_by_block_is_trained_on_about_points(places_of_voxels, monkeypatch):
    monkeypatch.setattr(blocks, "STEPS_PER_BLOCK", 1)
    shape = (24, 64, 66)
    scan = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    mask = np.zeros(shape, bool)
    mask[9] = True
    points = np.array([(2.0, 20.0, 30.0), (9.0, 20.0, 30.0), (22.0, 8.0, 8.0)])
    result = denoise(scan, train_at=points, leave_out=mask, denoise_memory=0.001, steps=12)
    assert any("block by block" in note for note in result.provenance["notes"])
    found = {tuple(place) for place in places_of_voxels(result.model, shape).tolist()}
    assert found == {(2, 12, 22), (22, 0, 0)}


@pytest.mark.parametrize("dimensions", [2, 3])
def test_masks_are_never_read_whole_where_the_volume_is_not(dimensions, monkeypatch):
    monkeypatch.setattr(images, "_PIECE", 1)

    class Mask:
        shape, dtype = (40, 20, 20), np.dtype(bool)
        most = 0

        def __getitem__(self, key):
            found = np.broadcast_to(np.arange(40)[:, None, None] == 30, self.shape)[key]
            Mask.most = max(Mask.most, found.size)
            return found

    volume = Volume(np.zeros(Mask.shape), auxiliary={"labels": Mask(), "mask": Mask()})
    settings = DenoiseSettings(train_at="labels", dimensions=dimensions)
    size = (4, 8, 8)[-dimensions:]
    found = images.TrainingRegions(volume, settings, arrange(volume, dimensions), size)
    weight = result_of(found.row_weights())
    assert weight.sum() == 13 * 13 * 64 * (4 if dimensions == 3 else 1)
    assert Mask.most <= 7 * 20 * 20
    settings = DenoiseSettings(train_at="labels", leave_out="mask", dimensions=dimensions)
    found = images.TrainingRegions(volume, settings, arrange(volume, dimensions), size)
    with pytest.raises(InputError, match="No patch of"):
        result_of(found.row_weights())


@pytest.mark.parametrize(
    ("at", "axes", "shape", "dimensions", "budget"),
    [
        ("labels", "zyx", (4, 7, 8), 2, 9_300),
        ("points", "zyx", (4, 7, 8), 2, 9_300),
        ("nothing", "yx", (9, 10), 2, 1),
        ("points", "tzyx", (2, 3, 7, 8), 2, 1),
        ("labels", "zyx", (14, 5, 6), 3, 14_300),
        ("labels", "tczyx", (2, 2, 9, 5, 5), 3, 11_900),
        ("points", "tczyx", (2, 2, 9, 5, 5), 3, 11_900),
        ("nothing", "tczyx", (2, 2, 9, 5, 5), 3, 11_900),
    ],
)
def test_blocks_give_patches_as_often_as_the_whole_does(at, axes, shape, dimensions, budget, rng):
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    spatial = shape[-3:] if "z" in axes else shape
    size = (4, 4, 4)[-dimensions:]
    mask = rng.random(spatial) < 0.005
    labels = rng.random(spatial) < 0.03
    points = rng.uniform(0, 1, (40, len(shape))) * shape
    names = {"leave_out": "mask"} | ({} if at == "nothing" else {"train_at": at})
    beside = {"mask": mask, "labels": labels, "points": points}
    volume = Volume(values, axes=axes, auxiliary=beside)
    settings = DenoiseSettings(dimensions=dimensions, **names)
    arrangement = arrange(volume, dimensions)
    places = images.TrainingRegions(volume, settings, arrangement, size)
    n_channels = shape[axes.index("c")] if "c" in axes else 1
    given = blocks.BlockSampler(
        PlaneReader(volume, dimensions), arrangement, Scale((0.0,) * n_channels, (1.0,) *
        n_channels), Backend(), StageTimer(), budget, size[0], 0, places,
        result_of(places.row_weights()),
    )  # fmt: skip
    generator, counts = torch.Generator().manual_seed(0), np.zeros(values.size)
    for number in range(450):
        drawn = given.at(number * blocks.STEPS_PER_BLOCK)
        image, *within = drawn.places.draw(1, generator)[0]
        counts[int(drawn.planes[drawn.members[image, 0], *within])] += 1
    window = (1,) * (len(shape) - dimensions) + size
    room, half = np.array(shape) - window, np.array(window) / 2
    centres = points if at == "points" else np.array([*np.ndindex(*(room + 1))]) + half
    expected = np.zeros(shape)
    for centre in centres:
        corner = np.clip(np.ceil(centre - half), 0, room).astype(int)
        inside = tuple(map(slice, corner, corner + window))[-len(spatial) :]
        weight = labels[inside].sum() if at == "labels" else 1
        expected[tuple(corner)] += weight * (not mask[inside].any())
    likely = expected.ravel() > 0
    assert not counts[~likely].any()
    frequencies = expected.ravel()[likely] / expected.sum() * counts.sum()
    assert stats.chisquare(counts[likely], frequencies).pvalue > 0.01


def test_the_patches_of_a_batch_are_told_with_their_losses(scan, drawn, monkeypatch):
    monkeypatch.setattr("hushpore.denoising.training.loop.BATCH_INTERVAL", 0)
    told, losses = [], []

    def listen(event):
        if isinstance(event, Batch):
            told.append(event)

    result = hushpore.run("denoise", scan, {**QUICK, "steps": 3}, "cpu", listen)
    assert [event.step for event in told] == [1, 2, 3]
    for event in told:
        assert event.patch_shape == (16, 16)
        losses.append(event.losses.mean())
    np.testing.assert_array_equal(
        np.concatenate([event.corners for event in told]), drawn()[: 3 * 4]
    )
    assert np.mean(losses) == pytest.approx(result.losses[-1, 1], rel=1e-5)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_patches_of_what_is_read_block_by_block_are_told_where_they_lie(
    dimensions, places_of_voxels, monkeypatch
):
    monkeypatch.setattr("hushpore.denoising.training.loop.BATCH_INTERVAL", 0)
    monkeypatch.setattr(blocks, "STEPS_PER_BLOCK", 2)
    shape = (2, 24, 32, 34)
    scan = Volume(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), axes="tzyx")
    settings = {**QUICK, "dimensions": dimensions, "patch_depth": 4, "denoise_memory": 0.001}
    told = []
    result = hushpore.run(
        "denoise", scan, settings, "cpu",
        lambda event: told.append(event.corners) if isinstance(event, Batch) else None,
    )  # fmt: skip
    assert len(told) == 6
    # what is drawn last is for the loss that is shown
    drawn = places_of_voxels(result.model, shape)[: 6 * 4]
    np.testing.assert_array_equal(np.concatenate(told), drawn)


def test_batches_are_told_five_times_a_second_at_most(scan, monkeypatch):
    seconds = iter(np.arange(0, 1e6, 0.01))
    # the clock of this module alone: loops of events in other threads go by the one of all
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr("hushpore.denoising.training.loop.time", clock)
    told = []
    hushpore.run(
        "denoise", scan, {**QUICK, "steps": 40, "batch_size": 1}, "cpu",
        lambda event: told.append(event) if isinstance(event, Batch) else None,
    )  # fmt: skip
    assert 1 < len(told) < 15
