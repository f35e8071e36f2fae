"""Driving a job: its events, answers to it, its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hushpore.base.events import (
    Attention,
    Driver,
    Note,
    Progress,
    Remedy,
    StopEarly,
    by_importance,
    mapped,
    part_of,
    result_of,
)

if TYPE_CHECKING:
    from collections.abc import Generator


class Toy:
    """A job of three steps that keeps what it was told, and whether it was closed."""

    def __init__(self, keeps: bool = True) -> None:
        self.told: list[Any] = []
        self.keeps, self.is_closed = keeps, False

    def job(self) -> Generator[Progress, Any, str]:
        done = "all"
        try:
            for step in range(3):
                try:
                    self.told.append((yield Progress("working", step, 3, "steps", step / 3)))
                except StopEarly:
                    if not self.keeps:
                        raise
                    done = f"{step + 1} of 3"
                    break
        finally:
            self.is_closed = True
        return done


def test_what_is_called_with_an_event_returns_the_answer() -> None:
    toy, seen = Toy(), []

    def answer(event: Progress) -> Attention | None:
        seen.append(event.done)
        return Attention((event.done,)) if event.done else None

    assert result_of(toy.job(), answer) == "all"
    assert seen == [0, 1, 2]
    assert toy.told == [None, Attention((1,)), Attention((2,))]


def test_an_answer_is_sent_once() -> None:
    toy = Toy()
    with Driver(toy.job()) as driver:
        for event in driver:
            if not event.done:
                driver.answer = Attention((7,))
    assert driver.result == "all"
    assert toy.told == [Attention((7,)), None, None]


@pytest.mark.parametrize("around", [lambda job: job, lambda job: mapped(job, lambda event: event)])
def test_a_stop_that_is_answered_ends_a_job_with_what_it_has(around: Any) -> None:
    stop = {1: StopEarly()}
    assert result_of(around(Toy().job()), lambda event: stop.get(event.done)) == "2 of 3"
    toy = Toy(keeps=False)
    with pytest.raises(StopEarly):
        result_of(around(toy.job()), lambda event: stop.get(event.done))
    assert toy.is_closed


def test_a_job_is_closed_when_its_loop_is_left() -> None:
    toy = Toy()
    with Driver(toy.job()) as driver:
        next(driver)
    assert toy.is_closed

    def refuse(event: Progress) -> None:
        raise ValueError(event.done)

    toy = Toy()
    with pytest.raises(ValueError, match="0"):
        result_of(toy.job(), refuse)
    assert toy.is_closed
    toy = Toy()
    outer = mapped(toy.job(), lambda event: event)
    next(outer)
    outer.close()
    assert toy.is_closed


def test_mapped_passes_answers_on_and_changes_events() -> None:
    toy = Toy()
    job = mapped(toy.job(), lambda event: event.done)
    assert result_of(job, lambda done: Attention((done + 5,))) == "all"
    assert toy.told == [Attention((5,)), Attention((6,)), Attention((7,))]


def test_a_part_takes_its_share_of_the_whole() -> None:
    def job() -> Generator[Any, None, None]:
        yield Note("begun")
        yield Progress("working", 1, 2, "steps", 0.5)
        yield 0.25

    events: list[Any] = []
    result_of(part_of(job(), 0.2, 0.6), events.append)
    assert events[0] == Note("begun")
    assert events[1].fraction == pytest.approx(0.4)
    assert events[2] == pytest.approx(0.3)


def test_remarks_are_ordered_by_importance_without_duplicates() -> None:
    notes = [
        Note("Computed in 4 slabs."),
        Note("The noise is correlated.", True, "scan"),
        Note("Air was excluded.", subject="result"),
        Note("The GPU's memory ran out.", True),
        Note("Some pores may be noise.", True, "result"),
        Note("Computed in 4 slabs."),
    ]
    assert [note.message for note in by_importance(notes)] == [
        "Some pores may be noise.",
        "The noise is correlated.",
        "The GPU's memory ran out.",
        "Air was excluded.",
        "Computed in 4 slabs.",
    ]


def test_a_note_survives_its_record_and_names_flags() -> None:
    remedy = Remedy("Exclude them", {"minimum_voxels": 8, "thickness": False, "intervals": True})
    note = Note("3 pores are small.", True, "result", remedy)
    assert Note.of_dict(json.loads(json.dumps(note.to_dict()))) == note
    flags = "--minimum-voxels 8 --no-thickness --intervals"
    assert note.with_flags == f"3 pores are small. Exclude them: {flags}"
    plain = Note("Done.")
    assert (Note.of_dict(plain.to_dict()), plain.with_flags) == (plain, "Done.")
