from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
from click.testing import CliRunner

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Progress, StopEarly, result_of
from hushpore.cli.commands import hushpore as command
from hushpore.io import guards
from hushpore.io.results import write_image
from hushpore.jobs import JOBS
from hushpore.runs.pipeline import run_pipeline
from hushpore.runs.pore_result import open_result
from hushpore.runs.rerun import rerun
from hushpore.runs.result_folder import write_result
from hushpore.runs.scan_recipe import ScanRecipe

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from hushpore.pores.result import Pores

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = [
    "--steps", "3", "--patch-size", "16", "--batch-size", "2", "--device", "cpu",
    "--no-test-time-augmentation",
]  # fmt: skip


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def change(path: Path, **changes: Any) -> None:
    """Alter the segmentation in a record."""
    provenance = json.loads(path.read_text())
    provenance["jobs"][-1].update(changes)
    path.write_text(json.dumps(provenance))


def test_a_segmentation_is_made_again_identical(folder: Path, tmp_path: Path) -> None:
    done = call("rerun", folder, "-o", tmp_path / "again", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "Identical: the new result equals the original bit for bit." in done.output
    one, two = (hushpore.read(each / "labels.tif") for each in (folder, tmp_path / "again"))
    np.testing.assert_array_equal(one.data, two.data)
    assert (folder / "pores.csv").read_bytes() == (tmp_path / "again" / "pores.csv").read_bytes()


def test_denoising_and_segmenting_with_other_settings_are_made_again(
    scan: Path, tmp_path: Path
) -> None:
    words = ("--threshold", "500", "--merge-height", "1.5", "--minimum-voxels", "3", "--seed", "4")
    done = call("run", scan, "-o", tmp_path / "one", *words, *QUICK)
    assert done.exit_code == 0, done.output
    done = call("rerun", tmp_path / "one" / "result.json", "-o", tmp_path / "two", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["identical"] is True
    settings = json.loads((tmp_path / "two" / "result.json").read_text())["jobs"][-1]["settings"]
    assert (settings["threshold"], settings["merge_height"], settings["minimum_voxels"]) == (
        500,
        1.5,
        3,
    )


def test_a_denoised_image_is_made_again_from_the_record_beside_it(
    scan: Path, tmp_path: Path
) -> None:
    assert call("denoise", scan, "-o", tmp_path / "clean.tif", *QUICK).exit_code == 0
    done = result_of(rerun(tmp_path / "clean.json", tmp_path / "again.tif", "cpu"))
    assert done.identical
    assert hushpore.read(tmp_path / "again.tif").shape == (12, 40, 48)


def test_another_number_of_threads_of_the_training_is_told(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    done = call("run", scan, "-o", tmp_path / "one", "--threshold", "500", *QUICK)
    assert done.exit_code == 0, done.output
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    done = call("rerun", tmp_path / "one", "-o", tmp_path / "two", "--device", "cpu")
    assert "the device was CPU, 3 threads and is CPU, 1 thread." in done.output


def test_a_denoised_image_is_made_again_in_blocks(scan: Path, tmp_path: Path) -> None:
    assert call("denoise", scan, "-o", tmp_path / "clean.tif", *QUICK).exit_code == 0
    again = tmp_path / "again.ome.zarr"
    done = call("rerun", tmp_path / "clean.json", "-o", again, "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "Identical: the new result equals the original bit for bit." in done.output
    # known by its image, too, whether that is a file or a folder
    for image in (tmp_path / "clean.tif", again):
        assert result_of(rerun(image, tmp_path / "third.tif", "cpu", overwrite=True)).identical


def test_a_denoising_with_a_second_scan_is_made_again_and_another_second_scan_is_told(
    scan: Path, tmp_path: Path
) -> None:
    second = write_image(tmp_path / "foam_b.tif", noisier(scan, 1))
    # as it is called beside the first
    words = ("--pair", "{name}_b", *QUICK)
    done = call("denoise", scan, "-o", tmp_path / "clean.tif", *words)
    assert done.exit_code == 0, done.output
    kept = json.loads((tmp_path / "clean.json").read_text())
    assert kept["settings"]["pair"] == kept["auxiliary"]["pair"]["name"] == str(second)
    assert kept["network"]["method"] == "n2n"
    assert result_of(rerun(tmp_path / "clean.json", tmp_path / "again.tif", "cpu")).identical
    write_image(second, noisier(scan, 2), overwrite=True)
    other = result_of(rerun(tmp_path / "clean.json", tmp_path / "other.tif", "cpu"))
    assert f"the fingerprint of pair ({second}) was {kept['auxiliary']['pair']['blake2b']}" in (
        other.summary
    )


@pytest.mark.parametrize("job", ["denoise", "patches"])
def test_a_model_that_was_applied_is_looked_at_before_anything_is_run(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("denoise", scan, "-o", "trained.tif", *QUICK, "--save-model", "model.safetensors")
    assert call(*words).exit_code == 0
    ending = ".tif" if job == "denoise" else ""
    words = (job, scan, "-o", f"first{ending}", "--model", "model.safetensors", "--device", "cpu")
    done = call(*words, "--patch-size", 16)
    assert done.exit_code == 0, done.output
    made = tmp_path / ("first.json" if job == "denoise" else "first")
    # wherever it is read
    monkeypatch.chdir("/")
    again = tmp_path / f"again{ending}"
    assert result_of(rerun(made, again, "cpu")).identical
    # the same weights in another file: a header is of who wrote it
    file = tmp_path / "model.safetensors"
    model = hushpore.load_model(file)
    monkeypatch.setattr("hushpore.denoising.trained_model.__version__", "99")
    model.save(file, overwrite=True)
    assert result_of(rerun(made, again, "cpu", overwrite=True)).identical
    again = tmp_path / f"another{ending}"
    with torch.no_grad():
        next(model.network.parameters())[0] += 1e-6
    model.save(file, overwrite=True)
    with pytest.raises(InputError, match=r"is not the model of this result.*Nothing was run"):
        result_of(rerun(made, again, "cpu"))
    file.unlink()
    said = f"trained model of this result is missing: there is no file {file}"
    with pytest.raises(InputError, match=said):
        result_of(rerun(made, again, "cpu"))
    assert not again.exists()


def noisier(scan: Path, seed: int) -> Volume:
    """Return a scan again, with noise of its own."""
    volume, rng = hushpore.read(scan), np.random.default_rng(seed)
    noisy = volume.data + rng.normal(0, 50, volume.shape)
    return volume.replace(np.maximum(noisy, 0).round().astype(np.uint16))


def test_a_training_that_time_has_ended_is_made_again_step_by_step(
    scan: Path, tmp_path: Path
) -> None:
    words = ("--steps", 10_000, *QUICK[2:], "--time-budget", 1)
    checkpoint = ("--checkpoint", tmp_path / "kept.safetensors")
    done = call("denoise", scan, "-o", tmp_path / "clean.tif", *words, *checkpoint)
    assert done.exit_code == 0, done.output
    first = json.loads((tmp_path / "clean.json").read_text())
    done = call("rerun", tmp_path / "clean.json", "-o", tmp_path / "again.tif", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "Identical: the new result equals the original bit for bit." in done.output
    second = json.loads((tmp_path / "again.json").read_text())
    assert first["result"]["steps"] == second["result"]["steps"] < 10_000
    assert first["training"] == second["training"]
    # and the one that was made again can be made again
    third = result_of(rerun(tmp_path / "again.json", tmp_path / "third.tif", "cpu"))
    assert third.identical


def test_a_training_that_was_stopped_is_made_again(scan: Path, tmp_path: Path) -> None:
    settings = JOBS["denoise"].settings(steps=50, patch_size=16, batch_size=1)
    work = run_pipeline(
        ScanRecipe(str(scan)), tmp_path / "clean.tif", {"denoise": settings}, device="cpu"
    )
    for event in work:
        if isinstance(event, Progress) and event.stage == "training" and event.done == 7:
            break
    work.throw(StopEarly())
    result_of(work)
    done = result_of(rerun(tmp_path / "clean.json", tmp_path / "again.tif", "cpu"))
    assert done.identical
    assert json.loads((tmp_path / "again.json").read_text())["result"]["steps"] < 10


def test_a_training_that_took_other_steps_is_told(scan: Path, tmp_path: Path) -> None:
    assert call("denoise", scan, "-o", tmp_path / "clean.tif", *QUICK).exit_code == 0
    provenance = json.loads((tmp_path / "clean.json").read_text())
    provenance["result"]["steps"] = 2
    provenance["fingerprints"]["image"] = "0"
    (tmp_path / "clean.json").write_text(json.dumps(provenance))
    done = result_of(rerun(tmp_path / "clean.json", tmp_path / "again.tif", "cpu"))
    assert done.summary == "Not identical: image differs; steps was 2 and is 3."


def test_one_position_of_a_series_is_read_again(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.integers(0, 99, (2, 3, 20, 20)).astype(np.uint8)
    path = write_image(tmp_path / "drying.tif", Volume(values, axes="tzyx"))
    assert call("pores", path, "-o", tmp_path / "out", "--at", "t=1").exit_code == 0
    assert result_of(rerun(tmp_path / "out", tmp_path / "again")).identical


def test_another_outcome_is_told_with_what_differs(folder: Path, tmp_path: Path) -> None:
    how = {"device": "a quantum computer", "memory": "at most 1 GB (as preferred)"}
    change(folder / "result.json", hushpore="0.0.1", **how)
    provenance = json.loads((folder / "result.json").read_text())
    provenance["jobs"][-1]["settings"]["merge_height"] = 40.0
    (folder / "result.json").write_text(json.dumps(provenance))
    done = call("rerun", folder, "-o", tmp_path / "again", "--device", "cpu")
    assert done.exit_code == 2
    assert "Not identical: labels differs; " in done.output
    assert "; count was" in done.output
    assert "the device was a quantum computer and is CPU" in done.output
    assert "memory was at most 1 GB (as preferred) and is not limited" in done.output
    assert "hushpore was 0.0.1 and is" in done.output


@pytest.mark.parametrize(("factor", "is_told"), [(1 + 1e-14, False), (1 + 1e-6, True)])
def test_a_table_differs_by_more_than_its_last_digits(
    folder: Path, tmp_path: Path, factor: float, is_told: bool
) -> None:
    table = pd.read_csv(folder / "pores.csv")
    table["sphericity"] *= factor
    table.to_csv(folder / "pores.csv", index=False)
    done = call("rerun", folder, "-o", tmp_path / "again", "--device", "cpu")
    assert ("Not identical: pores.csv differs." in done.output) is is_told
    assert done.exit_code == (2 if is_told else 0)


def test_a_scan_that_is_gone_or_has_changed_is_refused(
    folder: Path, scan: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    other = hushpore.read(scan)
    write_image(scan, other.replace(other.array() + 1), overwrite=True)
    with pytest.raises(InputError, match="has changed since this result was made"):
        result_of(rerun(folder, again))
    scan.unlink()
    with pytest.raises(InputError, match="was not found at"):
        result_of(rerun(folder, again))
    assert not again.exists()


def test_a_record_cannot_say_that_its_scan_is_trusted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = json.loads((folder / "result.json").read_text())
    blank = tmp_path / "blank.tif"
    values = np.zeros((2, 64, 64), np.uint16)
    tifffile.imwrite(blank, values, compression="zstd", photometric="minisblack")
    known["source"].update(path=str(blank), trust=True)
    (folder / "result.json").write_text(json.dumps(known))
    monkeypatch.setattr(guards, "LARGEST_RATIO", 2)
    monkeypatch.setattr(guards, "SMALL", 0)
    done = call("rerun", folder, "-o", tmp_path / "again")
    assert done.exit_code == 1
    assert "--trust" in done.output
    # with the word of the user it is read, and found to be another
    done = call("rerun", folder, "-o", tmp_path / "again", "--trust")
    assert "has changed since this result was made" in done.output


def test_what_lay_beside_a_scan_in_memory_alone_is_told_before_anything_is_run(
    scan: Path, tmp_path: Path
) -> None:
    volume, source = hushpore.read(scan), ScanRecipe(str(scan)).to_dict()
    plain = hushpore.segment_pores(volume)
    peaks = np.transpose(np.unravel_index(plain.graph.peak[1:], volume.shape))
    write_result(tmp_path / "merged", [plain.remerge_to_markers(peaks[:2])], volume, source=source)
    with pytest.raises(InputError, match=r"markers was .*an array or a layer.*--markers FILE"):
        result_of(rerun(tmp_path / "merged", tmp_path / "again"))
    # as is advised
    pd.DataFrame(peaks[:2], columns=["z", "y", "x"]).to_csv(tmp_path / "peaks.csv", index=False)
    words = ("--markers", tmp_path / "peaks.csv", "--device", "cpu")
    assert call("pores", scan, "-o", tmp_path / "given", *words).exit_code == 0
    assert result_of(rerun(tmp_path / "given", tmp_path / "again", "cpu")).identical
    one, two = (hushpore.read(tmp_path / name / "labels.tif").data for name in ("merged", "again"))
    np.testing.assert_array_equal(one, two)
    (tmp_path / "peaks.csv").unlink()
    with pytest.raises(InputError, match=r"markers was .*peaks\.csv.*Move the file back"):
        result_of(rerun(tmp_path / "given", tmp_path / "again", "cpu", overwrite=True))


def test_pores_merged_anew_after_their_intervals_were_found_are_made_again(
    scan: Path, tmp_path: Path
) -> None:
    volume, source = hushpore.read(scan), ScanRecipe(str(scan)).to_dict()
    merged = hushpore.segment_pores(volume, intervals=True).remerge(1.5)
    # of which some is still known
    assert "threshold_low" in set(merged.files().tables["totals"]["name"])
    write_result(tmp_path / "merged", [merged], volume, source=source)
    assert result_of(rerun(tmp_path / "merged", tmp_path / "again", "cpu")).identical
    table = pd.read_csv(tmp_path / "merged" / "totals.csv")
    table.loc[table["name"] == "specific_surface", "value"] *= 1.001
    table.to_csv(tmp_path / "merged" / "totals.csv", index=False)
    other = result_of(rerun(tmp_path / "merged", tmp_path / "again", "cpu", overwrite=True))
    assert not other.identical
    assert re.fullmatch(r"Not identical: specific surface was \S+ and is \S+\.", other.summary)


def test_settings_of_another_version_are_refused(folder: Path, tmp_path: Path) -> None:
    change(folder / "result.json", settings={"warp": 9}, hushpore="9.9")
    with pytest.raises(InputError, match=r"made by hushpore 9\.9 and do not fit this version"):
        result_of(rerun(folder, tmp_path / "again"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not valid JSON"),
        ("[]", "contains no job"),
        ('{"jobs": [{"job": "warp"}]}', "cannot be reproduced"),
    ],
)
def test_what_is_no_record_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match=words):
        result_of(rerun(tmp_path, tmp_path / "again"))


def test_corrections_by_hand_are_made_again(scan: Path, found: Pores, tmp_path: Path) -> None:
    fix = hushpore.Corrections(found)
    pores = found.pores["label"].tolist()
    fix.delete(pores[-1:])
    fix.paint(np.argwhere(found.labels == pores[-1]), 900)
    fix.merge([pores[0], 900])
    place = np.argwhere(fix.result.labels == pores[1])
    middle = place.mean(axis=0)
    fix.cut(pores[1], [middle, middle + np.array([0, 1, 1])])
    source = ScanRecipe(str(scan)).to_dict()
    folder = write_result(tmp_path / "result", [fix.result], found.volume, source=source)
    record = json.loads((folder / "result.json").read_text())["jobs"][-1]
    assert [each["kind"] for each in record["corrections"]] == ["delete", "paint", "merge", "cut"]
    done = result_of(rerun(folder, tmp_path / "again", "cpu"))
    assert done.identical, done.summary
    again = json.loads((done.written / "result.json").read_text())["jobs"][-1]
    assert again["corrections"] == record["corrections"]
    opened = open_result(done.written)
    pd.testing.assert_frame_equal(opened.pores, fix.result.pores, check_dtype=False)
    # without the corrections it is another result
    change(folder / "result.json", corrections=[])
    assert not result_of(rerun(folder, tmp_path / "without", "cpu")).identical
