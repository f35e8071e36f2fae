"""Switches: what the user says of each optimisation, and what a job decided."""

from __future__ import annotations

import dataclasses

import pytest

from hushpore.base.errors import InputError
from hushpore.base.preferences import SWITCHES
from hushpore.device.switches import Choices, Switches


def test_every_switch_is_at_auto_unless_told_otherwise() -> None:
    assert set(dataclasses.asdict(Switches()).values()) == {"auto"}
    assert Switches.parse("") == Switches()


def test_there_are_as_many_as_preferences_name() -> None:
    assert tuple(field.name for field in dataclasses.fields(Switches)) == SWITCHES


def test_switches_are_read_from_one_line() -> None:
    assert Switches.parse(" graphs = off,pinned=on ,") == Switches(graphs="off", pinned="on")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=on", "The switch 'speed' does not exist. Give NAME=auto, on or off, .* pinned, "),
        ("graphs=fast", "The switch graphs must be auto, on or off; got 'fast'"),
        ("graphs", "got ''"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_could(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Switches.parse(text)


def test_what_is_never_come_to_says_why() -> None:
    without = Choices(Switches(), without="no CUDA device").lines()
    assert without.pop("read_ahead") == "off, not needed"
    assert set(without.values()) == {"off, no CUDA device"}
    assert set(without) == {field.name for field in dataclasses.fields(Switches)} - {"read_ahead"}
    assert Choices(Switches()).lines()["stream"] == "off, not needed"


def test_what_was_decided_replaces_that() -> None:
    choices = Choices(Switches(pinned="on"))
    assert choices.asked("pinned") is True
    assert choices.asked("graphs") is None
    assert choices.record("pinned", True, "as requested")
    assert not choices.record("graphs of tiles", False, "no win")
    assert not choices.record("graphs of steps", False, "no win")
    lines = choices.lines()
    assert lines["pinned"] == "on, as requested"
    assert lines["graphs of tiles"] == "off, no win"
    assert "graphs" not in lines


def test_before_a_job_each_switch_says_what_it_will_do() -> None:
    lines = Choices(Switches(graphs="off", pinned="on")).outlook()
    assert [line.partition(":")[0] for line in lines] == [
        field.name for field in dataclasses.fields(Switches)
    ]
    assert lines[0] == "pinned: on, as requested"
    assert lines[1] == "stream: on, if uploads take at least a tenth of the time"
    assert lines[2] == "graphs: off, as requested"


def test_switches_without_use_are_told_in_one_line() -> None:
    lines = Choices(Switches(read_ahead="off"), without="no CUDA device").outlook()
    assert lines[0] == "read_ahead: off, as requested"
    assert lines[1].startswith("pinned, stream, ")
    assert lines[1].endswith(": no effect, no CUDA device")
    assert len(lines) == 2
