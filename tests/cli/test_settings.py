from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hushpore import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.io.results import write_image
from hushpore.jobs import CHAIN, JOBS
from hushpore.runs import presets

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from click.testing import Result


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def scan(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_image(tmp_path / "a.tif", Volume(rng.normal(500, 100, (4, 20, 20)).astype("f4")))


def used(scan: Path, *words: object) -> dict[str, Any]:
    done = call("pores", scan, "-o", scan.parent / "out", "--overwrite", "--json", *words)
    assert done.exit_code == 0, done.output
    settings: dict[str, Any] = json.loads(done.stdout)["settings"]
    return settings


def test_a_file_stands_in_for_defaults_and_flags_win(scan: Path, tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[pores]\nmerge_height = 2\nthreshold = 450\nborder_is_solid = true\nhysteresis = "none"\n'
        "[denoise]\nsteps = 7\n"
    )
    found = used(scan, "--settings", file)
    assert (found["merge_height"], found["threshold"], found["border_is_solid"]) == (2, 450, True)
    assert found["minimum_voxels"] is None
    found = used(scan, "--merge-height", "0.5", "--settings", file, "--no-border-is-solid")
    assert (found["merge_height"], found["threshold"], found["border_is_solid"]) == (
        0.5,
        450,
        False,
    )


def test_a_preset_does_the_same(scan: Path) -> None:
    presets.save_preset("crumb", "pores", JOBS["pores"].settings(merge_height=3))
    assert used(scan, "--preset", "crumb")["merge_height"] == 3
    listed = call("settings", "--list")
    assert "crumb: pores\n" in listed.output
    assert "Bread: pores (included with hushpore)\n" in listed.output
    assert used(scan, "--preset", "Bread")["ball_radius"] == 25


def test_the_written_defaults_are_accepted_and_change_nothing(scan: Path, tmp_path: Path) -> None:
    written = call("settings", "-o", tmp_path / "s.toml")
    assert written.exit_code == 0
    assert call("settings").output == (tmp_path / "s.toml").read_text(encoding="utf-8")
    assert used(scan, "--settings", tmp_path / "s.toml") == used(scan)
    assert call("settings", "-o", tmp_path / "s.toml").exit_code == 1


@pytest.mark.parametrize("name", ["denoise", "run", "batch", "phases", "batch-phases"])
def test_every_command_takes_the_written_defaults(scan: Path, tmp_path: Path, name: str) -> None:
    call("settings", "-o", tmp_path / "s.toml")
    target = tmp_path / ("out.tif" if name == "denoise" else "out")
    short = [] if name == "phases" else ["--steps", "1", "--patch-size", "16", "--batch-size", "2"]
    done = call(name, scan, "-o", target, "--settings", tmp_path / "s.toml", *short)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[pores]\nhh = 1", "The setting 'hh' does not exist"),
        ("[denoise]\nsteps = 7", "need a table [pores] for this command, but contain [denoise]"),
    ],
)
def test_settings_that_do_not_fit_are_one_clear_line(
    scan: Path, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "s.toml").write_text(text)
    done = call("pores", scan, "-o", tmp_path / "out", "--settings", tmp_path / "s.toml")
    assert done.exit_code == 1
    assert words in done.output
    assert "Traceback" not in done.output


def test_a_file_and_a_preset_at_once_are_refused(scan: Path, tmp_path: Path) -> None:
    presets.save_preset("bread", "pores", JOBS["pores"].settings(merge_height=3))
    (tmp_path / "s.toml").write_text("[pores]\nmerge_height = 1")
    words = ("--settings", tmp_path / "s.toml", "--preset", "bread")
    done = call("pores", scan, "-o", tmp_path / "out", *words)
    assert done.exit_code == 2
    assert "cannot be combined" in done.output


def test_no_two_jobs_of_one_command_have_a_setting_of_the_same_name() -> None:
    names = [opt.name for job in CHAIN for opt in JOBS[job].settings.options()]
    assert len(names) == len(set(names))
