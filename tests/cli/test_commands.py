from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import tifffile
from click.testing import CliRunner, Result

import hushpore
from hushpore import Volume
from hushpore.base.preferences import SPEEDS
from hushpore.base.provenance import fingerprint
from hushpore.cli.commands import hushpore as command
from hushpore.denoising.settings import DenoiseSettings, device_timing_key
from hushpore.io.dicom import write_series
from hushpore.io.results import write_image
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ["--steps", "2", "--patch-size", "16", "--batch-size", "2", "--device", "cpu"]


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def scan(tmp_path: Path, rng: np.random.Generator) -> Path:
    z, y, x = np.ogrid[:12, :40, :40]
    ball = (z - 6) ** 2 + (y - 20) ** 2 + (x - 20) ** 2 < 25
    values = np.where(ball, 100, 900) + rng.normal(0, 20, ball.shape).round()
    volume = Volume(values.astype(np.uint16), spacing=(0.2, 0.1, 0.1), unit="mm", name="bread")
    return write_image(tmp_path / "bread.tif", volume)


def test_info_says_what_is_in_a_file(scan: Path) -> None:
    shown = call("info", scan)
    assert shown.exit_code == 0
    assert "12 x 40 x 40 · 0.2 x 0.1 x 0.1 mm · uint16" in shown.output
    found = json.loads(call("info", scan, "--json", "--device").output)
    assert found["volumes"][0]["spacing"] == [0.2, 0.1, 0.1]
    assert found["device"]["reason"]


def test_a_series_is_chosen_and_uneven_slices_are_resampled_where_asked_for(
    data_folder: Path, tmp_path: Path
) -> None:
    several = data_folder / "dicom" / "two_series"
    listed = call("info", several).output.splitlines()
    assert [line[0] for line in listed] == ["1", "2", "-"]
    assert call("info", several, "--series", 2).output.splitlines()[0] == listed[1][2:]
    refused = call("denoise", several, "-o", tmp_path / "out.tif", "--series", "knee")
    assert (refused.exit_code, "No image stack matches 'knee'" in refused.output) == (1, True)
    uneven = data_folder / "dicom" / "uneven"
    done = call("denoise", uneven, "-o", tmp_path / "out.tif", "--resample", *QUICK)
    assert done.exit_code == 0, done.output
    assert "Resampled to 3.5 mm" in done.output
    assert hushpore.read(tmp_path / "out.tif").shape == (9, 48, 64)


def test_denoise_writes_a_stack_with_the_spacing_kept(scan: Path, tmp_path: Path) -> None:
    kind = device_timing_key(DenoiseSettings(patch_size=16, batch_size=2), "cpu")
    SPEEDS.put(kind, {"step": 20.0, "voxel": 0.0, "rest": 2.0})
    done = call("denoise", scan, "-o", tmp_path / "clean.tif", *QUICK)
    assert done.exit_code == 0, done.output
    assert "About 42 s (at the last run's speed)." in done.stderr
    clean = hushpore.read(tmp_path / "clean.tif")
    assert (clean.shape, clean.spacing, clean.unit) == ((12, 40, 40), (0.2, 0.1, 0.1), "mm")
    assert clean.dtype == np.float32
    provenance = json.loads((tmp_path / "clean.json").read_text())
    assert (provenance["job"], provenance["settings"]["steps"]) == ("denoise", 2)


def test_a_run_records_the_files_that_a_batch_records(scan: Path, tmp_path: Path) -> None:
    inside = Volume(np.ones((12, 40, 40), np.uint8), name="inside")
    mask = write_image(tmp_path / "inside.tif", inside)
    words = ["--sample-mask", mask, "--device", "cpu"]
    assert call("pores", scan, "-o", tmp_path / "one", *words).exit_code == 0
    batch = call("batch", scan, "-o", tmp_path / "many", "--no-denoise", *words)
    assert batch.exit_code == 0, batch.output
    folders = (tmp_path / "one", tmp_path / "many" / "bread")
    one, many = (json.loads((folder / "result.json").read_text())["source"] for folder in folders)
    assert one == many
    assert list(one["others"]) == [str(mask)]


def test_where_the_time_went_is_shown_and_traced(scan: Path, tmp_path: Path) -> None:
    line = tmp_path / "trace.json"
    words = ("--threshold", "500", "--timings", "--trace", line, *QUICK)
    done = call("run", scan, "-o", tmp_path / "out", *words)
    assert done.exit_code == 0, done.output
    for stage in ("training", "denoising", "distance", "basins"):
        assert stage in done.stderr
    # of the first job alone
    assert done.stderr.count("reading files") == 1
    entries = json.loads(line.read_text())["traceEvents"]
    names = {entry["name"] for entry in entries if entry["ph"] == "X"}
    assert {"reading files", "training", "distance"} <= names
    again = call("run", scan, "-o", tmp_path / "other", *words)
    assert again.exit_code == 1
    assert "trace.json already exists" in again.output
    assert not (tmp_path / "other").exists()


def test_a_file_where_the_record_goes_is_kept(scan: Path, tmp_path: Path) -> None:
    (tmp_path / "clean.json").write_text("mine")
    done = call("denoise", scan, "-o", tmp_path / "clean.tif", *QUICK)
    assert done.exit_code == 1
    assert "clean.json: it already exists" in done.output
    assert (tmp_path / "clean.json").read_text() == "mine"
    assert not (tmp_path / "clean.tif").exists()


def test_a_model_is_kept_and_applied(scan: Path, tmp_path: Path) -> None:
    model = tmp_path / "bread.safetensors"
    words = ("denoise", scan, "-o", tmp_path / "one.tif", "--save-model", model)
    assert call(*words, *QUICK).exit_code == 0
    again = call("denoise", scan, "-o", tmp_path / "two.tif", "--model", model, "--device", "cpu")
    assert again.exit_code == 0, again.output
    one, two = (hushpore.read(tmp_path / f"{name}.tif").array() for name in ("one", "two"))
    np.testing.assert_allclose(two, one, rtol=0.01)
    refused = call(*words[:3], tmp_path / "three.tif", "--save-model", model, *QUICK)
    assert refused.exit_code == 1
    assert "Choose another name, or use --overwrite" in refused.output
    assert not (tmp_path / "three.tif").exists()


def test_one_network_is_trained_on_two_scans_and_applied_to_each(
    scan: Path, tmp_path: Path
) -> None:
    other, model = tmp_path / "other.tif", tmp_path / "both.safetensors"
    values = hushpore.read(scan).array()
    tifffile.imwrite(other, values[..., ::-1].copy(), photometric="minisblack")
    first = tmp_path / "first.tif"
    tifffile.imwrite(first, values, photometric="minisblack")
    done = call("train", first, other, "-o", model, *QUICK)
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "both.json").read_text())
    assert [each["name"] for each in record["trained_on"]] == ["first", "other"]
    assert len({each["blake2b"] for each in record["trained_on"]}) == 2
    # the grey scale is that of both
    assert hushpore.load_model(model).mean[0] == pytest.approx(values.mean(), rel=1e-3)
    for path in (first, other):
        applied = call("denoise", path, "-o", tmp_path / f"{path.stem}_clean.tif", "--model", model)
        assert applied.exit_code == 0, applied.output
    refused = call("train", first, other, "-o", model, *QUICK)
    assert refused.exit_code == 1
    assert "already exists" in refused.output
    alone = call("train", first, "-o", tmp_path / "one.safetensors", *QUICK)
    assert "at least two scans" in alone.output
    assert not (tmp_path / "one.safetensors").exists()


def test_what_was_removed_is_pictured(scan: Path, tmp_path: Path) -> None:
    words = ("denoise", scan, "-o", tmp_path / "one.tif", "--picture", tmp_path / "one.png")
    done = call(*words, *QUICK)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    refused = call(*words[:3], tmp_path / "two.tif", *words[4:], *QUICK)
    assert "Choose another name, or use --overwrite" in refused.output
    assert not (tmp_path / "two.tif").exists()


@pytest.mark.parametrize("name", ["pores", "run"])
def test_a_result_folder_holds_table_labels_record_and_picture(
    scan: Path, tmp_path: Path, name: str
) -> None:
    quick = QUICK if name == "run" else ["--device", "cpu"]
    done = call(name, scan, "-o", tmp_path / "out", "--threshold", "500", *quick)
    assert done.exit_code == 0, done.output
    expected = {"pores.csv", "throats.csv", "profile.csv", "labels.tif", "result.json"}
    expected |= {"totals.csv", "report.png", "report.html", "merging.npz"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected | (
        {"denoised.tif"} if name == "run" else set()
    )
    table = pd.read_csv(tmp_path / "out" / "pores.csv")
    labels = hushpore.read(tmp_path / "out" / "labels.tif")
    assert labels.dtype == np.int32
    assert labels.spacing == (0.2, 0.1, 0.1)
    assert len(table) == labels.array().max()
    provenance = json.loads((tmp_path / "out" / "result.json").read_text())
    assert provenance["source"]["path"] == str(scan)
    assert provenance["fingerprints"]["labels"] == fingerprint(labels.array())
    jobs = ["denoise", "pores"] if name == "run" else ["pores"]
    assert [job["job"] for job in provenance["jobs"]] == jobs
    assert provenance["jobs"][-1]["settings"]["threshold"] == 500


def test_labels_are_no_scan_but_markers_and_masks(scan: Path, tmp_path: Path) -> None:
    words = ("--device", "cpu", "--threshold", "500")
    assert call("pores", scan, "-o", tmp_path / "first", *words).exit_code == 0
    labels = tmp_path / "first" / "labels.tif"
    # also as they are in another format
    assert call("convert", labels, tmp_path / "labels.ome.zarr").exit_code == 0
    for path in (labels, tmp_path / "labels.ome.zarr"):
        for command_of, said in (
            (("pores", path, "-o", tmp_path / "out", *words), "a boolean volume"),
            (("denoise", path, "-o", tmp_path / "out.tif", *QUICK), "Give the scan itself"),
            (("phases", path, "-o", tmp_path / "out"), "--are-labels"),
        ):
            refused = call(*command_of)
            assert refused.exit_code == 1
            assert "contains labels of pores or phases" in refused.output
            assert said in refused.output
    assert not list(tmp_path.glob("out*"))
    beside = ("--markers", labels, "--sample-mask", labels)
    done = call("pores", scan, "-o", tmp_path / "marked", *words, *beside)
    assert done.exit_code == 0, done.output
    # as it is said
    found = hushpore.read(labels)
    pores = hushpore.segment_pores(found.replace(found.array() != 0), exterior="keep")
    assert pores.porosity == np.mean(found.array() != 0)


def test_pores_of_a_ball_are_one(scan: Path, tmp_path: Path) -> None:
    done = call("pores", scan, "-o", tmp_path / "out", "--threshold", "500", "--json")
    provenance = json.loads(done.stdout)
    ball = int(
        (np.hypot(np.hypot(*np.ogrid[-6:6, -20:20]).reshape(12, 40, 1), np.ogrid[-20:20]) < 5).sum()
    )
    table = pd.read_csv(tmp_path / "out" / "pores.csv")
    assert table["num_voxels"].tolist() == [ball]
    assert provenance["written"] == str(tmp_path / "out")


def test_every_setting_is_a_flag(scan: Path) -> None:
    text = call("run", "--help").output
    for job in ("denoise", "pores"):
        for option in JOBS[job].settings.options():
            assert option.flag in text


def test_the_help_names_the_settings_of_each_job_apart_the_usual_ones_first() -> None:
    text = call("run", "--help").output
    places = [
        text.index(words)
        for words in (
            "Options:", "--voxel-size", "Denoise:", "--time-budget", "Denoise, more:",
            "--patch-size", "Segment pores:", "--threshold", "Segment pores, more:",
            "--otsu-classes",
        )
    ]  # fmt: skip
    assert places == sorted(places)


def test_no_command_is_explained_by_half_a_sentence() -> None:
    assert "..." not in call("--help").output.partition("Commands:")[2]


def test_what_all_image_stacks_have_in_common_is_said_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        volume = Volume(np.zeros((3, 8, 9), np.int16), spacing=1, unit="mm", name=name)
        write_series(volume, tmp_path / name, seed=len(name) + ord(name[0]))
    (tmp_path / "notes.txt").write_text("Scanned at 90 kV.")
    lines = call("info", tmp_path).output.splitlines()
    assert [line[0] for line in lines] == ["1", "2", "-"]
    assert "notes.txt" in lines[-1]


def test_an_existing_result_is_kept_unless_overwriting_is_asked_for(
    scan: Path, tmp_path: Path
) -> None:
    words = ("pores", scan, "-o", tmp_path / "out", "--device", "cpu")
    assert call(*words).exit_code == 0
    before = (tmp_path / "out" / "result.json").read_text()
    again = call(*words)
    assert again.exit_code == 1
    assert "already" in again.output
    assert (tmp_path / "out" / "result.json").read_text() == before
    assert call(*words, "--overwrite").exit_code == 0


def test_one_time_point_of_a_series_is_chosen_by_at(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    values = rng.integers(0, 99, (2, 3, 20, 20)).astype(np.uint8)
    path = write_image(tmp_path / "drying.tif", Volume(values, axes="tzyx"))
    refused = call("pores", path, "-o", tmp_path / "out")
    assert refused.exit_code == 1
    done = call("pores", path, "-o", tmp_path / "out", "--at", "t=1", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert hushpore.read(tmp_path / "out" / "labels.tif").shape == (3, 20, 20)
    wrong = call("pores", path, "-o", tmp_path / "other", "--at", "t")
    assert "Give an axis and a number" in wrong.output


def bad_inputs(folder: Path) -> dict[str, Path]:
    """One file for each thing that can be wrong."""
    rng = np.random.default_rng(0)
    paths = {
        name: folder / f"{name}.tif" for name in ("text", "nan", "constant", "small", "rgb", "cut")
    }
    paths["text"].write_text("these are no pixels")
    nothing = np.full((3, 64, 64), np.nan, "f4")
    tifffile.imwrite(paths["nan"], nothing, photometric="minisblack")
    tifffile.imwrite(paths["constant"], np.full((3, 64, 64), 7, np.uint8), photometric="minisblack")
    tifffile.imwrite(
        paths["small"], rng.integers(0, 9, (3, 10, 10)).astype(np.uint8), photometric="minisblack"
    )
    tifffile.imwrite(
        paths["rgb"], rng.integers(0, 9, (64, 64, 3)).astype(np.uint8), photometric="rgb"
    )
    tifffile.imwrite(
        paths["cut"], rng.integers(0, 9, (9, 64, 64)).astype(np.uint8), photometric="minisblack"
    )
    paths["cut"].write_bytes(paths["cut"].read_bytes()[:9000])
    paths["line"] = folder / "line.npy"
    np.save(paths["line"], np.arange(9))
    paths["missing"] = folder / "missing.tif"
    paths["empty"] = folder / "empty"
    paths["empty"].mkdir()
    return paths


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "does not exist"),
        ("empty", "is empty"),
        ("text", "its content is not TIFF"),
        ("cut", "cut"),
        ("line", "2 to 5 axes"),
        ("nan", "NaN"),
        ("constant", "constant"),
        ("small", "smaller than a patch"),
        ("rgb", "RGB"),
    ],
)
def test_bad_input_is_one_clear_line_and_writes_nothing(
    tmp_path: Path, kind: str, words: str
) -> None:
    path = bad_inputs(tmp_path)[kind]
    before = sorted(tmp_path.rglob("*"))
    done = call("run", path, "-o", tmp_path / "out", "--device", "cpu")
    assert done.exit_code == 1, done.output
    lines = [line for line in done.stderr.splitlines() if line.startswith("hushpore: ")]
    assert len(lines) == 1
    assert words in done.stderr
    assert "Traceback" not in done.output
    assert sorted(tmp_path.rglob("*")) == before


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    scan: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushpore.runs.pipeline._read", lambda *_: pytest.fail("work was begun"))
    done = call("run", scan, "-o", scan / "below-a-file")
    assert done.exit_code == 1
    assert "Cannot write" in done.output


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("--dimensions", "4", "from 2 to 3"),
        ("--threshold", "otsou", "'otsu'"),
        ("--merge-height", "-1", "at least 0"),
        ("--patch-size", "18", "multiple of 4"),
        ("--device", "gpu", "Unknown device"),
    ],
)
def test_a_wrong_flag_says_what_is_accepted(
    scan: Path, tmp_path: Path, flag: str, value: str, words: str
) -> None:
    done = call("run", scan, "-o", tmp_path / "out", flag, value)
    assert done.exit_code != 0
    assert words in done.output
    assert not (tmp_path / "out").exists()


def test_a_mistake_of_ours_is_one_line_too(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr("hushpore.runs.pipeline.start", broken)
    done = call("pores", scan, "-o", tmp_path / "out")
    assert done.exit_code == 70
    assert done.stderr.splitlines()[-1].startswith(
        "hushpore: Unexpected error, KeyError: 'surprise'."
    )


def test_want_of_memory_is_no_mistake_of_ours(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 40.0 GiB for an array")

    monkeypatch.setattr("hushpore.runs.pipeline.start", full)
    done = call("pores", scan, "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].startswith("hushpore: There was not enough memory. Close")


def test_an_interrupt_leaves_nothing_behind(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def job(*_: object, **__: object) -> object:
        try:
            yield from ()
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    monkeypatch.setattr("hushpore.runs.pipeline.start", job)
    before = sorted(tmp_path.rglob("*"))
    done = call("run", scan, "-o", tmp_path / "out")
    assert done.exit_code == 130
    assert "Cancelled; no incomplete files remain." in done.output
    assert closed
    assert sorted(tmp_path.rglob("*")) == before
