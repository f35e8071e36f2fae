"""Phases from strokes with features of the scan's own denoiser."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import result_of
from hushpore.cli.commands import hushpore as command
from hushpore.denoising.trained_model import load_model
from hushpore.io import describe
from hushpore.io.results import write_image
from hushpore.io.zarr import write_zarr
from hushpore.jobs import phases
from hushpore.pores.phases.classifier import load_classifier
from hushpore.pores.phases.features import COUNT
from hushpore.pores.phases.settings import PhaseSettings
from hushpore.runs.rerun import rerun
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hushpore.pores.phases.result import Phases

SHAPE = (50, 40, 44)


@pytest.fixture(scope="module")
def scan(smooth_and_rough: Callable[..., np.ndarray]) -> Volume:
    return Volume(smooth_and_rough(SHAPE), spacing=2.0, unit="um", name="scan")


@pytest.fixture(scope="module")
def strokes() -> np.ndarray:
    found = np.zeros(SHAPE, np.uint8)
    for z in (5, 30):
        found[z, 4:36:3, 4:14], found[z, 4:36:3, 30:40] = 1, 2
    return found


@pytest.fixture(scope="module")
def models(
    tmp_path_factory: pytest.TempPathFactory,
    scan: Volume,
    smooth_and_rough: Callable[..., np.ndarray],
) -> dict[str, str]:
    """Denoisers of two scans, hardly trained."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    how: dict[str, Any] = {"steps": 3, "patch_size": 16, "batch_size": 4, "device": "cpu"}
    for name, values in {"own": scan.data, "other": smooth_and_rough(SHAPE, 1)}.items():
        model = hushpore.denoise(values[:9], method="n2v2", context=1, **how).model
        found[name] = str(model.save(folder / f"{name}.safetensors"))
    return found


@pytest.fixture(scope="module")
def found(scan: Volume, strokes: np.ndarray, models: dict[str, str]) -> Phases:
    return hushpore.measure_phases(scan, strokes=strokes, texture=models["own"])


def test_features_of_a_denoiser_are_used_and_recorded(
    found: Phases, scan: Volume, strokes: np.ndarray, models: dict[str, str]
) -> None:
    used = found.classifier
    assert used is not None
    assert used.textures == 32
    assert COUNT < used.forest.feature.max() < COUNT + 32
    own = load_model(models["own"])
    assert used.network.tobytes() == own.content  # type: ignore[union-attr]
    known = found.provenance["auxiliary"]["texture"]
    assert known == {"name": models["own"], "blake2b": own.fingerprint}
    left, right = found.labels[:, 4:-4, 2:18], found.labels[:, 4:-4, 26:42]
    assert min((left == 1).mean(), (right == 2).mean()) > 0.95
    plain = hushpore.measure_phases(scan, strokes=strokes)
    assert not np.array_equal(plain.labels, found.labels)
    assert plain.classifier.network is None  # type: ignore[union-attr]
    assert "texture" not in plain.provenance["auxiliary"]


def test_slabs_on_disk_give_the_labels_of_an_array(
    scan: Volume, strokes: np.ndarray, models: dict[str, str], tmp_path: Path
) -> None:
    tall = scan.replace(np.tile(scan.data, (4, 1, 1)))
    painted = np.concatenate([strokes, np.zeros((150, *SHAPE[1:]), np.uint8)])
    write_zarr(tmp_path / "scan.ome.zarr", tall)
    lazy = describe(str(tmp_path / "scan.ome.zarr"))[0]
    how: dict[str, Any] = {"strokes": painted, "texture": models["own"]}
    whole = hushpore.measure_phases(tall, **how)
    parts = hushpore.measure_phases(lazy, **how, memory_budget=0.001)
    assert isinstance(parts.labels, np.memmap)
    assert not isinstance(whole.labels, np.memmap)
    np.testing.assert_array_equal(parts.labels, whole.labels)
    assert parts.classifier.fingerprint == whole.classifier.fingerprint  # type: ignore[union-attr]


def test_a_result_is_repeated_and_its_network_used_on_another_scan(
    scan: Volume,
    smooth_and_rough: Callable[..., np.ndarray],
    strokes: np.ndarray,
    models: dict[str, str],
    tmp_path: Path,
) -> None:
    def run(words: list[str]) -> None:
        done = CliRunner().invoke(command, words)
        assert done.exit_code == 0, done.output

    model = tmp_path / "model.safetensors"
    shutil.copy(models["own"], model)
    write_image(tmp_path / "scan.tif", scan)
    write_image(tmp_path / "strokes.tif", scan.as_labels(strokes, "strokes"))
    write_image(tmp_path / "next.tif", scan.replace(smooth_and_rough(SHAPE, 2)))
    first = [str(tmp_path / "scan.tif"), "--strokes", str(tmp_path / "strokes.tif")]
    run(["phases", *first, "--texture", str(model), "-o", str(tmp_path / "first")])
    assert result_of(rerun(tmp_path / "first", tmp_path / "again")).identical
    shutil.copy(models["other"], model)
    with pytest.raises(InputError, match="is not the model of this result"):
        result_of(rerun(tmp_path / "first", tmp_path / "no"))
    model.unlink()
    with pytest.raises(InputError, match="trained model of this result is missing"):
        result_of(rerun(tmp_path / "first", tmp_path / "no"))
    # the classifier keeps its network
    second = [str(tmp_path / "next.tif"), "--classifier", str(tmp_path / "first")]
    run(["phases", *second, "-o", str(tmp_path / "second")])
    labels = hushpore.read(tmp_path / "second" / "phases.tif").array()
    left, right = labels[:, 4:-4, 2:18], labels[:, 4:-4, 26:42]
    assert min((left == 1).mean(), (right == 2).mean()) > 0.95
    record = json.loads((tmp_path / "second" / "result.json").read_text())["jobs"][0]
    assert set(record["auxiliary"]) == {"classifier"}
    assert result_of(rerun(tmp_path / "second", tmp_path / "third")).identical


def test_files_that_cannot_be_used_are_refused_before_the_scan_is_read(
    found: Phases, scan: Volume, strokes: np.ndarray, models: dict[str, str], tmp_path: Path
) -> None:
    def check(**settings: Any) -> None:
        phases.check_volume(scan, PhaseSettings(**settings))

    with pytest.raises(InputError, match=r"none\.safetensors does not exist"):
        check(strokes="strokes", texture=str(tmp_path / "none.safetensors"))
    write_result(tmp_path / "made", [found], scan)
    with pytest.raises(InputError, match="is not a hushpore model"):
        check(strokes="strokes", texture=str(tmp_path / "made" / "result.json"))
    arrays = found.classifier.arrays  # type: ignore[union-attr]
    broken = {
        "cut": {"network": arrays["network"][:-7]},
        "another": {"facts": np.array(str(arrays["facts"]).replace(": 32", ": 33"))},
    }
    for name, parts in broken.items():
        np.savez(tmp_path / f"{name}.npz", **{**arrays, **parts})
        with pytest.raises(InputError, match="damaged"):
            check(classifier=str(tmp_path / f"{name}.npz"))
    np.savez(tmp_path / "without.npz", **{k: v for k, v in arrays.items() if k != "network"})
    with pytest.raises(InputError, match="damaged"):
        load_classifier(str(tmp_path / "without.npz"))
    # what no strokes are given for is not read
    check(texture=str(tmp_path / "none.safetensors"))
