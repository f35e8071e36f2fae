from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from hushpore.base.errors import InputError
from hushpore.base.events import Job, Note, Progress, Remedy, StageTime, StopEarly, Timing
from hushpore.cli.commands import hushpore
from hushpore.cli.flags import in_flags
from hushpore.cli.job_commands import job_command
from hushpore.cli.terminal import TimingRecorder, drive, echo_result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """Handle Ctrl+C as Python does: what is started in the background begins with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_job(log: list[str], times: int = 1, can_end_early: bool = True) -> Job:
    """A job during which the user presses Ctrl+C."""
    try:
        for step in range(5):
            try:
                if step in (1, 2)[:times]:
                    signal.raise_signal(signal.SIGINT)
                yield Progress("training", step, 5, "steps", step / 5)
                log.append(f"step {step}")
            except StopEarly:
                if not can_end_early:
                    raise
                log.append("ending early")
                if times == 1:
                    return "so far"
        return "whole"
    finally:
        log.append("closed")


def test_a_job_is_driven_to_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    def job() -> Job:
        yield Progress("training", 1, 2, "steps", 0.5)
        yield Note("The GPU's memory ran out.", warning=True)
        return 42

    assert drive(job(), "Denoise") == 42
    assert "Warning: The GPU's memory ran out." in capsys.readouterr().err
    assert drive(job(), "Denoise", quiet=True) == 42
    assert capsys.readouterr().err == ""


def test_a_remark_on_the_result_is_printed_once_below_the_headline(
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_result = Note(
        "3 pores are small.", True, "result", Remedy("Exclude them", {"minimum_voxels": 8})
    )
    on_run = Note("Computed in 4 slabs.")

    def job() -> Job:
        yield on_result
        yield on_run
        return 42

    drive(job(), "Segment pores")
    echo_result("Porosity 3 %", [on_result, on_run])
    printed = capsys.readouterr()
    assert printed.out == (
        "Porosity 3 %\n  - 3 pores are small. Exclude them: --minimum-voxels 8\n"
    )
    assert "Computed in 4 slabs." in printed.err
    assert "small" not in printed.err


def test_the_first_interrupt_ends_early_with_what_there_is() -> None:
    log: list[str] = []
    assert drive(interrupted_job(log), "Denoise", quiet=True) == "so far"
    assert log == ["step 0", "ending early", "closed"]


def test_the_second_interrupt_cancels_and_closes_the_job() -> None:
    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        drive(interrupted_job(log, times=2), "Denoise", quiet=True)
    assert log == ["step 0", "ending early", "closed"]


def test_a_job_that_cannot_end_early_is_cancelled_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        drive(interrupted_job(log, can_end_early=False), "Segment pores")
    assert log == ["step 0", "closed"]
    assert "Ending early" not in capsys.readouterr().err


def test_the_handling_of_interrupts_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    drive(interrupted_job([]), "Denoise", quiet=True)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_job_can_be_driven_outside_the_main_thread() -> None:
    results: list[object] = []

    def job() -> Job:
        yield Progress("training", 1, 1, "steps", 1.0)
        return "done"

    thread = threading.Thread(target=lambda: results.append(drive(job(), "Denoise", quiet=True)))
    thread.start()
    thread.join()
    assert results == ["done"]


def job_with(timing: Timing) -> Job:
    yield timing


def test_slow_reading_is_named_as_what_takes_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = TimingRecorder(timings=True, trace=None, overwrite=False)
    reading = StageTime(1, 0.05, 0.05, nbytes=10**6, bytes_per_second=2e7)
    list(recorder.watch("reading", job_with(Timing({"reading files": reading}, 0.05))))
    list(recorder.watch("pores", job_with(Timing({"basins": StageTime(1, 0.01, 0.01)}, 0.01))))
    list(recorder.watch("Other", job_with(Timing({"training": StageTime(1, 0.01, 0.01)}, 0.01))))
    recorder.show()
    pores, other = capsys.readouterr().err.split("Other")
    assert "reading files" in pores
    assert "Limited by reading" in pores
    assert "GB/s" in pores
    assert "reading" not in other


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Choose one with volume.at(t=0).", "Choose one with --at t=0."),
        ("Choose one with volume.at(t=0, c=1).", "Choose one with --at t=0 --at c=1."),
        (
            "Choose another with series= (the others: a).",
            "Choose another with --series (the others: a).",
        ),
        ("Allow it with trust=True.", "Allow it with --trust."),
        ("Choose another name, or allow overwriting.", "Choose another name, or use --overwrite."),
        ("Resample the stack to interpolate it.", "Use --resample to interpolate it."),
        (
            "Use a local threshold (threshold='sauvola').",
            "Use a local threshold (--threshold sauvola).",
        ),
        ("Choose a smaller patch_size.", "Choose a smaller patch_size."),
    ],
)
def test_a_message_names_the_flags_of_its_command(message: str, expected: str) -> None:
    assert in_flags(message, job_command("pores", ["pores"])) == expected
    assert in_flags(message) == message


def test_a_note_names_the_flags_of_the_running_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(*_: object, **__: object) -> Job:
        yield Note("Two values only. To swap them, use pores_are='bright'.")
        raise InputError("x is a time series. Choose one image with volume.at(t=0).")

    monkeypatch.setattr("hushpore.runs.pipeline.start", noted)
    np.save(tmp_path / "a.npy", np.zeros((3, 4, 5), np.uint8))
    words = ["pores", str(tmp_path / "a.npy"), "-o", str(tmp_path / "out"), "--device", "cpu"]
    done = CliRunner().invoke(hushpore, words, prog_name="hushpore")
    assert done.exit_code == 1
    assert "To swap them, use --pores-are bright." in done.stderr
    assert done.stderr.endswith("Choose one image with --at t=0.\n")
