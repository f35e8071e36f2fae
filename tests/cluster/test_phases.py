"""Phases from strokes on a cluster are those of one computer, to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import result_of
from hushpore.cluster.phases import phases_on
from hushpore.denoising.model import Architecture, build_network
from hushpore.denoising.trained_model import Model
from hushpore.io.zarr import write_zarr
from hushpore.pores.phases.classifier import load_classifier
from hushpore.pores.phases.features import COUNT
from hushpore.pores.phases.settings import PhaseSettings
from hushpore.runs.rerun import rerun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from distributed import Client

SHAPE = (54, 30, 34)


@pytest.fixture(scope="module")
def scan(smooth_and_rough: Callable[..., np.ndarray]) -> Volume:
    return Volume(smooth_and_rough(SHAPE), spacing=2.0, unit="um", name="scan")


@pytest.fixture(scope="module")
def strokes() -> np.ndarray:
    found = np.zeros(SHAPE, np.uint8)
    for z in (5, 30):
        found[z, 4:26:3, 4:12], found[z, 4:26:3, 22:30] = 1, 2
    return found


@pytest.fixture
def files(scan: Volume, strokes: np.ndarray, tmp_path: Path) -> dict[str, str]:
    mask = np.ones(SHAPE, np.uint8)
    mask[:, :3] = 0
    values = {"scan": scan.data, "strokes": strokes, "mask": mask}
    return {
        name: str(write_zarr(tmp_path / f"{name}.ome.zarr", scan.replace(each, name=name)))
        for name, each in values.items()
    }


def test_blocks_on_a_cluster_give_the_result_of_one_computer(
    client: Client, scan: Volume, strokes: np.ndarray, files: dict[str, str], tmp_path: Path
) -> None:
    """Three rows of boxes; strokes and mask from files, then the classifier, and a rerun."""
    mask = np.indices(SHAPE)[1] >= 3
    whole = hushpore.measure_phases(scan, strokes=strokes, sample_mask=mask, names="smooth, rough")
    halves = whole.labels[:, 4:, 2:14], whole.labels[:, 4:, 20:32]
    assert [(half == n).mean() > 0.9 for n, half in enumerate(halves, 1)] == [True, True]

    def run(name: str, **settings: Any) -> Path:
        how = PhaseSettings(sample_mask=files["mask"], **settings)
        written = result_of(phases_on(client, files["scan"], tmp_path / name, how))
        labels = hushpore.read(written.folder / "phases.tif")
        np.testing.assert_array_equal(labels.array(), whole.labels)
        assert labels.spacing == scan.spacing
        tables = whole.files().tables
        for table in ("phases", "contacts"):
            text = (written.folder / f"{table}.csv").read_text()
            assert text == tables[table].to_csv(index=False)
        return written.folder

    first = run("first", strokes=files["strokes"], names="smooth, rough")
    with np.load(first / "classifier.npz") as arrays:
        for name, values in whole.classifier.arrays.items():  # type: ignore[union-attr]
            np.testing.assert_array_equal(arrays[name], values)
    second = run("second", classifier=str(first), memory_budget=0.001)
    assert result_of(rerun(second, tmp_path / "third")).identical
    # nothing is left of the work
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_workers_find_features_with_the_denoiser_of_the_classifier(
    client: Client, scan: Volume, strokes: np.ndarray, files: dict[str, str], tmp_path: Path
) -> None:
    """The model file lies on the computer that starts the job."""
    architecture = Architecture(2, inputs=3, features=4)
    network = build_network(architecture, torch.Generator().manual_seed(0)).eval()
    model = Model(network, (1000.0,), (30.0,), context=1)
    texture = str(model.save(tmp_path / "model.safetensors"))
    # phases that nothing tells apart, for trees of all features
    mixed = strokes + (strokes > 0) * np.random.default_rng(0).integers(2, size=SHAPE, dtype="u1")
    file = str(write_zarr(tmp_path / "mixed.ome.zarr", scan.replace(mixed, name="mixed")))
    whole = hushpore.measure_phases(scan, strokes=mixed, texture=texture)
    how = PhaseSettings(strokes=file, texture=texture)
    written = result_of(phases_on(client, files["scan"], tmp_path / "made", how))
    labels = hushpore.read(written.folder / "phases.tif")
    np.testing.assert_array_equal(labels.array(), whole.labels)
    used = load_classifier(str(written.folder))
    assert used.fingerprint == whole.classifier.fingerprint  # type: ignore[union-attr]
    assert used.forest.feature.max() >= COUNT
    assert written.provenance["auxiliary"]["texture"]["blake2b"] == model.fingerprint
    assert result_of(rerun(written.folder, tmp_path / "again")).identical


def test_what_a_cluster_does_not_find_is_refused(
    client: Client, files: dict[str, str], tmp_path: Path
) -> None:
    for settings in ({}, {"classifier": "made", "probabilities": True}):
        with pytest.raises(InputError, match="leave out --cluster"):
            result_of(phases_on(client, files["scan"], tmp_path / "no", PhaseSettings(**settings)))
    assert not (tmp_path / "no").exists()
