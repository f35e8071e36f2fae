from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hushpore.base.errors import InputError
from hushpore.n2v2.settings import DenoiseSettings
from hushpore.n2v2.training.schedule import PARTS, Schedule, pack, unpack

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
    with pytest.raises(InputError, match=r"is not"):
        Schedule.of(DenoiseSettings(repeat=str(tmp_path / "a.json")))


def test_a_record_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json cannot be read"):
        Schedule.of(DenoiseSettings(repeat=str(tmp_path / "none.json")))
