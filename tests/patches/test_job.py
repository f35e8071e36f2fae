from __future__ import annotations

import numpy as np
import pytest

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Note
from hushpore.denoising.training.step import BatchSampler


def sample(scan, **settings):
    return hushpore.sample_patches(scan, device="cpu", **settings)


def test_patches_are_where_the_corners_say(rng: np.random.Generator) -> None:
    scan = rng.integers(0, 999, (2, 5, 30, 40)).astype(np.uint16)
    found = sample(Volume(scan, axes="tzyx"), n_patches=7, patch_size=16)
    assert found.corners.shape == (7, 4)
    assert found.headline == "7 patches of 16 x 16 px"
    for (t, z, y, x), patch in zip(found.corners, found.patches, strict=True):
        np.testing.assert_array_equal(patch, scan[t, z, y : y + 16, x : x + 16])


def test_patches_of_a_volume_go_through_several_slices(rng: np.random.Generator) -> None:
    scan = rng.integers(0, 999, (2, 12, 30, 40)).astype(np.uint16)
    found = sample(
        Volume(scan, axes="tzyx"), n_patches=5, patch_size=8, patch_depth=4, dimensions=3
    )
    for (t, z, y, x), patch in zip(found.corners, found.patches, strict=True):
        np.testing.assert_array_equal(patch, scan[t, z : z + 4, y : y + 8, x : x + 8])
    np.testing.assert_array_equal(found.centres - found.corners, [[0, 1.5, 3.5, 3.5]] * 5)


def test_the_first_are_the_first_batch_that_the_denoiser_trains_on(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = rng.normal(size=(6, 48, 48)).astype(np.float32)
    drawn = []
    corners = BatchSampler.corners

    def spy(self: BatchSampler, *images: object) -> object:
        drawn.append(corners(self, *images))
        return drawn[-1]

    monkeypatch.setattr(BatchSampler, "corners", spy)
    hushpore.denoise(scan, steps=1, patch_size=16, batch_size=5, seed=9, device="cpu")
    shown = sample(scan, n_patches=12, patch_size=16, seed=9)
    np.testing.assert_array_equal(shown.corners[:5], drawn[0])


@pytest.mark.parametrize("sampler", ["uniform", "stratified", "foreground", "gradient"])
def test_every_sampler_draws_as_many_as_asked_for_and_the_same_again(sampler, rng) -> None:
    scan = rng.normal(size=(4, 32, 32)).astype(np.float32)
    settings = {"sampler": sampler, "n_patches": 20, "patch_size": 8}
    found = sample(scan, **settings)
    assert found.corners.shape == (20, 3)
    np.testing.assert_array_equal(found.corners, sample(scan, **settings).corners)
    assert (found.corners != sample(scan, **settings, seed=1).corners).any()


def test_a_grid_covers_every_slice(rng) -> None:
    found = sample(rng.normal(size=(3, 20, 20)), sampler="grid", patch_size=8, overlap=2)
    assert len(found.corners) == 3 * 9
    covered = np.zeros((3, 20, 20), bool)
    for z, y, x in found.corners:
        covered[z, y : y + 8, x : x + 8] = True
    assert covered.all()


def test_patches_in_the_foreground_lie_where_it_is_bright(rng) -> None:
    scan = rng.normal(0, 0.1, (40, 60))
    scan[:, 40:] += 10
    x = sample(scan, sampler="foreground", patch_size=8, n_patches=50).corners[:, 1]
    assert (x > 32).all()


def test_patches_by_gradient_lie_at_edges(rng) -> None:
    scan = np.zeros((40, 60)) + rng.normal(0, 1e-6, (40, 60))
    scan[:, 30:] = 10
    x = sample(scan, sampler="gradient", patch_size=8, n_patches=50).corners[:, 1]
    assert ((x > 20) & (x < 32)).mean() > 0.95


@pytest.mark.parametrize("axes", ["zyx", "tzyx", "czyx"])
def test_labels_draw_patches_to_them(axes, rng) -> None:
    shape = (2,) * (len(axes) - 3) + (6, 30, 30)
    labels = np.zeros((6, 30, 30), np.int32)
    labels[4, 20, 20] = 7
    scan = Volume(rng.normal(size=shape), axes=axes)
    how = {"sampler": "weights", "weights": labels, "weights_are_labels": True}
    found = sample(scan, **how, patch_size=8, n_patches=20)
    z, y, x = found.corners[:, -3:].T
    assert (z == 4).all()
    assert ((y <= 20) & (y > 12) & (x <= 20) & (x > 12)).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64, np.uint64, np.float32])
def test_an_image_of_any_type_weighs_by_its_values_and_labels_by_what_they_hold(dtype, rng) -> None:
    # of two places that hold a patch each, one weighs four times the other
    weights = np.zeros((20, 60), dtype)
    weights[4:12, 4:12], weights[4:12, 40:48] = 50, 200
    scan = rng.normal(size=weights.shape)
    how = {"sampler": "weights", "weights": weights, "patch_size": 4, "n_patches": 4000}
    notes = []
    for are_labels, share in ((False, 0.8), (True, 0.8 if dtype == np.float32 else 0.5)):
        found = sample(scan, **how, weights_are_labels=are_labels)
        assert (found.corners[:, 1] > 30).mean() == pytest.approx(share, abs=0.03)
        notes.append(any(note.remedy for note in found.remarks))
    # a mask is the same to both
    assert notes == [dtype != np.float32, False]
    mask = sample(scan, **{**how, "weights": (weights > 0).astype(dtype)})
    assert not mask.provenance["notes"]


def test_patches_lie_about_given_points(rng) -> None:
    scan = rng.normal(size=(5, 40, 40))
    points = np.array([(2.2, 20.0, 16.0), (4.0, 39.0, 20.0)])
    notes = []
    found = hushpore.run(
        "patches", scan, {"sampler": "points", "points": points, "patch_size": 9}, "cpu",
        lambda event: notes.append(event.message) if isinstance(event, Note) else None,
    )  # fmt: skip
    assert found.corners.tolist() == [[2, 16, 12], [4, 31, 16]]
    assert notes[0] == "1 of 2 patches were shifted to lie inside volume."
    assert notes[0] in found.provenance["notes"]


def test_points_without_a_time_lie_in_the_first(rng) -> None:
    scan = Volume(rng.normal(size=(3, 5, 20, 20)), axes="tzyx")
    found = sample(scan, sampler="points", points=np.array([(2.0, 10.0, 10.0)]), patch_size=8)
    assert found.corners.tolist() == [[0, 2, 6, 6]]


def test_groups_are_of_patches_that_lie_near_in_space(rng) -> None:
    scan = Volume(rng.normal(size=(2, 4, 64, 64)), axes="tzyx", spacing=(50.0, 1.0, 1.0))
    found = sample(scan, n_patches=200, patch_size=8, group_size=3, n_groups=10, n_neighbours=4)
    assert found.groups.shape == (10, 3)
    t = found.corners[found.groups][..., 0]
    assert (t == t[:, :1]).all()
    assert "10 groups of 3" in found.headline


def test_the_table_has_a_row_a_patch(rng) -> None:
    found = sample(rng.normal(size=(3, 20, 20)), n_patches=4, patch_size=8)
    table = found.table()
    assert list(table.columns) == ["patch", "z", "y", "x", "order", "mean", "sd", "gradient"]
    assert table["mean"][2] == pytest.approx(found.patches[2].mean())
    first = found.ranked("mean", 2)
    assert table["mean"][first[0]] == table["mean"].max()
    assert found.ranked("order", 2).tolist() == [0, 1]


def test_only_windows_are_read_of_a_memory_map(tmp_path, rng) -> None:
    scan = np.memmap(tmp_path / "scan", np.int16, "w+", shape=(4, 40, 40))
    scan[:] = rng.integers(0, 99, scan.shape)
    found = sample(scan, n_patches=3, patch_size=8)
    z, y, x = found.corners[1]
    np.testing.assert_array_equal(found.patches[1], scan[z, y : y + 8, x : x + 8])


def test_a_read_only_image_is_read_and_left_alone(rng: np.random.Generator) -> None:
    scan = rng.normal(size=(40, 40))
    scan.flags.writeable = False
    assert sample(scan, n_patches=2, patch_size=8).patches.shape == (2, 8, 8)


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((20, 30), {}, r"\(20 x 30 pixels\) are smaller than a patch \(64 x 64\)"),
        ((4, 20, 20), {"dimensions": 3, "patch_size": 8}, "patch_depth or patch_size"),
        ((20, 20), {"dimensions": 3, "patch_size": 8}, "is a 2D image"),
        ((20, 20), {"sampler": "points"}, "needs a set of points"),
        ((20, 20), {"sampler": "weights"}, "needs a mask"),
        ((20, 20), {"sampler": "grid", "patch_size": 8, "overlap": 8}, "smaller than patch_size"),
        (
            (9, 900, 900),
            {"sampler": "grid", "patch_size": 4},
            "patches; at most 100,000 are supported",
        ),
        (
            (20, 20),
            {"sampler": "weights", "weights": np.zeros((20, 20), bool), "patch_size": 8},
            "No patch of",
        ),
        (
            (20, 20),
            {"sampler": "points", "points": np.empty((0, 2)), "patch_size": 8},
            "There are no points",
        ),
        (
            (20, 20),
            {"group_size": 3, "n_patches": 4, "patch_size": 8},
            r"Groups need at least 7 points \(n_neighbours\); got 4",
        ),
    ],
)
def test_what_cannot_be_sampled_is_refused(shape, settings, message, rng) -> None:
    with pytest.raises(InputError, match=message):
        sample(rng.normal(size=shape), **settings)
