from __future__ import annotations

import gc
import shutil
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore.base.errors import MemoryLimitError
from hushpore.pores.slabs import Scratch, Slabs, Stack, check_disk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, empty."""
    monkeypatch.setenv("HUSHPORE_TEMPORARY_FOLDER", str(tmp_path))
    return tmp_path


def test_slabs_cover_a_stack_in_order() -> None:
    assert list(Slabs(10, 4)) == [(0, 4), (4, 8), (8, 10)]
    assert list(Slabs(3, 3)) == [(0, 3)]
    assert len(Slabs(7, 1)) == 7


def test_slabs_beyond_the_last_are_refused() -> None:
    with pytest.raises(IndexError, match="3 slabs, numbered from 0; got 3"):
        Slabs(10, 4)[3]


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_stack_gives_back_what_was_written(folder: Path, on_disk: bool) -> None:
    values = np.arange(5 * 3 * 4, dtype=np.int32).reshape(5, 3, 4)
    scratch = Scratch(on_disk)
    stack = scratch.stack("labels", values.shape, np.int32)
    for first in (3, 0):
        room = stack.room(first, min(first + 3, 5))
        room[...] = values[first : first + 3]
        stack.write(first, room)
    np.testing.assert_array_equal(stack.read(1, 4), values[1:4])
    # beyond the ends there is nothing
    np.testing.assert_array_equal(stack.read(-2, 2), values[:2])
    np.testing.assert_array_equal(stack.read(4, 9), values[4:])
    assert stack.read(-3, -1).shape == (0, 3, 4)
    assert stack.read(7, 9).shape == (0, 3, 4)
    np.testing.assert_array_equal(stack.array(), values)
    assert len(list(folder.iterdir())) == on_disk


def test_slabs_in_memory_are_views() -> None:
    stack = Scratch(on_disk=False).stack("phase", (4, 2, 2), np.uint8)
    stack.room(1, 3)[...] = 7
    assert np.shares_memory(stack.read(0, 4), stack.array())
    assert (stack.read(1, 3) == 7).all()


def test_closing_removes_all_files_but_those_that_last(folder: Path) -> None:
    scratch = Scratch(on_disk=True)
    stacks = [scratch.stack(name, (2, 2, 2), np.uint8) for name in ("phase", "labels")]
    kept = stacks[1]
    kept.write(0, np.ones((2, 2, 2), np.uint8))
    scratch.close()
    assert [path.name for path in folder.glob("*/*.raw")] == ["labels.raw"]
    assert kept.array().sum() == 8
    with pytest.raises(ValueError, match="closed"):
        stacks[0].read(0, 1)


def test_a_file_lives_as_long_as_any_view_of_its_array(folder: Path) -> None:
    scratch = Scratch(on_disk=True)
    stack = scratch.stack("labels", (3, 4, 5), np.int32)
    stack.write(0, np.arange(60, dtype=np.int32).reshape(3, 4, 5))
    view = np.asarray(stack.array().reshape(-1)[20:40])
    del stack
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(20, 40))
    assert len(list(folder.iterdir())) == 1
    del view
    gc.collect()
    assert not list(folder.iterdir())


def test_a_stack_that_is_lost_takes_its_file_along(folder: Path) -> None:
    scratch = Scratch(on_disk=True)
    scratch.stack("basins", (3, 4, 5), np.int32)
    gc.collect()
    assert not list(folder.iterdir())


def test_a_disk_without_room_is_refused_with_both_figures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(folder)._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    check_disk(10**9)
    needed = r"needs 3\.0 GB .* 1\.0 GB are free.*temporary-folder"
    with pytest.raises(MemoryLimitError, match=needed):
        check_disk(3 * 10**9)


def test_a_file_that_cannot_be_written_says_where(folder: Path) -> None:
    stack = Scratch(on_disk=True).stack("phase", (2, 2, 2), np.uint8)
    shutil.rmtree(next(folder.iterdir()))
    with pytest.raises(MemoryLimitError, match=f"cannot be written in {folder}"):
        stack.write(0, np.zeros((2, 2, 2), np.uint8))


def test_an_array_can_stand_for_a_stack() -> None:
    values = np.zeros((2, 3, 4), np.float32)
    stack = Stack.of(values)
    assert stack.array() is values
    assert (stack.shape, len(stack), stack.nbytes) == ((2, 3, 4), 2, 96)


def test_slices_are_waited_for_until_they_have_arrived() -> None:
    stack = Scratch(on_disk=False).stack("basins", (10, 2, 3), np.int32)
    copies: dict[int, Future[object]] = {slab: Future() for slab in range(3)}
    room = stack.array()
    stack.arrive(Slabs(10, 4), copies)
    room[4:8] = 5
    copies[1].set_result(None)
    assert (stack.read(5, 8) == 5).all()
    copies[0].set_exception(RuntimeError("lost"))
    with pytest.raises(RuntimeError, match="lost"):
        stack.read(3, 5)
    with pytest.raises(RuntimeError, match="lost"):
        stack.array()
