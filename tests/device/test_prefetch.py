from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from hushpore.device import prefetch
from hushpore.device.prefetch import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_reading() -> bool:
    return any(thread.name == "hushpore reads ahead" for thread in threading.enumerate())


def test_pieces_come_in_order_and_each_once() -> None:
    with ReadAhead(lambda key: key * 2, range(100), most=3) as pieces:
        assert list(pieces) == [key * 2 for key in range(100)]
    assert not is_reading()


def test_the_next_pieces_are_read_while_one_is_worked_on() -> None:
    read = threading.Event()

    def reader(key: int) -> int:
        if key == 1:
            read.set()
        return key

    with ReadAhead(reader, range(3)) as pieces:
        assert next(pieces) == 0
        assert read.wait(60), "piece 1 is read although nobody has asked for it"


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_pieces_wait_than_allowed(most: int) -> None:
    alive, worst = 0, 0
    lock = threading.Lock()

    def reader(key: int) -> int:
        nonlocal alive, worst
        time.sleep(random.Random(key).random() / 500)
        with lock:
            alive += 1
            worst = max(worst, alive)
        return key

    with ReadAhead(reader, range(60), most=most) as pieces:
        for key in pieces:
            with lock:
                alive -= 1
            time.sleep(0.001 if key % 7 else 0.01)
    # those that wait, and one that is read but has no place yet
    assert worst <= most + 1


def test_a_slow_reader_is_given_more_pieces_ahead_than_a_quick_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # each thread has its own clock, which only what it does moves on
    clocks: defaultdict[int, float] = defaultdict(lambda: 1.0)

    def spend(seconds: float) -> None:
        clocks[threading.get_ident()] += seconds

    def depth(reading: float, working: float) -> int:
        with ReadAhead(lambda _: spend(reading), range(12), most=6) as pieces:
            for _ in pieces:
                spend(working)
            return pieces.depth

    clock = SimpleNamespace(perf_counter=lambda: clocks[threading.get_ident()])
    monkeypatch.setattr(prefetch, "time", clock)
    assert depth(0.001, 0.01) == 1
    assert depth(0.02, 0.01) == 3
    assert depth(0.01, 0.001) == 6


def test_what_reading_raises_comes_after_the_pieces_before_it() -> None:
    def reader(key: int) -> int:
        if key == 3:
            raise OSError("the disk is gone")
        return key

    seen: list[int] = []
    with ReadAhead(reader, range(9)) as pieces, pytest.raises(OSError, match="disk is gone"):
        seen.extend(pieces)
    assert seen == [0, 1, 2]
    assert not is_reading()


def test_keys_that_raise_are_said_too() -> None:
    def keys() -> Iterator[int]:
        yield 0
        raise ValueError("no more keys")

    with ReadAhead(lambda key: key, keys()) as pieces, pytest.raises(ValueError, match="no more"):
        list(pieces)


def test_after_closing_nothing_is_read_and_nothing_comes() -> None:
    read: list[int] = []
    pieces = ReadAhead(lambda key: read.append(key) or key, range(1000), most=2)
    assert next(pieces) == 0
    pieces.close()
    count = len(read)
    assert list(pieces) == []
    assert len(read) == count < 10
    assert not is_reading()
    pieces.close()


def test_nothing_to_read_is_an_empty_iteration() -> None:
    with ReadAhead(lambda key: key, []) as pieces:
        assert list(pieces) == []


def test_room_for_no_piece_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="At least one piece"):
        ReadAhead(lambda key: key, [], most=0)


def test_a_thousand_random_ends_leave_no_thread_and_lose_no_piece() -> None:
    draw = random.Random(0)
    for _ in range(1000):
        count, most = draw.randrange(12), draw.randrange(1, 5)
        fails, stops = draw.randrange(16), draw.randrange(16)

        def reader(key: int, fails: int = fails) -> int:
            if key == fails:
                raise RuntimeError("died")
            return key

        seen: list[int] = []
        try:
            with ReadAhead(reader, range(count), most) as pieces:
                for key in pieces:
                    seen.append(key)
                    if key == stops:
                        break
        except RuntimeError:
            assert fails < count
        assert seen == list(range(min(count, fails, stops + 1)))
    assert not is_reading()


def test_a_cancel_from_another_thread_ends_whoever_waits_for_a_piece() -> None:
    for trial in range(20):
        asked = threading.Event()

        def reader(key: int, asked: threading.Event = asked) -> int:
            if key == 2:
                asked.set()
                time.sleep(0.01)
            return key

        pieces = ReadAhead(reader, range(9), most=1 + trial % 3)

        def cancel(ahead: ReadAhead[int] = pieces, asked: threading.Event = asked) -> None:
            asked.wait(60)
            ahead.close()

        other = threading.Thread(target=cancel)
        other.start()
        seen = list(pieces)
        other.join(60)
        assert not other.is_alive()
        assert seen == list(range(len(seen)))
    assert not is_reading()
