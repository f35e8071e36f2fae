from __future__ import annotations

import numpy as np
import pytest
import torch

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Batch
from hushpore.n2v2.training import Batches

QUICK = {"steps": 6, "patch_size": 16, "batch_size": 4}


@pytest.fixture
def scan(rng):
    return rng.normal(0, 1, (6, 48, 48)).astype(np.float32)


@pytest.fixture
def drawn(monkeypatch):
    """All corners that a training draws, for the loss that is shown too."""
    found = []
    corners = Batches.corners

    def spy(self, *images):
        found.append(corners(self, *images))
        return found[-1]

    monkeypatch.setattr(Batches, "corners", spy)
    return lambda: torch.cat(found).numpy()


def denoise(scan, **settings):
    return hushpore.denoise(scan, device="cpu", **{**QUICK, **settings})


def test_training_patches_lie_about_the_points_given(scan, drawn):
    points = np.array([(2.0, 20.0, 30.0), (5.0, 8.0, 8.0)])
    result = denoise(scan, train_at=points)
    assert {tuple(corner) for corner in drawn().tolist()} == {(2, 12, 22), (5, 0, 0)}
    assert result.provenance["beside"]["train_at"]["shape"] == [2, 3]


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
    with pytest.raises(InputError, match="There is no patch to train on"):
        denoise(scan, train_at=np.empty((0, 3)))


def test_regions_of_what_is_read_block_by_block_are_refused(scan):
    large = np.tile(scan, (1, 4, 4))
    with pytest.raises(InputError, match="block by block"):
        denoise(large, train_at=np.array([(2.0, 20.0, 30.0)]), denoise_memory=0.001)


def test_the_patches_of_a_batch_are_told_with_their_losses(scan, drawn, monkeypatch):
    monkeypatch.setattr("hushpore.n2v2.fitting.BATCH_PAUSE", 0)
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


def test_batches_are_told_five_times_a_second_at_most(scan, monkeypatch):
    clock = iter(np.arange(0, 1e6, 0.01))
    monkeypatch.setattr("hushpore.n2v2.fitting.time.monotonic", lambda: float(next(clock)))
    told = []
    hushpore.run(
        "denoise", scan, {**QUICK, "steps": 40}, "cpu",
        lambda event: told.append(event) if isinstance(event, Batch) else None,
    )  # fmt: skip
    assert 1 < len(told) < 15
