from __future__ import annotations

import numpy as np
import pytest
import torch

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Note
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.pairs import mask_pixels
from hushpore.denoising.trained_model import Model, load_model


@pytest.fixture
def scan(rng):
    return rng.normal(100, 30, (5, 40, 48)).astype(np.float32)


def model_file(tmp_path, mean=(100.0,), std=(30.0,), channels="independent", context=0, **more):
    network = build_network(Architecture(**more), torch.Generator().manual_seed(0)).eval()
    model = Model(network, mean, std, channels, context)
    return str(model.save(tmp_path / "model.safetensors"))


def test_hidden_pixels_and_their_replacements_are_those_of_the_patch(scan):
    found = hushpore.sample_patches(scan, n_patches=6, patch_size=16, device="cpu")
    assert found.blind.predictions is None
    assert "loss" not in found.features
    for number in range(6):
        z, y, x = found.hidden_voxels(number).T
        np.testing.assert_array_equal(found.blind.originals[number], scan[z, y, x])
        patch = torch.from_numpy(found.patches[number : number + 1])
        positions = torch.from_numpy(found.blind.positions[number : number + 1])
        inside = found.blind.positions[number].T
        hidden = mask_pixels(patch, positions)[0].numpy()
        np.testing.assert_array_equal(found.blind.replacements[number], hidden[tuple(inside)])


@pytest.mark.parametrize("dimensions", [2, 3])
def test_predictions_and_losses_are_those_of_the_network(scan, tmp_path, dimensions):
    size = {"patch_size": 16, "patch_depth": 4, "dimensions": dimensions}
    path = model_file(tmp_path, dimensions=dimensions)
    found = hushpore.sample_patches(scan, n_patches=5, model=path, device="cpu", **size)
    network = load_model(path).network
    values = torch.from_numpy((found.patches - 100) / 30).float()
    positions = torch.from_numpy(found.blind.positions)
    with torch.inference_mode():
        predicted = network(mask_pixels(values, positions)[:, None])[:, 0].numpy()
    # on some processors the job computes in bfloat16
    np.testing.assert_allclose(found.blind.predictions, predicted * 30 + 100, atol=1)
    for number, inside in enumerate(found.blind.positions):
        at = (number, *inside.T)
        loss = ((predicted[at] - values.numpy()[at]) ** 2).mean()
        assert found.features["loss"][number] == pytest.approx(loss, rel=0.02)


def test_a_model_that_was_trained_with_nothing_hidden_sees_whole_patches(scan, tmp_path):
    path = model_file(tmp_path, method="r2r", features=4)
    events = []
    settings = {"n_patches": 5, "patch_size": 16, "model": path}
    found = hushpore.run("patches", scan, settings, "cpu", events.append)
    values = torch.from_numpy((found.patches - 100) / 30).float()
    with torch.inference_mode():
        predicted = load_model(path).network(values[:, None])[:, 0].numpy()
    np.testing.assert_allclose(found.blind.predictions, predicted * 30 + 100, atol=1)
    losses = ((predicted - values.numpy()) ** 2).mean((1, 2))
    np.testing.assert_allclose(found.features["loss"], losses, rtol=0.02)
    notes = [event.message for event in events if isinstance(event, Note)]
    assert any("without masked pixels" in note for note in notes)


def test_a_model_that_sees_neighbouring_slices_is_given_them(scan, tmp_path):
    path = model_file(tmp_path, inputs=3, context=1)
    found = hushpore.sample_patches(scan, n_patches=8, patch_size=16, model=path, device="cpu")
    number = int(np.argmin(np.abs(found.corners[:, 0] - 2)))
    z, y, x = found.corners[number]
    assert 0 < z < 4
    stack = scan[z - 1 : z + 2, y : y + 16, x : x + 16]
    values = torch.from_numpy((stack - 100) / 30)
    positions = torch.from_numpy(found.blind.positions[number : number + 1])
    values[1] = mask_pixels(values[1:2], positions)[0]
    with torch.inference_mode():
        predicted = load_model(path).network(values[None])[0, 0].numpy() * 30 + 100
    np.testing.assert_allclose(found.blind.predictions[number], predicted, atol=1)


def test_a_model_that_sees_channels_together_predicts_each(rng, tmp_path):
    scan = rng.normal(0, 1, (2, 24, 24)).astype(np.float32)
    volume = Volume(scan * [[[10.0]], [[500.0]]], axes="cyx")
    path = model_file(tmp_path, (0.0, 0.0), (10.0, 500.0), channels="together", inputs=2, outputs=2)
    found = hushpore.sample_patches(volume, n_patches=12, patch_size=16, model=path, device="cpu")
    channel = found.corners[:, 0]
    assert set(channel) == {0, 1}
    spread = np.abs(found.blind.predictions).mean((1, 2))
    assert spread[channel == 1].min() > 5 * spread[channel == 0].max()


def test_without_a_model_it_is_said_what_is_left_out(scan):
    notes = []
    hushpore.run(
        "patches", scan, {"patch_size": 16}, "cpu",
        lambda event: notes.append(event.message) if isinstance(event, Note) else None,
    )  # fmt: skip
    assert any("Without a trained model" in note for note in notes)


def test_the_sheet_shows_what_becomes_of_a_patch(scan, tmp_path):
    path = model_file(tmp_path)
    found = hushpore.sample_patches(scan, n_patches=3, patch_size=16, model=path, device="cpu")
    sheet = found.sheet()
    assert sheet.rows == ("original", "masked", "replaced", "prediction", "residual")
    tiles = [sheet.image[row * 18 : row * 18 + 16, 18 : 18 + 16] for row in range(len(sheet.rows))]
    original, masked, replaced, prediction, residual = tiles
    np.testing.assert_array_equal(original, found.patches[1])
    y, x = found.blind.positions[1].T
    changed = np.zeros((16, 16), bool)
    changed[y, x] = True
    np.testing.assert_array_equal(masked != original, changed)
    assert not (replaced != original)[~changed].any()
    np.testing.assert_array_equal(prediction, found.blind.predictions[1])
    shift = residual - (original - prediction)
    np.testing.assert_allclose(shift, shift[0, 0], rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dimensions": 3, "patch_depth": 4}, "trained in 2D; set dimensions to 2"),
        ({"patch_size": 18}, "must be a multiple of 4"),
        ({"model": "nowhere.safetensors"}, "does not exist"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(scan, tmp_path, settings, message):
    path = model_file(tmp_path)
    with pytest.raises(InputError, match=message):
        hushpore.sample_patches(
            scan, **{"patch_size": 16, "model": path, "device": "cpu", **settings}
        )
