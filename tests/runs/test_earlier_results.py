"""What an earlier version has written is understood, and comes out the same again."""

from __future__ import annotations

import contextlib
import json
import shutil
import tomllib
import warnings
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from click.testing import CliRunner

from hushpore.base.events import result_of
from hushpore.base.preferences import FOLDER
from hushpore.cli.commands import hushpore
from hushpore.jobs import JOBS
from hushpore.runs.compare import compare
from hushpore.runs.presets import read_preset
from hushpore.runs.rerun import rerun
from hushpore.runs.settings_file import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def earlier(data_folder: Path, tmp_path: Path) -> Path:
    """The results with their scan, where their records say that it is."""
    folder = tmp_path / "scans"
    shutil.copytree(data_folder / "results_1f46906", folder)
    for file in folder.rglob("*.json"):
        file.write_text(file.read_text().replace("/scans/", f"{folder.as_posix()}/"))
    return folder


def last_job(file: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(file.read_text())
    job: dict[str, Any] = made.get("jobs", [made])[-1]
    return job


@pytest.mark.parametrize(
    "name", ["pores", "pores_sauvola", "pores_markers", "patches", "patches_points"]
)
def test_a_result_comes_out_the_same(
    earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # of patches no more than the name of the scan was kept
    monkeypatch.chdir(earlier)
    done = result_of(rerun(earlier / name, tmp_path / "again", "cpu"))
    assert done.identical, done.summary
    kind = JOBS[last_job(tmp_path / "again" / "result.json")["job"]].settings
    before, after = (
        last_job(folder / "result.json")["settings"] for folder in (earlier / name, done.written)
    )
    assert kind.of(kind.recorded(before)) == kind.of(after)
    for file in earlier.joinpath(name).glob("*.csv"):
        # but for the last digits, which are each processor's own; later versions measure more
        before, after = (pd.read_csv(each) for each in (file, done.written / file.name))
        kept = [name for name in after.columns if name in before.columns]
        pd.testing.assert_frame_equal(after[kept], before, rtol=1e-9, atol=1e-12)


def test_pores_are_merged_by_the_height_that_auto_came_to_then(
    earlier: Path, tmp_path: Path
) -> None:
    file = earlier / "pores" / "result.json"
    made = json.loads(file.read_text())
    (job,) = made.get("jobs", [made])
    height = job["settings"]["h"]
    job["result"]["merged_by"] = {"h": height}
    job["settings"]["h"] = "auto"
    file.write_text(json.dumps(made))
    done = result_of(rerun(earlier / "pores", tmp_path / "again", "cpu"))
    assert done.identical, done.summary
    assert last_job(tmp_path / "again" / "result.json")["settings"]["h"] == height


@pytest.mark.parametrize(("name", "written"), [("denoised.json", "o.tif"), ("run", "out")])
def test_a_training_is_repeated_with_its_settings(
    earlier: Path, tmp_path: Path, name: str, written: str
) -> None:
    # another processor rounds otherwise, and so the bits are its own
    result_of(rerun(earlier / name, tmp_path / written, "cpu"))
    files = [
        place / "result.json" if place.is_dir() else place.with_suffix(".json")
        for place in (earlier / name, tmp_path / written)
    ]
    before, after = (json.loads(file.read_text()) for file in files)
    before, after = (made.get("jobs", [made])[0] for made in (before, after))
    assert before["result"]["steps"] == after["result"]["steps"] == 3
    removed = [made["result"]["noise_removed"] for made in (before, after)]
    assert removed[1] == pytest.approx(removed[0], rel=0.02)
    # what was laid beside the scan is the same, whatever its entry is called
    entries = [
        next((made[key] for key in ("auxiliary", "beside") if key in made), {})
        for made in (before, after)
    ]
    assert [each["blake2b"] for each in entries[0].values()] == [
        each["blake2b"] for each in entries[1].values()
    ]


@contextlib.contextmanager
def warned_of(old_names: set[str]) -> Iterator[None]:
    """Each old name is said, with that of now; nothing else is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    said = {str(warning.message).split("'")[1] for warning in caught}
    assert said == old_names
    assert all("is called" in str(warning.message) for warning in caught)


def test_settings_files_and_presets_are_read_by_the_names_of_then(
    earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(earlier))
    tables = tomllib.loads((earlier / "presets" / "Foam.toml").read_text())
    formerly = {
        old: opt.name
        for job in tables
        for opt in JOBS[job].settings.options()
        for old in opt.formerly
    }
    used = {name for table in tables.values() for name in table}
    for read in (
        lambda: read_preset("Foam"),
        lambda: read_settings(earlier / "presets" / "Foam.toml"),
    ):
        with warned_of(used & set(formerly)):
            found = read()
        assert set(found) == set(tables) == {"denoise", "pores", "patches"}
        for job, table in tables.items():
            kept = found[job].to_dict()
            for name, value in table.items():
                assert kept[formerly.get(name, name)] == (None if value == "none" else value)
    # the defaults of then are comments, and follow the program
    assert read_settings(earlier / "settings.toml") == {
        job: JOBS[job].settings() for job in ("denoise", "pores")
    }


def test_the_command_line_says_which_names_have_changed(tmp_path: Path) -> None:
    job, name, opt = next(
        (job, old, opt)
        for job, kind in JOBS.items()
        for opt in kind.settings.options()
        for old in opt.formerly
    )
    value = "none" if opt.default is None else opt.default
    (tmp_path / "s.toml").write_text(f"[{job}]\n{name} = {json.dumps(value)}\n")
    words = [job, "gone.tif", "-o", "out.tif", "--settings", str(tmp_path / "s.toml")]
    said = CliRunner().invoke(hushpore, words).stderr
    assert f"Note: The setting {name!r} is called {opt.name!r} now" in said


def test_results_are_compared(earlier: Path) -> None:
    table = compare(earlier / "pores", earlier / "pores_markers")
    porosity = table[table["quantity"] == "porosity"].iloc[0]
    expected = [last_job(earlier / name / "result.json")["result"]["porosity"]
                for name in ("pores", "pores_markers")]  # fmt: skip
    assert [porosity["a"], porosity["b"]] == expected
