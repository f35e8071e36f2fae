"""Results whose writing is killed: the old one is there or the new one, and nothing is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hushpore.base.atomic import abandoned_partials, new_file, partial_path
from hushpore.base.errors import OutputError
from hushpore.io.output_target import check_target, new_directory

ROOT = Path(__file__).parents[2]

#: In a process of its own, since forks are made of it.
KILLS = """
import json, os, random, sys
sys.path.insert(0, "tests/io")
import pandas as pd
from kills import Case, kills
from hushpore.io import read
from hushpore.io.results import write_image, write_results

def of(name):
    return {"job": "pores", "settings": {"of": name}}

def image(target):
    def write(folder, name):
        os.chdir(folder)
        volume = read(f"{name}.tif")
        write_image(folder / target, volume, provenance=of(name), overwrite=True)
    return write

def result(folder, name):
    os.chdir(folder)
    images = {"labels": read(f"{name}.tif")}
    tables = {"pores": pd.DataFrame({"of": [name]})}
    write_results(
        folder / "r", images=images, tables=tables, provenance=of(name), overwrite=True
    )

WORK = {"d.tif": image("d.tif"), "r": result}
found = {}
for name, work in WORK.items():
    case = Case("n", "m", (name, "d.json") if name != "r" else ("r",), share=1.0)
    runs = lambda which, folder, work=work: lambda: work(folder, which)
    found[name] = kills(case, 6, random.Random(0), runs)
print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs Linux")
def test_a_result_that_is_killed_is_the_old_one_or_the_new_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLS], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert [fault for each in found.values() for fault in each["faults"]] == []
    assert sum(each["killed"] for each in found.values()) > 6


def ended(monkeypatch: pytest.MonkeyPatch, target: Path, suffix: str) -> Path:
    """Return a hidden name of a process that is no more."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getpid", lambda: 2**22 + 1)
        return partial_path(target, suffix)


def test_what_a_killed_process_left_goes_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis").write_text("years of work")
    for target in (tmp_path / "a.tif", tmp_path / "out"):
        ended(monkeypatch, target, ".part").write_text("half")
        folder = ended(monkeypatch, target, ".part")
        folder.mkdir()
        (folder / "half").write_text("half")
    ended(monkeypatch, tmp_path / "a.tif", ".part").symlink_to(tmp_path / "thesis")
    with new_file(tmp_path / "a.tif", overwrite=False) as part:
        part.write_text("x")
    with new_directory(tmp_path / "out", overwrite=False):
        pass
    kept = {item.name for item in tmp_path.iterdir() if not item.is_symlink()}
    assert kept == {"thesis", "a.tif", "out"}
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_what_others_are_at_work_on_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = partial_path(tmp_path / "a.tif")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.node", lambda: "another computer")
        theirs = ended(elsewhere, tmp_path / "a.tif", ".part")
    for each in (mine, theirs):
        each.write_text("half")
    assert list(abandoned_partials(tmp_path / "a.tif")) == []


def test_a_result_that_was_just_being_replaced_gets_its_name_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ended(monkeypatch, tmp_path / "out", ".old")
    old.mkdir()
    (old / "result.json").write_text('{"files": ["result.json"]}')
    with pytest.raises(OutputError, match="already exists"):
        check_target(tmp_path / "out")
    assert [item.name for item in tmp_path.iterdir()] == ["out"]


def test_of_two_results_the_new_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ended(monkeypatch, tmp_path / "out", ".old")
    for folder in (old, tmp_path / "out"):
        folder.mkdir()
        (folder / "result.json").write_text('{"files": ["result.json"]}')
    with new_directory(check_target(tmp_path / "out", overwrite=True), overwrite=True) as part:
        (part / "new").write_text("x")
    assert [item.name for item in tmp_path.iterdir()] == ["out"]
    assert [item.name for item in (tmp_path / "out").iterdir()] == ["new"]
