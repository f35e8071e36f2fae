from __future__ import annotations

import multiprocessing
import shutil
from typing import TYPE_CHECKING

import pytest

from hushpore.device.backend import Backend
from hushpore.jobs import JOBS
from hushpore.runs import batch_workers
from hushpore.runs.batch_workers import plan, run_in_parallel

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.runs.batch_workers import Task


@pytest.fixture
def tasks(scan: Path, tmp_path: Path) -> list[Task]:
    for name in ("scans", "out"):
        (tmp_path / name).mkdir()
    for name in "abc":
        shutil.copy(scan, tmp_path / "scans" / f"{name}.tif")
    steps = {"pores": JOBS["pores"].settings()}
    return list(plan([f"{tmp_path}/scans/*.tif"], tmp_path / "out", steps, device="cpu"))


def kill_processes() -> None:
    for process in multiprocessing.active_children():
        process.kill()
        process.join()


@pytest.mark.long
def test_a_process_that_dies_between_two_scans_takes_none_with_it(tasks: list[Task]) -> None:
    ended = []
    for state in run_in_parallel(tasks, 1):
        if state.state in ("done", "failed"):
            ended.append((state.name, state.state))
            kill_processes()
    assert ended == [("a", "done"), ("b", "done"), ("c", "done")]


@pytest.mark.long
def test_a_process_that_dies_at_work_takes_its_scan_with_it(tasks: list[Task]) -> None:
    ended = {}
    for state in run_in_parallel(tasks, 1):
        if state.state in ("done", "failed"):
            ended[state.name] = state.state
        elif state.name == "a":
            # it has just begun, and its first scan takes it seconds
            kill_processes()
    assert ended == {"a": "failed", "b": "done", "c": "done"}


def test_the_headers_of_a_scan_that_waits_for_memory_are_read_once(
    tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, describe = [], batch_workers.describe

    def counted(path: str, trust: bool) -> object:
        read.append(path)
        return describe(path, trust=trust)

    monkeypatch.setattr(batch_workers, "describe", counted)
    monkeypatch.setattr(Backend, "free_memory", lambda _: 1000)
    assert sum(state.state == "done" for state in run_in_parallel(tasks, 2)) == 3
    assert read == [task.source.path for task in tasks]
