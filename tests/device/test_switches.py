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
    assert without == dict.fromkeys(SWITCHES, "off, no CUDA device")
    assert Choices(Switches()).lines()["graphs"] == "off, not needed"


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
    lines = Choices(Switches(graphs="off")).outlook()
    assert lines == ["pinned: on, for arrays of 64 MB and more", "graphs: off, as requested"]
    lines = Choices(Switches(), without="no CUDA device").outlook()
    assert lines == ["pinned, graphs: no effect, no CUDA device"]
