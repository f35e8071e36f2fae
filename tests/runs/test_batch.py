from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from hushpore import InputError, Volume
from hushpore.base.errors import OutputError
from hushpore.base.events import Note, Progress, StopEarly, result_of
from hushpore.cli.commands import hushpore as command
from hushpore.io.results import write_image
from hushpore.jobs import JOBS
from hushpore.runs import batch
from hushpore.runs.batch import LOCK, run_batch
from hushpore.runs.batch_workers import State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def make_scans(folder: Path, count: int, broken: Sequence[int] = (), side: int = 24) -> Path:
    """Scans of one ball each; of those that are broken one is no TIFF and the next is constant."""
    z, y, x = np.ogrid[:side, :side, :side]
    folder.mkdir()
    for number in range(count):
        radius = 4 + number % 4
        ball = (z - side // 2) ** 2 + (y - side // 2) ** 2 + (x - side // 2) ** 2 < radius**2
        grey = np.where(ball, 100, 900).astype(np.uint16)
        if number in broken and number % 2:
            (folder / f"scan{number}.tif").write_text("no pixels")
        elif number in broken:
            write_image(folder / f"scan{number}.tif", Volume(np.full_like(grey, 7)))
        else:
            volume = Volume(grey, spacing=2, unit="um")
            write_image(folder / f"scan{number}.tif", volume)
    return folder


def events_of(batch: object) -> tuple[list[object], object]:
    events: list[object] = []
    return events, result_of(batch, events.append)


def test_copies_of_a_scan_are_said_to_be_no_independent_samples(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 2)
    shutil.copy(scans / "scan1.tif", scans / "copy of scan1.tif")
    for _ in range(2):  # also if the results exist already
        events, _ = events_of(run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu"))
        said = [each.message for each in events if isinstance(each, Note) and each.warning]
        (copies,) = (text for text in said if "same image" in text)
        assert copies.startswith("copy of scan1, scan1 hold the same image")


def test_masks_without_pores_are_results_of_0_in_a_batch(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        np.save(tmp_path / f"{name}.npy", np.zeros((9, 10, 11), np.uint8))
    some = np.zeros((9, 10, 11), np.uint8)
    some[2:5, 2:5, 2:5] = 1
    np.save(tmp_path / "c.npy", some)
    settings = {"measure": JOBS["measure"].settings()}
    events, batch = events_of(run_batch(f"{tmp_path}/*.npy", tmp_path / "out", settings))
    assert batch.table["porosity"].tolist() == pytest.approx([0, 0, 27 / 990])
    assert not any(isinstance(each, Note) and "same image" in each.message for each in events)


def test_a_batch_gives_a_result_a_scan_and_a_table_across(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 4, broken=[1, 2])
    events, batch = events_of(run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu"))
    assert [state.state for state in batch.states] == ["done", "failed", "failed", "done"]
    assert batch.summary == "2 of 4 scans have a result, 2 failed"
    table = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert table["name"].tolist() == ["scan0", "scan1", "scan2", "scan3"]
    assert "its content is not TIFF" in table["message"][1]
    assert "constant" in table["message"][2]
    for row in (0, 3):
        provenance = json.loads((tmp_path / "out" / table["name"][row] / "result.json").read_text())
        assert table["porosity"][row] == provenance["jobs"][-1]["result"]["porosity"]
        assert table["count"][row] == 1
    assert table["porosity"][1:3].isna().all()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["settings"]) == ["pores"]
    assert len(summary["scans"]) == 4
    # nothing else is left: no lock, nothing half-written
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "scan0", "scan3", "summary.csv", "summary.json",
    }  # fmt: skip
    fractions = [event.fraction for event in events if isinstance(event, Progress)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    warned = [event.message for event in events if isinstance(event, Note) and event.warning]
    assert [message.partition(":")[0] for message in warned] == ["scan1", "scan2"]


def test_a_batch_that_is_started_again_skips_what_is_done(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 3, broken=[1])
    how = {"output": tmp_path / "out", "device": "cpu"}
    result_of(run_batch(f"{scans}/*.tif", **how))
    before = (tmp_path / "out" / "scan0" / "result.json").stat().st_mtime_ns
    # the broken one is mended meanwhile
    (scans / "scan1.tif").write_bytes((scans / "scan2.tif").read_bytes())
    events, batch = events_of(run_batch(f"{scans}/*.tif", **how))
    assert [state.state for state in batch.states] == ["skipped", "done", "skipped"]
    assert (tmp_path / "out" / "scan0" / "result.json").stat().st_mtime_ns == before
    assert batch.table["porosity"].notna().all()
    assert any(isinstance(e, Note) and "Skipped 2 of 3 scans" in e.message for e in events)


def test_scans_are_read_as_the_flags_say(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.integers(0, 99, (2, 4, 20, 20)).astype(np.uint8)
    path = write_image(tmp_path / "drying.tif", Volume(values, axes="tzyx"))
    words = ["batch", str(path), "-o", str(tmp_path / "out"), "--no-denoise", "--at", "t=1"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    source = json.loads((tmp_path / "out" / "drying" / "result.json").read_text())["source"]
    assert (source["at"], source["resample"], source["series"]) == (["t=1"], False, "")
    again = CliRunner().invoke(command, words)
    assert "1 of them from an earlier run" in again.output
    other = CliRunner().invoke(command, [*words[:-1], "t=0"])
    assert other.exit_code == 1
    assert "drying: the scan or a file named in the settings has changed" in other.output


def test_scans_are_listed_in_natural_order(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 1)
    for number in (10, 2):
        (scans / f"scan{number}.tif").write_text("no pixels")
    batch = result_of(run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu"))
    assert batch.table["name"].tolist() == ["scan0", "scan2", "scan10"]


def test_a_stop_keeps_what_is_done(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 3)
    work = run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu")
    for event in work:
        if isinstance(event, State) and event.state == "done":
            break
    events = [work.throw(StopEarly())]
    batch = result_of(work, events.append)
    assert "Run it again to continue" in events[0].message
    assert [state.state for state in batch.states] == ["done", "waiting", "waiting"]
    assert batch.summary == "1 of 3 scans have a result, none failed, 2 were not started"
    assert pd.read_csv(tmp_path / "out" / "summary.csv")["state"].tolist()[1:] == ["waiting"] * 2


def test_a_cancel_leaves_nothing_half_written(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 1)
    work = run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu")
    next(event for event in work if isinstance(event, State) and event.state == "running")
    work.close()
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_batch_was_writing_is_removed(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 1)
    half = [f".{name}.0123456789abcdef.part" for name in ("summary.csv", "summary.json", LOCK)]
    (tmp_path / "out" / ".scan0.0123456789abcdef.part").mkdir(parents=True)
    for name in half:
        (tmp_path / "out" / name).touch()
    result_of(run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "scan0", "summary.csv", "summary.json",
    }  # fmt: skip


def test_two_batches_at_work_in_one_folder_are_refused(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 1)
    (tmp_path / "out").mkdir()
    import psutil

    other = psutil.Process(os.getppid())
    lock = tmp_path / "out" / LOCK
    lock.write_text(json.dumps({"process": other.pid, "started": other.create_time()}))
    with pytest.raises(OutputError, match=f"is in use by another batch .process {other.pid}."):
        result_of(run_batch(f"{scans}/*.tif", tmp_path / "out"))
    # the number now belongs to another process than the one that was killed
    lock.write_text(json.dumps({"process": other.pid, "started": other.create_time() - 60}))
    assert result_of(run_batch(f"{scans}/*.tif", tmp_path / "out")).count("done") == 1


def test_a_second_batch_of_the_same_process_is_refused_and_leaves_the_first_its_lock(
    tmp_path: Path,
) -> None:
    scans = make_scans(tmp_path / "scans", 1)
    first, second = (run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu") for _ in "ab")
    next(first)
    with pytest.raises(OutputError, match=f"is in use by another batch .process {os.getpid()}."):
        next(second)
    assert (tmp_path / "out" / LOCK).is_file()
    assert result_of(first).count("done") == 1
    assert not (tmp_path / "out" / LOCK).exists()


def test_of_two_batches_that_begin_together_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans, holder = make_scans(tmp_path / "scans", 1), batch._holder

    def slow(lock: Path) -> int | None:
        found = holder(lock)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(batch, "_holder", slow)
    both = [run_batch(f"{scans}/*.tif", tmp_path / "out", device="cpu") for _ in "ab"]
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(next, work) for work in both]
    assert [type(each.exception()) for each in begun].count(OutputError) == 1
    for work in both:
        work.close()


def test_what_cannot_be_run_is_said_before_any_work(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 1)
    with pytest.raises(InputError, match="jobs must be at least 1"):
        result_of(run_batch(f"{scans}/*.tif", tmp_path / "out", jobs=0))
    with pytest.raises(OutputError, match="its folder does not exist"):
        result_of(run_batch(f"{scans}/*.tif", tmp_path / "no" / "out"))
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="Cannot write to"):
        result_of(run_batch(f"{scans}/*.tif", tmp_path / "file"))


def test_the_command_fails_if_a_scan_does_and_takes_settings_from_a_file(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 3, broken=[1])
    (tmp_path / "s.toml").write_text("[pores]\nthreshold = 500\npore_type = 'closed'\n")
    words = ["batch", f"{scans}/*.tif", "-o", str(tmp_path / "out"), "--no-denoise"]
    done = CliRunner().invoke(command, [*words, "--settings", str(tmp_path / "s.toml")])
    assert done.exit_code == 1
    assert (
        "Failed: scan1: scan1.tif has an extension of TIFF, but its content is not" in done.stderr
    )
    assert "2 of 3 scans have a result, 1 failed." in done.output
    provenance = json.loads((tmp_path / "out" / "scan0" / "result.json").read_text())
    assert provenance["jobs"][0]["settings"]["pore_type"] == "closed"
    (scans / "scan1.tif").unlink()
    done = CliRunner().invoke(command, [*words, "--threshold", "500", "--pore-type", "closed"])
    assert done.exit_code == 0, done.output
    assert "2 of 2 scans have a result, 2 of them from an earlier run, none failed." in done.output


#: What holds every process of a batch before it hands over a result beyond the third, until it is
#: killed or whoever started it is gone.
HELD = """
import os, pathlib, time
first = int(os.environ.setdefault("FIRST_PROCESS", str(os.getpid())))
out, rename = pathlib.Path(os.environ["HELD_FOLDER"]), os.rename

def held(part, target, **options):
    while len(list(out.glob("[!.]*/result.json"))) >= 3:
        if first not in (os.getpid(), os.getppid()):
            os._exit(1)
        time.sleep(0.01)
    rename(part, target, **options)

os.rename = held
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
@pytest.mark.parametrize("jobs", [1, 2])
def test_eight_scans_killed_half_way_and_started_again(tmp_path: Path, jobs: int) -> None:
    scans = make_scans(tmp_path / "scans", 8, broken=[3, 6])
    out = tmp_path / "out"
    words = [sys.executable, "-m", "hushpore", "batch", f"{scans}/*.tif", "-o", str(out)]
    words += ["--no-denoise", "--device", "cpu", "--jobs", str(jobs)]
    # Python runs it when it starts
    (tmp_path / "sitecustomize.py").write_text(HELD)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    first = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "HELD_FOLDER": str(out)},
    )
    while len(results(out)) < 3 and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = results(out)
    assert 3 <= len(kept) <= 3 + jobs
    again = CliRunner().invoke(command, words[3:])
    assert again.exit_code == 1, again.output
    after = results(out)
    assert len(after) == 6
    # nothing was done twice
    assert {name: after[name] for name in kept} == kept
    table = pd.read_csv(out / "summary.csv", index_col="name")
    assert table["state"].value_counts().to_dict() == {
        "skipped": len(kept), "done": 6 - len(kept), "failed": 2,
    }  # fmt: skip
    assert table.loc[["scan3", "scan6"], "message"].str.len().min() > 20
    # nothing half-written is left of what was killed
    assert not list(out.glob(".*"))


def results(out: Path) -> dict[str, int]:
    """The complete results, and when each was written."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("[!.]*/result.json")}


def test_a_batch_ends_in_a_result_folder(tmp_path: Path) -> None:
    scans = make_scans(tmp_path / "scans", 1)
    alone = {"denoise": JOBS["denoise"].settings()}
    with pytest.raises(InputError, match="must write a result folder"):
        result_of(run_batch(f"{scans}/*.tif", tmp_path / "out", alone))


def test_every_time_of_a_series_has_a_result_and_a_row(tmp_path: Path) -> None:
    z, y, x = np.ogrid[:24, :24, :24]
    distance = (z - 12) ** 2 + (y - 12) ** 2 + (x - 12) ** 2
    series = np.stack([np.where(distance < r**2, 100, 900) for r in (4, 5, 6)]).astype(np.uint16)
    write_image(tmp_path / "drying.tif", Volume(series, axes="tzyx", spacing=2, unit="um"))
    make_scans(tmp_path / "single", 1)
    words = [str(tmp_path / "drying.tif"), f"{tmp_path}/single/*.tif", "-o", str(tmp_path / "out")]
    for time_of_run in range(2):
        done = CliRunner().invoke(command, ["batch", *words, "--no-denoise", "--at", "all"])
        assert done.exit_code == 0, done.output
        assert ("from an earlier run" in done.output) == bool(time_of_run)
    table = pd.read_csv(tmp_path / "out" / "summary.csv").set_index("name")
    assert list(table.index) == ["drying_t0", "drying_t1", "drying_t2", "scan0"]
    assert table["t"].tolist()[:3] == [0, 1, 2]
    assert np.isnan(table["t"]["scan0"])
    assert table["porosity"][:3].is_monotonic_increasing
    one = ["-o", str(tmp_path / "one"), "--at", "t=1"]
    done = CliRunner().invoke(command, ["pores", words[0], *one])
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "one" / "result.json").read_text())["jobs"][-1]["result"]
    assert record["porosity"] == table["porosity"]["drying_t1"]
    done = CliRunner().invoke(
        command, ["pores", words[0], "-o", str(tmp_path / "x"), "--at", "all"]
    )
    assert done.exit_code == 1
    assert "use hushpore batch" in " ".join(done.output.split())
