"""Phases from strokes, on made scans whose phases no threshold separates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.ndimage import gaussian_filter

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import result_of
from hushpore.cli.commands import hushpore as command
from hushpore.io import describe
from hushpore.io.results import write_image
from hushpore.io.zarr import write_zarr
from hushpore.pores.phases import classifier as boxes
from hushpore.pores.phases.classifier import load_classifier
from hushpore.runs.rerun import rerun
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.phases.result import Phases

SHAPE = (24, 64, 64)


def stripes(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return a scan of pores in solid that is striped along y in one half and along x in the other.

    Both halves have the same grey values. Returns: the scan, uint16, and its phases.
    """
    rng = np.random.default_rng(seed)
    _, y, x = np.indices(SHAPE)
    phase = np.where(x < 32 + 6 * np.sin(y / 9), 2, 3)
    grey = 2000 + 300 * np.sin(2 * np.pi * np.where(phase == 2, y, x) / 6)
    field = gaussian_filter(rng.normal(size=SHAPE), 3, mode="wrap")
    pores = field < np.quantile(field, 0.2)
    phase[pores], grey[pores] = 1, 1000
    noise = gaussian_filter(rng.normal(size=SHAPE), 0.5)
    return np.rint(grey + 100 * noise / noise.std()).astype(np.uint16), phase.astype(np.uint8)


def painted(phase: np.ndarray) -> np.ndarray:
    """Return 12 short strokes of each phase in three slices, as a person paints them."""
    rng = np.random.default_rng(5)
    strokes = np.zeros_like(phase)
    for z in (4, 12, 20):
        for number in (1, 2, 3):
            for y, x in rng.permutation(np.argwhere(phase[z] == number))[:4]:
                part = (z, slice(y, y + 2), slice(x, x + 6))
                strokes[part][phase[part] == number] = number
    return strokes


def run(words: list[str]) -> None:
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output


def classified(scan: Any, **settings: Any) -> Phases:
    return hushpore.measure_phases(scan, device="cpu", **settings)


@pytest.fixture(scope="module")
def scan() -> Volume:
    return Volume(stripes()[0], spacing=2.0, unit="um", name="stripes")


@pytest.fixture(scope="module")
def strokes() -> np.ndarray:
    return painted(stripes()[1])


@pytest.fixture(scope="module")
def found(scan: Volume, strokes: np.ndarray) -> Phases:
    names = "pores, along y, along x"
    return classified(scan, strokes=strokes, names=names, probabilities=True)


def test_strokes_separate_stripes_of_two_directions(found: Phases, strokes: np.ndarray) -> None:
    phase = stripes()[1]
    assert np.count_nonzero(strokes) < 0.005 * phase.size
    assert (found.labels == phase).mean() > 0.86
    table = found.phases.set_index("name")
    shares = np.bincount(phase.reshape(-1))[1:] / phase.size
    np.testing.assert_allclose(table["share"], shares, atol=0.05)
    # no thresholds do
    grey = classified(Volume(stripes()[0]), phases=3, exterior="keep").labels
    assert (grey == phase).mean() < 0.7


def test_probabilities_and_doubt_belong_to_the_labels(found: Phases) -> None:
    assert found.probabilities is not None
    likely = found.probabilities
    np.testing.assert_allclose(likely.sum(axis=0, dtype=int), 100, atol=2)
    chosen = np.take_along_axis(likely, found.labels[None] - 1, 0)[0]
    np.testing.assert_array_equal(chosen, likely.max(axis=0))
    share = np.maximum(likely / 100, 1e-9)
    entropy = 100 * -(share * np.log(share)).sum(axis=0) / np.log(3)
    np.testing.assert_allclose(found.doubt, np.clip(entropy, 0, 100), atol=0.6)
    right = found.labels == stripes()[1]
    assert found.doubt[~right].mean() > 1.5 * found.doubt[right].mean()


def test_small_boxes_give_the_labels_of_large_ones(
    found: Phases, scan: Volume, strokes: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boxes, "BOX", (13, 64, 45))
    parts = classified(scan, strokes=strokes, probabilities=True)
    np.testing.assert_array_equal(parts.labels, found.labels)
    np.testing.assert_array_equal(parts.probabilities, found.probabilities)


def test_a_lazy_volume_gives_the_labels_of_an_array(
    found: Phases, scan: Volume, strokes: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "scan.npy", scan.data)
    lazy = Volume(np.load(tmp_path / "scan.npy", mmap_mode="r"), spacing=2.0, unit="um")
    np.testing.assert_array_equal(classified(lazy, strokes=strokes).labels, found.labels)


def test_a_zarr_larger_than_the_memory_limit_gives_the_labels_of_an_array(
    scan: Volume, strokes: np.ndarray, tmp_path: Path
) -> None:
    """In slabs, with temporary files; strokes, mask and a stored classifier are read so, too."""
    times = (3, 1, 1)
    tall, painted_on = np.tile(scan.data, times), np.concatenate([strokes, np.zeros((48, 64, 64))])
    painted_on = painted_on.astype(np.uint8)
    mask = np.ones(tall.shape, bool)
    mask[:, :20], mask[60:] = False, False
    whole = classified(scan.replace(tall), strokes=painted_on, sample_mask=mask)
    files = {"scan": tall, "strokes": painted_on, "mask": mask.astype(np.uint8)}
    for name, values in files.items():
        write_zarr(tmp_path / f"{name}.ome.zarr", scan.replace(values, name=name))
    place = {name: str(tmp_path / f"{name}.ome.zarr") for name in files}
    lazy = {name: describe(path)[0] for name, path in place.items()}
    how = {"memory_budget": 0.001, "sample_mask": lazy["mask"].data}
    parts = classified(lazy["scan"], strokes=lazy["strokes"].data, **how)
    assert isinstance(parts.labels, np.memmap)
    np.testing.assert_array_equal(parts.labels, whole.labels)
    assert parts.phases.equals(whole.phases)
    assert parts.contacts.equals(whole.contacts)
    assert parts.classifier.fingerprint == whole.classifier.fingerprint  # type: ignore[union-attr]
    with pytest.raises(MemoryLimitError, match=r"probabilities need .* in memory in one piece"):
        classified(lazy["scan"], strokes=lazy["strokes"].data, probabilities=True, **how)
    write_result(tmp_path / "made", [parts], lazy["scan"])
    words = [place["scan"], "--classifier", str(tmp_path / "made"), "--sample-mask", place["mask"]]
    run(["phases", *words, "--memory-budget", "0.001", "-o", str(tmp_path / "next")])
    for name in ("made", "next"):
        written = hushpore.read(tmp_path / name / "phases.tif").array()
        np.testing.assert_array_equal(written, whole.labels)


def test_phases_of_strokes_have_all_measures_of_phases_of_labels(
    found: Phases, scan: Volume, strokes: np.ndarray, tmp_path: Path
) -> None:
    measures = {
        "thickness": True, "regions": True, "transport": "diffusion", "names": found.names,
        "conductivities": "0, 1, 0.5",
    }  # fmt: skip
    own = classified(scan, strokes=strokes, **measures)
    labels = classified(scan.as_labels(found.labels, "phases"), are_labels=True, **measures)
    np.testing.assert_array_equal(own.labels, found.labels)
    np.testing.assert_array_equal(own.thickness, labels.thickness)
    np.testing.assert_array_equal(own.regions.labels, labels.regions.labels)  # type: ignore[union-attr]
    for name, table in labels.files().tables.items():
        other = own.files().tables[name]
        shared = [column for column in table if column not in ("grey_low", "grey_high")]
        assert other[shared].equals(table[shared]), name
    assert own.transport is not None
    assert own.transport.record == labels.transport.record  # type: ignore[union-attr]
    assert own.phases["thickness"].gt(0).all()
    assert len(own.contacts) == 3


def test_a_batch_uses_a_stored_classifier(found: Phases, scan: Volume, tmp_path: Path) -> None:
    write_result(tmp_path / "made", [found], scan)
    for seed in (1, 2):
        write_image(tmp_path / f"scan_{seed}.tif", scan.replace(stripes(seed)[0]))
    how = ["--classifier", str(tmp_path / "made"), "--no-denoise", "-o", str(tmp_path / "all")]
    run(["batch-phases", *(str(tmp_path / f"scan_{seed}.tif") for seed in (1, 2)), *how])
    for seed in (1, 2):
        labels = hushpore.read(tmp_path / "all" / f"scan_{seed}" / "phases.tif").array()
        assert (labels == stripes(seed)[1]).mean() > 0.85
    summary = pd.read_csv(tmp_path / "all" / "summary.csv").set_index("name")
    shares = np.bincount(stripes(2)[1].reshape(-1))[1:] / scan.data.size
    names = ["share of pores", "share of along y", "share of along x"]
    np.testing.assert_allclose(summary.loc["scan_2", names].astype(float), shares, atol=0.06)


def test_a_result_can_be_repeated_and_its_classifier_used_on_another_scan(
    scan: Volume, strokes: np.ndarray, tmp_path: Path
) -> None:
    """As at the command line: strokes from a file, then the classifier on the next scan."""
    write_image(tmp_path / "scan.tif", scan)
    write_image(tmp_path / "strokes.tif", scan.as_labels(strokes, "strokes"))
    other, truth = stripes(1)
    write_image(tmp_path / "next.tif", scan.replace(other))
    first = [str(tmp_path / "scan.tif"), "--strokes", str(tmp_path / "strokes.tif")]
    names = ["--names", "pores, along y, along x"]
    run(["phases", *first, *names, "-o", str(tmp_path / "first")])
    kept = hushpore.read(tmp_path / "first" / "strokes.tif")
    np.testing.assert_array_equal(kept.array(), strokes)
    again = result_of(rerun(tmp_path / "first", tmp_path / "again"))
    assert again.identical
    second = [str(tmp_path / "next.tif"), "--classifier", str(tmp_path / "first")]
    run(["phases", *second, "-o", str(tmp_path / "second")])
    labels = hushpore.read(tmp_path / "second" / "phases.tif").array()
    assert (labels == truth).mean() > 0.85
    record = json.loads((tmp_path / "second" / "result.json").read_text())
    assert "along y" in record["headline"]
    used = load_classifier(str(tmp_path / "first"))
    assert record["jobs"][0]["auxiliary"]["classifier"]["blake2b"] == used.fingerprint
    assert result_of(rerun(tmp_path / "second", tmp_path / "third")).identical
    # another classifier in its place
    fewer = np.where(np.arange(SHAPE[0])[:, None, None] < 8, strokes, 0)
    result = classified(scan, strokes=fewer)
    write_result(tmp_path / "first", [result], scan, overwrite=True)
    with pytest.raises(InputError, match="fingerprint differs"):
        result_of(rerun(tmp_path / "second", tmp_path / "fourth"))


def test_an_image_is_classified_by_slice(strokes: np.ndarray) -> None:
    scan, phase = stripes()
    own = painted(phase)[12]
    image = classified(scan[12], strokes=own)
    assert (image.labels == phase[12]).mean() > 0.75
    by_slice = classified(scan, strokes=np.where(np.arange(24)[:, None, None] == 12, own, 0),
                          by_slice=True)  # fmt: skip
    np.testing.assert_array_equal(by_slice.labels[12], image.labels)


def test_voxels_outside_a_mask_belong_to_no_phase(found: Phases, scan: Volume) -> None:
    mask = np.zeros(SHAPE, bool)
    mask[:, 10:50, 10:50] = True
    part = classified(scan, strokes=painted(stripes()[1]), sample_mask=mask)
    np.testing.assert_array_equal(part.labels, np.where(mask, found.labels, 0))


def test_a_classifier_warns_of_another_voxel_size(
    scan: Volume, strokes: np.ndarray, tmp_path: Path
) -> None:
    write_result(tmp_path / "made", [classified(scan, strokes=strokes)], scan)
    other = Volume(scan.data, spacing=4.0, unit="um")
    result = classified(other, classifier=str(tmp_path / "made"))
    assert any("voxels of 2 x 2 x 2" in note.message for note in result.remarks)


def test_a_note_says_where_thresholds_separate_the_phases(found: Phases) -> None:
    assert not any("thresholds at" in note for note in found.notes)
    rng = np.random.default_rng(0)
    x = np.indices(SHAPE)[2]
    strokes = np.zeros(SHAPE, np.uint8)
    strokes[4, 10:20, 10], strokes[4, 10:20, 50] = 1, 2
    plates = classified(np.where(x < 32, 100, 200) + rng.normal(0, 12, SHAPE), strokes=strokes)
    assert (plates.labels == 1 + (x >= 32)).mean() > 0.95
    (note,) = (note for note in plates.notes if "thresholds at" in note)
    assert 110 < float(note.partition("thresholds at ")[2].split()[0]) < 190


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(SHAPE, np.uint8), "got none"),
        (np.eye(64, dtype=np.uint8)[None].repeat(24, 0), "got 1"),
        (np.arange(64, dtype=np.uint8) * np.ones(SHAPE, np.uint8), "got 1, 2, 3"),
    ],
)
def test_strokes_without_two_to_eight_phases_are_refused(
    scan: Volume, values: np.ndarray, message: str
) -> None:
    with pytest.raises(InputError, match=f"2 to 8 different labels.*{message}"):
        classified(scan, strokes=values)


def test_a_damaged_classifier_is_refused(scan: Volume, strokes: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no classifier"):
        classified(scan, classifier=str(tmp_path / "none.npz"))
    arrays = classified(scan, strokes=strokes).classifier.arrays  # type: ignore[union-attr]
    # a branch that leads back would never end; a feature that does not exist reads elsewhere
    broken = {
        "left": np.where(arrays["left"] > 0, 1, 0).astype(np.int32),
        "feature": arrays["feature"] + 1000,
        "roots": arrays["roots"] - 5,
        "votes": arrays["votes"][:-1],
        "facts": np.array("{}"),
        "threshold": np.array([object()]),
    }
    for name, values in broken.items():
        file = tmp_path / f"{name}.npz"
        np.savez(file, **{**arrays, name: values})
        with pytest.raises(InputError, match="damaged"):
            load_classifier(str(file))
    whole = (tmp_path / "left.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged"):
        load_classifier(str(tmp_path / "half.npz"))
