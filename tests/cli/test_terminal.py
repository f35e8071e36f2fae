from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore import Volume
from hushpore.base.events import Job, Note, Progress, StageTime, StopEarly, Timing
from hushpore.cli.terminal import Measured, drive

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def slowly() -> Volume:
    time.sleep(0.05)
    return Volume(np.zeros((1, 1000, 1000), np.uint8))


def test_slow_reading_is_named_as_what_takes_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measured(timings=True, trace=None, overwrite=False)
    assert measured.read(slowly).shape == (1, 1000, 1000)
    measured.listen("Segment pores", Timing({"basins": StageTime(1, 0.01, 0.01)}, 0.01))
    measured.listen("Other", Timing({"training": StageTime(1, 0.01, 0.01)}, 0.01))
    measured.show()
    pores, other = capsys.readouterr().err.split("Other")
    assert "reading files" in pores
    assert "Reading takes" in pores
    assert "GB/s" in pores
    assert "reading" not in other
