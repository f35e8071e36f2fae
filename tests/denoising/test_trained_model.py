from __future__ import annotations

import dataclasses
import json
import os
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import OutputError
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.trained_model import Model, load_model, read_tensors, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.denoising.result import Denoised

QUICK = {
    "steps": 3,
    "patch_size": 16,
    "batch_size": 4,
    "device": "cpu",
    "precision": "float32",
    "context": 0,
}


@pytest.fixture(scope="module")
def trained() -> Denoised:
    values = np.random.default_rng(0).normal(100, 20, (3, 30, 35)).astype(np.float32)
    return hushpore.denoise(Volume(values, name="bread"), **QUICK)


def test_a_model_denoises_other_volumes_of_its_kind(trained: Denoised) -> None:
    same = trained.model.predict(Volume(np.random.default_rng(0).normal(100, 20, (3, 30, 35))))
    np.testing.assert_allclose(same.data, trained.volume.data, rtol=1e-4, atol=1e-2)
    assert trained.model.predict(np.random.default_rng(1).normal(100, 20, (41, 23))).shape == (
        41,
        23,
    )


def test_a_model_that_has_never_seen_a_turned_patch_is_shown_none(trained: Denoised) -> None:
    values = np.random.default_rng(1).normal(100, 20, (41, 23))
    striped = dataclasses.replace(trained.model, is_turned=False)
    plain = trained.model.predict(values, test_time_augmentation=False)
    np.testing.assert_array_equal(striped.predict(values).data, plain.data)


def test_a_file_keeps_how_deep_a_network_is(tmp_path: Path) -> None:
    network = build_network(Architecture(2, features=4, levels=3), torch.Generator().manual_seed(0))
    model = Model(network.eval(), (0.0,), (1.0,))
    again = load_model(model.save(tmp_path / "deep.safetensors"))
    assert again.network.architecture.levels == 3
    values = np.random.default_rng(1).normal(size=(90, 70))
    both = [each.predict(values, "cpu").data for each in (again, model)]
    np.testing.assert_array_equal(*both)


def test_channels_must_be_as_many_as_were_trained_on(trained: Denoised) -> None:
    two = Volume(np.random.default_rng(1).normal(size=(2, 3, 8, 8)), axes="czyx")
    with pytest.raises(InputError, match="trained on 1 channels; volume has 2"):
        trained.model.predict(two)


def test_a_model_comes_back_from_its_file_as_it_was(trained: Denoised, tmp_path: Path) -> None:
    path = trained.model.save(tmp_path / "bread.safetensors")
    again = hushpore.load_model(path)
    assert (again.mean, again.std) == (trained.model.mean, trained.model.std)
    assert again.is_turned
    striped = dataclasses.replace(trained.model, is_turned=False).save(tmp_path / "s.safetensors")
    assert not hushpore.load_model(striped).is_turned
    striped.unlink()
    for name, value in again.network.state_dict().items():
        assert torch.equal(value, trained.model.network.state_dict()[name])
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_plain_safetensors_with_json(trained: Denoised, tmp_path: Path) -> None:
    with safe_open(trained.model.save(tmp_path / "m.safetensors"), framework="np") as file:
        facts = json.loads(file.metadata()["hushpore"])
    assert facts["dimensions"] == 2
    assert facts["version"] == hushpore.__version__


def test_a_job_applies_a_model_without_training(trained: Denoised, tmp_path: Path) -> None:
    path = trained.model.save(tmp_path / "bread.safetensors")
    scan = trained.volume.replace(np.random.default_rng(0).normal(100, 20, (3, 30, 35)))
    result = hushpore.denoise(scan, model=str(path), device="cpu", precision="float32")
    np.testing.assert_allclose(result.volume.data, trained.volume.data, rtol=1e-4, atol=1e-2)
    assert "training" not in result.timings
    assert result.headline.endswith(f" · model {path.name}")
    with pytest.raises(InputError, match="was trained in 2D; set dimensions to 2"):
        hushpore.denoise(scan, model=str(path), dimensions=3)


def test_an_existing_file_is_kept_unless_asked_for(trained: Denoised, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("something dear")
    with pytest.raises(OutputError, match="already exists"):
        trained.model.save(path)
    assert path.read_text() == "something dear"
    trained.model.save(path, overwrite=True)
    assert hushpore.load_model(path).mean == trained.model.mean


def test_a_place_that_cannot_be_written_is_an_error_in_words(
    trained: Denoised, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Cannot write"):
        trained.model.save(tmp_path / "file" / "model.safetensors")


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (pytest.fail, ("code in a pickle was run",))


@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_a_pickle_is_refused_and_never_run(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.pt"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    else:
        torch.save({"weights": Trap()}, path)
    with pytest.raises(InputError, match="pickled"):
        hushpore.load_model(path)


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "foreign", "other network"])
def test_what_is_no_whole_model_is_refused(trained: Denoised, tmp_path: Path, damage: str) -> None:
    from safetensors.torch import save_file

    path = trained.model.save(tmp_path / "model.safetensors")
    whole = path.read_bytes()
    if damage == "foreign":
        save_file({"weight": torch.zeros(3)}, path)
    elif damage == "other network":
        facts = {"dimensions": 3, "mean": [0.0], "std": [1.0]}
        weights = {k: v.contiguous() for k, v in trained.model.network.state_dict().items()}
        save_file(weights, path, {"hushpore": json.dumps(facts)})
    else:
        path.write_bytes(
            {"cut": whole[: len(whole) // 2], "text": b"not a model", "empty": b""}[damage]
        )
    with pytest.raises(InputError, match="is not a hushpore model, or it is damaged"):
        hushpore.load_model(path)


def test_a_missing_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        hushpore.load_model(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        hushpore.load_model(tmp_path / "nowhere.safetensors")


def test_a_header_whose_length_looks_like_a_pickle_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for padding in range(0, 300, 8):
        write_tensors(path, {"a": torch.ones(2)}, {"entry": {"text": "x" * padding}})
        if path.read_bytes()[0] == 0x80:
            break
    assert path.read_bytes()[0] == 0x80
    facts, tensors = read_tensors(path, "entry")
    assert facts["text"] == "x" * padding
    assert tensors["a"].tolist() == [1, 1]


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_model_is_not_written_through_a_link_that_waits_for_it(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years of work")
    (tmp_path / ".m.safetensors.part").symlink_to(tmp_path / "thesis")
    write_tensors(tmp_path / "m.safetensors", {"a": torch.ones(2)}, {"entry": {}})
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert read_tensors(tmp_path / "m.safetensors", "entry")[1]["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("entry", "value"),
    [("mean", [1e308]), ("std", [1e-300]), ("std", [1e300]), ("mean", ["x"]), ("mean", 5),
     ("architecture", []), ("architecture", {"features": 512, "dimensions": 3}),
     ("architecture", {"features": 10**9}), ("context", "x")],
)  # fmt: skip
def test_a_model_of_which_nothing_sensible_could_come_is_refused(
    trained: Denoised, tmp_path: Path, entry: str, value: object
) -> None:
    model = trained.model
    weights = {name: each.contiguous() for name, each in model.network.state_dict().items()}
    write_tensors(
        tmp_path / "m.safetensors", weights, {"hushpore": {**model.facts(), entry: value}}
    )
    with pytest.raises(InputError):
        hushpore.load_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_with_weights_that_are_no_numbers_is_refused(
    trained: Denoised, tmp_path: Path, value: float
) -> None:
    model = trained.model
    state = model.network.state_dict()
    weights = {
        name: each.clone(memory_format=torch.contiguous_format) for name, each in state.items()
    }
    next(each for each in weights.values() if each.ndim == 4)[0, 0, 0, 0] = value
    write_tensors(tmp_path / "m.safetensors", weights, {"hushpore": model.facts()})
    with pytest.raises(InputError, match="are not finite numbers"):
        hushpore.load_model(tmp_path / "m.safetensors")


def test_a_file_of_which_a_bit_is_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_tensors(path, {"a": torch.ones(64)}, {"entry": {"mean": 5}})
    whole = path.read_bytes()
    for at in (whole.index(b"mean"), len(whole) - 9):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(InputError, match="is damaged"):
            read_tensors(path, "entry")


def test_a_file_without_its_sum_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "m.safetensors", {"entry": "{}"})
    with pytest.raises(InputError, match="damaged"):
        read_tensors(tmp_path / "m.safetensors", "entry")


def test_a_model_file_is_read_and_not_mapped(tmp_path: Path) -> None:
    """What is mapped ends the program where somebody shortens it."""
    write_tensors(tmp_path / "m.safetensors", {"a": torch.ones(4096)}, {"entry": {}})
    _, tensors = read_tensors(tmp_path / "m.safetensors", "entry")
    os.truncate(tmp_path / "m.safetensors", 10)
    assert tensors["a"].sum() == 4096
    with pytest.raises(InputError):
        read_tensors(tmp_path / "m.safetensors", "entry")
