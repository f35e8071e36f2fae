from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hushpore.base.errors import InputError
from hushpore.denoising.settings import STEPS, DenoiseSettings
from hushpore.denoising.training.schedule import (
    COOL_DOWN,
    PARTS,
    Schedule,
    learning_rate,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_without_a_budget_the_steps_alone_decide() -> None:
    schedule = Schedule.of(DenoiseSettings(steps=3))
    assert [schedule.fraction_done(step, 1e9) for step in range(4)] == [0, 1 / 3, 2 / 3, 1]
    assert schedule.record([0, 333_333, 666_667]) is None


def test_with_a_budget_whichever_is_further_decides() -> None:
    schedule = Schedule.of(DenoiseSettings(steps=10, time_budget=100))
    assert schedule.fraction_done(5, 10) == 0.5
    assert schedule.fraction_done(5, 70) == 0.7
    assert schedule.fraction_done(6, 99.99999) == 1.0


def test_a_time_limit_alone_is_used_to_its_end() -> None:
    schedule = Schedule.of(DenoiseSettings(time_budget=100))
    assert schedule.fraction_done(1_000_000, 99) < 1
    assert schedule.fraction_done(10, 100) == 1
    assert schedule.ending(10) == "time limit reached"


def test_with_neither_the_curve_ends_it_and_the_rate_still_comes_down() -> None:
    schedule = Schedule.of(DenoiseSettings())
    flat = [(step, 1.0) for step in range(25, 401, 25)]
    ended = schedule.given(flat, noise=None)
    assert ended.plateau is not None
    # whatever it was for, the clock has no part in it
    rates = [
        learning_rate(ended.fraction_done(step, 1e9 * step), 1.0)
        for step in range(ended.most_steps + 1)
    ]
    assert rates[150 : ended.plateau] == [1.0] * (ended.plateau - 150)
    assert ended.most_steps == pytest.approx(ended.plateau / (1 - COOL_DOWN), abs=1)
    assert rates[-1] == 0
    assert rates[ended.plateau :] == sorted(rates[ended.plateau :], reverse=True)
    assert ended.ending(ended.most_steps) == "no further improvement"
    # before it was known, the rates were the same
    assert rates[: ended.plateau] == [
        learning_rate(schedule.fraction_done(step, 0), 1.0) for step in range(ended.plateau)
    ]


def test_a_curve_that_goes_on_falling_ends_with_the_most_steps() -> None:
    schedule = Schedule.of(DenoiseSettings())
    steep = [(step, 100.0 / step) for step in range(25, STEPS + 1, 25)]
    schedule = schedule.given(steep, noise=None)
    assert schedule.fraction_done(STEPS - 1, 0) < 1
    assert schedule.fraction_done(STEPS, 0) == 1
    assert schedule.ending(STEPS) == "maximum number of steps"


def test_a_course_that_time_has_cut_is_taken_again(tmp_path: Path) -> None:
    first = Schedule.of(DenoiseSettings(steps=1000, time_budget=7))
    spent = [0, 1.1, 2.5, 3.0, 6.9]
    taken = [first.fraction_done(step, seconds) for step, seconds in enumerate(spent)]
    kept = first.record([round(PARTS * share) for share in taken])
    record = {"jobs": [{"job": "denoise", "training": kept}, {"job": "pores"}]}
    (tmp_path / "result.json").write_text(json.dumps(record))
    path = str(tmp_path / "result.json")
    again = Schedule.of(DenoiseSettings(steps=1000, time_budget=2, repeat=path))
    assert [again.fraction_done(step, 50.0 * step) for step in range(5)] == taken
    assert again.fraction_done(5, 0) == 1.0
    assert again.record([round(PARTS * share) for share in taken]) == kept


def test_a_training_that_was_stopped_keeps_only_how_far_it_went(tmp_path: Path) -> None:
    kept = Schedule(1000).record([0, 1000, 2000])
    assert kept == {"steps": 3, "shares": ""}
    (tmp_path / "a.json").write_text(json.dumps({"job": "denoise", "training": kept}))
    again = Schedule.of(DenoiseSettings(steps=1000, repeat=str(tmp_path / "a.json")))
    assert [again.fraction_done(step, 9) for step in range(4)] == [0, 0.001, 0.002, 1.0]


def test_numbers_are_packed_small_and_come_back() -> None:
    values = list(range(0, PARTS, 997))
    text = pack(values)
    assert len(text) < len(values) / 10
    assert list(unpack(text)) == values
    assert unpack(pack([])) == ()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"job": "pores"}', '{"job": "denoise", "training": {"steps": 2, "shares": "x"}}',
     '{"job": "denoise", "training": {"steps": 3, "shares": "eJxjYGBgAAAABAAB"}}'],
)  # fmt: skip
def test_what_holds_no_course_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=r"is not|is incomplete"):
        Schedule.of(DenoiseSettings(repeat=str(tmp_path / "a.json")))


def test_a_record_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json cannot be read"):
        Schedule.of(DenoiseSettings(repeat=str(tmp_path / "none.json")))
