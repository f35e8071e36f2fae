"""What a segmentation shows while it runs: the slice that is looked at, from the newest pass."""

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from hushpore import Volume
from hushpore.base.events import Attention, Preview, Progress
from hushpore.pores.pipeline import Stages
from hushpore.pores.slabs import Stack

DEPTH = 8


def stack(value: int) -> Stack:
    """Return a stack whose slices are still to be written."""
    return Stack.of(np.full((DEPTH, 2, 2), -value, np.int32))


def write(target: Stack, value: int, thickness: int = 2) -> Iterator[float]:
    """Write a value into all slices, a slab at a time."""
    for first in range(0, DEPTH, thickness):
        target.array()[first : first + thickness] = value
        yield (first + thickness) / DEPTH


def drive(job: Generator[Any, Any, Any], looked_at: dict[int, int]) -> list[Any]:
    """Drive a job to its end; from the event of a number on another slice is looked at."""
    events = [next(job)]
    at = None
    try:
        while True:
            at = looked_at.get(len(events), at)
            turns = isinstance(events[-1], Progress) and at is not None
            answer = Attention((at,)) if turns else None
            events.append(job.send(answer))
    except StopIteration:
        return events


def shown(events: list[Any]) -> list[tuple[int, int]]:
    """Return slice and value of every preview."""
    return [(e.index[0], int(e.image[0, 0])) for e in events if isinstance(e, Preview)]


def two_passes(stages: Stages) -> Generator[Any, Any, None]:
    basins, labels = stack(1), stack(2)
    yield from stages.run("measuring", write(basins, 1), 0.5, basins)
    yield from stages.run("labels", write(labels, 2), 1.0, labels)


def test_a_slice_is_shown_as_soon_as_its_slab_is_done_and_once_a_pass() -> None:
    events = drive(two_passes(Stages(Volume(np.zeros((DEPTH, 2, 2))))), {})
    assert shown(events) == [(3, 1), (3, 2)]
    done = [e.done for e in events[: events.index(next(filter(_is_preview, events)))]]
    assert done == [2, 4]


def test_a_slice_that_a_pass_has_not_come_to_is_shown_as_the_pass_before_left_it() -> None:
    stages = Stages(Volume(np.zeros((DEPTH, 2, 2))))
    # the last slice is turned to when the labels of the first ones are written
    events = drive(two_passes(stages), {6: 7})
    assert shown(events) == [(3, 1), (7, 1), (7, 2)]


def test_nothing_is_shown_before_there_is_something() -> None:
    stages = Stages(Volume(np.zeros((DEPTH, 2, 2))))
    assert shown(drive(stages.run("void", write(stack(3), 3), 0.2), {1: 5})) == []


def test_who_turns_to_another_slice_in_a_pass_that_shows_nothing_sees_it_too() -> None:
    stages = Stages(Volume(np.zeros((DEPTH, 2, 2))))

    def passes() -> Generator[Any, Any, None]:
        basins = stack(1)
        yield from stages.run("measuring", write(basins, 1), 0.5, basins)
        yield from stages.run("peaks", write(stack(2), 2), 1.0)

    assert shown(drive(passes(), {7: 0})) == [(3, 1), (0, 1)]


def _is_preview(event: object) -> bool:
    return isinstance(event, Preview)
