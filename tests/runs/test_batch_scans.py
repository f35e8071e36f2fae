from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushpore import InputError
from hushpore.base.errors import OutputError
from hushpore.base.events import result_of
from hushpore.jobs import JOBS
from hushpore.runs.batch_workers import explained, find_scans, names_of, plan
from hushpore.runs.pipeline import run_pipeline
from hushpore.runs.reading import Reading
from hushpore.runs.scan_recipe import ScanRecipe

PORES = JOBS["pores"].settings


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    for name in ("s10", "s2", "s1"):
        (tmp_path / "scans" / name).mkdir(parents=True)
        (tmp_path / "scans" / name / "a.tif").touch()
    (tmp_path / "scans" / "notes.txt").touch()
    return tmp_path / "scans"


def test_wildcards_name_folders_in_natural_order(scans: Path) -> None:
    found = find_scans([f"{scans}/*/"], scans / "out")
    assert [path.name for path in found] == ["s1", "s2", "s10"]
    found = find_scans([f"{scans}/**/*.tif"], scans / "out")
    assert [path.parent.name for path in found] == ["s1", "s2", "s10"]


def test_each_scan_counts_once_and_the_results_are_none(scans: Path) -> None:
    (scans / "out" / "s1").mkdir(parents=True)
    found = find_scans(
        [str(scans / "s2"), f"{scans}/*/", f"{scans}/out/*"[:-6] + "/s2"], scans / "out"
    )
    assert [path.name for path in found] == ["s2", "s1", "s10"]


def test_a_path_with_brackets_is_taken_as_it_is(tmp_path: Path) -> None:
    odd = tmp_path / "scan [1]"
    odd.mkdir()
    assert find_scans([str(odd)], tmp_path / "out") == [odd]


def test_a_pattern_that_matches_nothing_is_said(scans: Path) -> None:
    with pytest.raises(InputError, match="No file or folder matches"):
        find_scans([f"{scans}/*.dcm"], scans / "out")


def test_names_are_unique_whatever_the_system_thinks_of_case(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a/scan.tif", "b/Scan.tif", "b/scan.npy", "c/x.tif")]
    assert names_of(paths) == ["a_scan", "b_Scan", "b_scan_2", "x"]


@given(st.lists(st.from_regex(r"/[ab]/(a|A|a_a|a_2|a_a_2)(_2)?\.(tif|npy)", fullmatch=True)))
def test_each_name_is_the_scans_own_and_no_other_scan_has_it(paths: list[str]) -> None:
    scans = list(map(Path, paths))
    names = names_of(scans)
    assert len({name.casefold() for name in names}) == len(scans)
    for scan, name in zip(scans, names, strict=True):
        own = rf"({scan.parent.name}_)?{scan.stem}(_[2-9][0-9]*|_1[0-9]+)?"
        assert re.fullmatch(own, name)


def test_a_number_makes_no_name_that_another_scan_has() -> None:
    paths = [Path(f"/{place}/ct/{name}.tif") for place in "AB" for name in ("scan", "scan_2")]
    assert names_of(paths) == ["ct_scan", "ct_scan_2", "ct_scan_3", "ct_scan_2_2"]


def test_results_of_other_settings_or_scans_are_not_touched_unless_allowed(
    folder: Path, scan: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    folder.rename(out / "foam")
    tasks = plan([str(scan)], out, {"pores": PORES()})
    assert {task.name: is_done for task, is_done in tasks.items()} == {"foam": True}
    with pytest.raises(OutputError, match="foam: made with other settings"):
        plan([str(scan)], out, {"pores": PORES(merge_height=2)})
    with pytest.raises(OutputError, match="other settings"):
        plan([str(scan)], out, {"denoise": JOBS["denoise"].settings(), "pores": PORES()})
    tasks = plan([str(scan)], out, {"pores": PORES(merge_height=2)}, overwrite=True)
    assert list(tasks.values()) == [False]
    scan.touch()
    said = "foam: the scan or a file named in the settings has changed"
    with pytest.raises(OutputError, match=said):
        plan([str(scan)], out, {"pores": PORES()})


@pytest.mark.parametrize("trust", [False, True])
def test_what_is_done_stays_done_when_scans_are_trusted_from_then_on_or_no_more(
    scan: Path, tmp_path: Path, trust: bool
) -> None:
    out, steps = tmp_path / "out", {"pores": PORES()}
    out.mkdir()
    result_of(run_pipeline(ScanRecipe(str(scan), trust=trust), out / "foam", steps, device="cpu"))
    tasks = plan([str(scan)], out, steps, reading=Reading(trust=not trust))
    assert list(tasks.values()) == [True]


def test_a_result_is_made_again_when_a_file_that_its_settings_name_has_changed(
    scan: Path, found: Any, tmp_path: Path
) -> None:
    mask = tmp_path / "mask.npy"
    np.save(mask, np.ones(found.labels.shape, np.uint8))
    out, steps = tmp_path / "out", {"pores": PORES(sample_mask=str(mask))}
    out.mkdir()
    result_of(run_pipeline(ScanRecipe(str(scan)), out / "foam", steps, device="cpu"))
    assert list(plan([str(scan)], out, steps).values()) == [True]
    mask.touch()
    with pytest.raises(OutputError, match="a file named in the settings"):
        plan([str(scan)], out, steps)


def test_second_scans_go_with_the_first_and_are_none_of_their_own(tmp_path: Path) -> None:
    for name in ("a_even.tif", "a_odd.tif", "b_even.tif", "b_odd.tif", "c_even.tif"):
        (tmp_path / name).touch()
    steps = {"denoise": JOBS["denoise"].settings(pair="{name%_even}_odd"), "pores": PORES()}
    tasks = plan([f"{tmp_path}/*.tif"], tmp_path / "out", steps)
    pairs = {task.name: Path(task.steps["denoise"].pair).name for task in tasks}
    # the third has none, which is said when it is its turn
    assert pairs == {"a_even": "a_odd.tif", "b_even": "b_odd.tif", "c_even": "c_odd"}


@pytest.mark.parametrize("name", ["foam/mine.txt", "foam"])
def test_what_is_not_ours_is_in_the_way(scan: Path, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "out" / name
    mine.parent.mkdir(parents=True)
    mine.touch()
    with pytest.raises(OutputError, match="exists but is not a result"):
        plan([str(scan)], tmp_path / "out", {"pores": PORES()}, overwrite=True)
    assert mine.is_file()


def test_an_empty_folder_is_no_result(scan: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "foam").mkdir(parents=True)
    tasks = plan([str(scan)], tmp_path / "out", {"pores": PORES()})
    assert list(tasks.values()) == [False]


def test_errors_are_told_on_one_line() -> None:
    assert explained(InputError("so\n  it is")) == "so it is"
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")):
        assert explained(error).startswith("There was not enough memory.")
    assert explained(KeyError("x")) == "Unexpected error (KeyError): 'x'"
