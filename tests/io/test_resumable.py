import os
import re
import subprocess
import sys

import pytest

from hushpore.base.atomic import partial_path
from hushpore.base.errors import DeviceError, InputError, OutputError
from hushpore.io.output_target import resumable_directory


def fill(target, key, name, error=None):
    with resumable_directory(target, key, overwrite=False) as work:
        before = sorted(file.name for file in work.content.iterdir())
        (work.content / name).write_text("x")
        (work.scratch / name).write_text("x")
        assert not target.exists()
        if error is not None:
            raise error
    return before, work.resumed


def test_a_whole_result_has_its_name_and_nothing_else_is_left(tmp_path):
    assert fill(tmp_path / "a", {}, "one") == ([], False)
    assert [item.name for item in tmp_path.iterdir()] == ["a"]
    assert [item.name for item in (tmp_path / "a").iterdir()] == ["one"]


def test_where_the_machines_are_gone_the_same_work_goes_on_from_what_is_there(tmp_path):
    with pytest.raises(DeviceError):
        fill(tmp_path / "a", {"h": (1, 2)}, "one", DeviceError("gone"))
    assert not (tmp_path / "a").exists()
    assert fill(tmp_path / "a", {"h": (1, 2)}, "two") == (["one"], True)
    assert sorted(item.name for item in (tmp_path / "a").iterdir()) == ["one", "two"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_nobody_else_can_write_where_work_goes_on(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(DeviceError):
        fill(tmp_path / "a", {"h": 1}, "one", DeviceError("gone"))
    with resumable_directory(tmp_path / "a", {"h": 1}, overwrite=False) as work:
        assert work.content.parent.stat().st_mode & 0o077 == 0
        expected = work.content.stat().st_mode
    assert (tmp_path / "a").stat().st_mode == expected


def test_a_result_that_was_moved_away_is_not_gone_on_with(tmp_path):
    # killed just after it got its name: its place here is empty
    with pytest.raises(DeviceError):
        fill(tmp_path / "a", {"h": 1}, "one", DeviceError("gone"))
    (work,) = tmp_path.iterdir()
    (work / "content" / "one").unlink()
    (work / "content").rmdir()
    assert fill(tmp_path / "a", {"h": 1}, "two") == ([], False)


def test_other_work_begins_anew(tmp_path):
    with pytest.raises(DeviceError):
        fill(tmp_path / "a", {"h": 1}, "one", DeviceError("gone"))
    assert fill(tmp_path / "a", {"h": 2}, "two") == ([], False)


@pytest.mark.parametrize("error", [InputError("bad"), KeyboardInterrupt(), OSError(28, "full")])
def test_an_error_or_a_cancel_leaves_nothing_behind(tmp_path, error):
    with pytest.raises((type(error), OutputError)):
        fill(tmp_path / "a", {}, "one", error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit for files")
def test_a_disk_that_is_full_at_once_leaves_nothing_behind(tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        with pytest.raises(OutputError, match="Cannot write"):
            fill(tmp_path / "a", {}, "one")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_what_was_killed_is_gone_on_with(tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path; sys.path.insert(0, 'tests');"
        "from hushpore.io.output_target import resumable_directory\n"
        f"with resumable_directory(Path({str(tmp_path / 'a')!r}), {{'h': 1}}, False) as work:\n"
        "    (work.content / 'one').write_text('x')\n"
        "    os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert fill(tmp_path / "a", {"h": 1}, "two") == (["one"], True)


def test_two_at_once_are_kept_apart(tmp_path):
    first = resumable_directory(tmp_path / "a", {}, overwrite=False)
    with first, pytest.raises(OutputError, match="another process"):
        fill(tmp_path / "a", {}, "one")
    assert [item.name for item in tmp_path.iterdir()] == ["a"]


def test_work_on_another_computer_counts_as_running(tmp_path, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.node", lambda: "another computer")
        work = partial_path(tmp_path / "a", ".unfinished")
    work.mkdir()
    with pytest.raises(OutputError, match=f"another process.*delete {re.escape(str(work))}"):
        fill(tmp_path / "a", {}, "one")
    assert list(tmp_path.iterdir()) == [work]


def test_what_a_killed_writer_has_left_does_not_get_into_the_result(tmp_path):
    with resumable_directory(tmp_path / "a", {}, overwrite=False) as work:
        (work.content / "c").mkdir()
        (work.content / "c" / "0.4711.partial").write_text("x")
        (work.content / "c" / "0").write_text("x")
    assert [item.name for item in (tmp_path / "a" / "c").iterdir()] == ["0"]


@pytest.mark.parametrize("kind", ["a link", "another user's", "of another name"])
def test_a_folder_that_is_not_ours_is_neither_emptied_nor_used(tmp_path, monkeypatch, kind):
    with pytest.raises(DeviceError):
        fill(tmp_path / "a", {}, "one", DeviceError("gone"))
    (work,) = tmp_path.iterdir()
    others = work if kind == "another user's" else work.rename(tmp_path / ".a.notes.unfinished")
    if kind == "a link":
        work.symlink_to(others)
    if kind == "another user's":
        monkeypatch.setattr("os.geteuid", lambda: os.stat(work).st_uid + 1)
    assert fill(tmp_path / "a", {}, "two") == ([], False)
    assert [item.name for item in (others / "content").iterdir()] == ["one"]
    assert work.is_symlink() or kind != "a link"
    assert [item.name for item in (tmp_path / "a").iterdir()] == ["two"]


def test_a_folder_of_other_things_that_was_given_such_a_name_stays(tmp_path):
    others = partial_path(tmp_path / "a", ".unfinished", owned=False)
    others.mkdir()
    (others / "thesis.txt").write_text("years of work")
    assert fill(tmp_path / "a", {}, "one") == ([], False)
    assert (others / "thesis.txt").read_text() == "years of work"


def test_long_names_with_a_common_beginning_are_made_at_once(tmp_path):
    with resumable_directory(tmp_path / f"{'a' * 60}b", {}, overwrite=False):
        fill(tmp_path / f"{'a' * 60}c", {}, "one")
    assert sorted(item.name[-1] for item in tmp_path.iterdir()) == ["b", "c"]
