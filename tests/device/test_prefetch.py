from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hushpore.device.prefetch import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Iterator


def is_reading() -> bool:
    return any(thread.name == "hushpore reads ahead" for thread in threading.enumerate())


def test_pieces_come_in_order_and_each_once() -> None:
    with ReadAhead(lambda key: key * 2, range(100)) as pieces:
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


def test_one_piece_waits_at_most() -> None:
    alive, worst = 0, 0
    lock = threading.Lock()

    def reader(key: int) -> int:
        nonlocal alive, worst
        time.sleep(random.Random(key).random() / 500)
        with lock:
            alive += 1
            worst = max(worst, alive)
        return key

    with ReadAhead(reader, range(60)) as pieces:
        for key in pieces:
            with lock:
                alive -= 1
            time.sleep(0.001 if key % 7 else 0.01)
    # that, and the one that was taken just now
    assert worst <= 2


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
    pieces = ReadAhead(lambda key: read.append(key) or key, range(1000))
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


def test_a_thousand_random_ends_leave_no_thread_and_lose_no_piece() -> None:
    draw = random.Random(0)
    for _ in range(1000):
        count = draw.randrange(12)
        fails, stops = draw.randrange(16), draw.randrange(16)

        def reader(key: int, fails: int = fails) -> int:
            if key == fails:
                raise RuntimeError("died")
            return key

        seen: list[int] = []
        try:
            with ReadAhead(reader, range(count)) as pieces:
                for key in pieces:
                    seen.append(key)
                    if key == stops:
                        break
        except RuntimeError:
            assert fails < count
        assert seen == list(range(min(count, fails, stops + 1)))
    assert not is_reading()


def test_a_cancel_from_another_thread_ends_whoever_waits_for_a_piece() -> None:
    for _ in range(20):
        asked = threading.Event()

        def reader(key: int, asked: threading.Event = asked) -> int:
            if key == 2:
                asked.set()
                time.sleep(0.01)
            return key

        pieces = ReadAhead(reader, range(9))

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
