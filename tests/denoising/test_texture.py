"""Features by a trained denoiser: those of the network, whatever part of a volume is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from hushpore import InputError, Volume
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.texture import TextureNetwork
from hushpore.denoising.trained_model import Model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHAPE = (7, 75, 94)


@pytest.fixture(scope="module")
def volume() -> Volume:
    values = np.random.default_rng(0).integers(900, 1100, SHAPE).astype(np.uint16)
    return Volume(values, name="scan")


def made(context: int = 1, dimensions: int = 2, channels: int = 1, **more: Any) -> Model:
    """Return a model of random weights."""
    inputs = 1 if dimensions == 3 else 2 * context + 1
    architecture = Architecture(dimensions, inputs=inputs, features=4, **more)
    network = build_network(architecture, torch.Generator().manual_seed(1)).eval()
    return Model(network, (1000.0,) * channels, (60.0,) * channels, context=context)


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., str]:
    def save(**how: Any) -> str:
        return str(made(**how).save(tmp_path / "model.safetensors", overwrite=True))

    return save


def found(network: TextureNetwork, volume: Volume, box: Any = None) -> np.ndarray:
    box = box or [(0, n) for n in volume.shape]
    first, last = max(box[0][0] - network.reach, 0), box[0][1] + network.reach
    out = np.full((network.count, *(b - a for a, b in box)), np.nan, np.float32)
    network.find(volume.array()[first:last], first, box, out)
    return out


@pytest.mark.parametrize("method", ["n2v2", "r2r", "n2v"])
def test_the_last_block_gives_the_denoised_image(
    volume: Volume, saved: Callable[..., str], method: str
) -> None:
    """Its weighted sum is what the denoiser predicts, before shares of the input are added."""
    model = made(method=method)
    features = found(TextureNetwork(saved(method=method), volume), volume)
    assert features.shape == (8, *SHAPE)
    sums = model.network.output(torch.from_numpy(features[:4]).movedim(1, 0)).detach().numpy()
    if method != "r2r":
        own = model.predict(volume, "cpu", test_time_augmentation=False).data
        np.testing.assert_allclose(1000 + 60 * sums[:, 0], own, atol=0.02)
    values = torch.from_numpy((volume.array()[1:4].astype(np.float32) - 1000) / 60)
    given = F.pad(values[None], (0, 2, 0, 1), mode="reflect")
    with torch.no_grad():
        expected = model.network.output(model.network.features(given))[0, 0, :75, :94]
    np.testing.assert_allclose(sums[2, 0], expected.numpy(), atol=1e-4)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_last_block_but_one_is_interpolated(
    volume: Volume, saved: Callable[..., str], levels: int
) -> None:
    """With a single level it is the one at the bottom."""
    network = made(levels=levels).network
    kept: list[torch.Tensor] = []
    block = network.bottom if levels == 1 else network.up[-1]
    block.register_forward_hook(lambda *each: kept.append(each[2]))
    values = torch.from_numpy((volume.array()[1:4, :72, :88].astype(np.float32) - 1000) / 60)
    with torch.no_grad():
        network(values[None])
    expected = F.interpolate(kept[0], scale_factor=2.0, mode="bilinear")[0]
    part = Volume(np.ascontiguousarray(volume.array()[:, :72, :88]))
    features = found(TextureNetwork(saved(levels=levels), part), part, [(2, 3), (0, 72), (0, 88)])
    np.testing.assert_allclose(features[4:, 0], expected.numpy(), atol=1e-4)


def test_a_part_has_the_features_of_the_whole_bit_for_bit(
    volume: Volume, saved: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles, also where a part ends within one, and on any number of threads."""
    in_one = found(TextureNetwork(saved(), volume), volume)
    monkeypatch.setattr(TextureNetwork, "EDGE", 32)
    network = TextureNetwork(saved(), volume)
    whole = found(network, volume)
    np.testing.assert_allclose(whole, in_one, atol=1e-4)
    count = torch.get_num_threads()
    try:
        for threads, box in enumerate(
            ([(0, 3), (0, 20), (5, 40)], [(4, 7), (31, 33), (60, 94)], [(2, 4), (64, 75), (0, 94)]),
            1,
        ):
            torch.set_num_threads(threads)
            part = found(network, volume, box)
            np.testing.assert_array_equal(part, whole[:, *(slice(*ends) for ends in box)])
    finally:
        torch.set_num_threads(count)


def test_a_stored_network_is_the_same_network(volume: Volume, saved: Callable[..., str]) -> None:
    network = TextureNetwork(saved(), volume)
    again = TextureNetwork(network.stored, volume)
    assert again.fingerprint == network.fingerprint == made().fingerprint
    np.testing.assert_array_equal(again.stored, network.stored)
    np.testing.assert_array_equal(found(again, volume), found(network, volume))


def test_an_image_is_a_volume_of_one_slice(saved: Callable[..., str]) -> None:
    image = Volume(np.random.default_rng(0).normal(1000, 60, (40, 44)))
    network = TextureNetwork(saved(context=0), image)
    assert network.reach == 0
    out = np.empty((8, 1, 40, 44), np.float32)
    network.find(image.array()[None], 0, [(0, 1), (0, 40), (0, 44)], out)
    stack = Volume(np.repeat(image.array()[None], 3, 0))
    expected = found(TextureNetwork(saved(context=0), stack), stack)[:, 1:2]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("how", "shape", "message"),
    [
        ({"dimensions": 3, "context": 0}, SHAPE, "trained in 3D.*dimensions=2"),
        ({"channels": 2, "context": 0}, SHAPE, "trained on 2 channels"),
        ({"context": 2}, (4, 40, 40), "at least 5 slices"),
    ],
)
def test_a_model_that_does_not_suit_a_volume_is_refused(
    saved: Callable[..., str], how: dict[str, Any], shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        TextureNetwork(saved(**how), Volume(np.zeros(shape)))


def test_what_is_no_model_is_refused(volume: Volume, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        TextureNetwork(str(tmp_path / "none.safetensors"), volume)
    (tmp_path / "text.safetensors").write_text("no model")
    with pytest.raises(InputError, match="is not a hushpore model"):
        TextureNetwork(str(tmp_path / "text.safetensors"), volume)
    with pytest.raises(InputError, match="The network of the classifier is not"):
        TextureNetwork(np.frombuffer(made().content[:-9], np.uint8), volume)
