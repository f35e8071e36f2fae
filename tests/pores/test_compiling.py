"""Kernels that other processes compile: the same as the job's, and no process is left behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hushpore.pores import compiling
from hushpore.pores.compiling import compile_basins, compile_beside, compile_tables, compile_void
from hushpore.pores.job import WARM_UP, warm_up_kind
from hushpore.pores.parallel import is_on_disk, kernels_compiled
from hushpore.pores.settings import PoreSettings
from hushpore.pores.watershed.merging import _merge


@pytest.mark.parametrize("connectivity", ["all", "faces"])
def test_what_others_compile_is_what_the_job_calls(connectivity: str) -> None:
    list(WARM_UP.wait(warm_up_kind(PoreSettings(connectivity=connectivity))))
    before = kernels_compiled()
    compile_void()
    compile_basins(connectivity == "faces")
    compile_tables(connectivity == "faces")
    assert kernels_compiled() == before
    assert is_on_disk(_merge)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, subprocess.Popen[bytes]]]:
    """Processes that were begun on an empty disk, which do nothing for a minute."""
    found: list[tuple[str, subprocess.Popen[bytes]]] = []

    def begin(part: str, faces_only: bool) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        found.append((part, subprocess.Popen(command)))
        return found[-1][1]

    monkeypatch.setattr(compiling, "_begin", begin)
    monkeypatch.setattr(compiling, "is_on_disk", lambda kernel: False)
    return found


@pytest.mark.parametrize(("cores", "expected"), [(2, 1), (3, 2), (64, 2)])
def test_there_is_a_process_for_each_core_and_none_outlives_the_warm_up(
    begun: list, monkeypatch: pytest.MonkeyPatch, cores: int, expected: int
) -> None:
    monkeypatch.setattr(compiling, "cpu_threads", lambda: cores)
    work = compile_beside(faces_only=False)
    next(work)
    assert [part for part, _ in begun] == ["compile_tables", "compile_basins"][:expected]
    assert all(process.poll() is None for _, process in begun)
    work.close()
    assert all(process.poll() is not None for _, process in begun)


def test_this_process_does_the_rest_and_waits_for_the_others(
    begun: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(compiling, "cpu_threads", lambda: 2)
    monkeypatch.setattr(compiling, "compile_void", lambda: done.append("void"))
    for name in ("basins", "tables"):
        part = lambda faces_only, name=name: done.append((name, faces_only))  # noqa: E731
        part.__name__ = f"compile_{name}"
        monkeypatch.setattr(compiling, f"compile_{name}", part)
    work = compile_beside(faces_only=True)
    for _ in range(4):
        next(work)
    assert done == ["void", ("basins", True)]
    begun[0][1].kill()
    begun[0][1].wait()
    assert list(work) == []


def test_no_process_begins_where_kernels_are_there_or_there_is_one_core(
    begun: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "cpu_threads", lambda: 1)
    assert list(compile_beside(faces_only=False)) == []
    monkeypatch.setattr(compiling, "cpu_threads", lambda: 2)
    monkeypatch.setattr(compiling, "is_on_disk", lambda kernel: True)
    assert list(compile_beside(faces_only=False)) == []
    assert not begun
