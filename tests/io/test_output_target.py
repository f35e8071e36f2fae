from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hushpore.base.atomic import abandoned_partials, new_file, partial_path
from hushpore.base.errors import DeviceError, InputError, OutputError
from hushpore.io.output_target import (
    check_target,
    new_directory,
    require_apart,
    resumable_directory,
)

IMAGES = (".tif", ".zarr")


def result(folder, files=("pores.csv",)):
    folder.mkdir()
    for name in files:
        (folder / name).write_text("x")
    quoted = ", ".join(f'"{name}"' for name in files)
    (folder / "result.json").write_text(f'{{"files": [{quoted}, "result.json"]}}')
    return folder


def test_a_new_name_in_an_existing_folder_is_a_place_for_a_result(tmp_path):
    assert check_target(tmp_path / "out") == tmp_path / "out"
    assert check_target(tmp_path / "out.tif", suffixes=IMAGES) == tmp_path / "out.tif"
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    check_target(tmp_path / "out")


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check_target("out") == tmp_path / "out"


@pytest.mark.parametrize(
    ("name", "directory", "words"),
    [
        ("none/out", True, "does not exist"),
        ("file.txt/out", True, "is a file, not a folder"),
        ("file.txt", True, "a file of this name exists"),
        ("folder.tif", False, "a folder of this name exists"),
        ("out.png", False, r"must end in \.tif"),
        ("old.tif", False, "already exists"),
        ("result", True, "already exists"),
        ("\0", True, "not a valid path"),
        (".", True, "current folder"),
    ],
)
def test_what_cannot_be_written_is_told_before_the_work(
    tmp_path, monkeypatch, name, directory, words
):
    (tmp_path / "file.txt").touch()
    (tmp_path / "old.tif").touch()
    (tmp_path / "folder.tif").mkdir()
    result(tmp_path / "result")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=words):
        check_target(tmp_path / name, suffixes=() if directory else IMAGES)


def test_a_folder_without_permission_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(OutputError, match="permission to write in"):
        check_target(tmp_path / "out")


def test_overwriting_replaces_a_result_but_never_anything_else(tmp_path):
    check_target(result(tmp_path / "result"), overwrite=True)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "wedding.jpg").touch()
    with pytest.raises(OutputError, match="not a result of hushpore"):
        check_target(tmp_path / "photos", overwrite=True)
    (tmp_path / "result" / "thesis.docx").touch()
    with pytest.raises(OutputError, match=r"thesis\.docx"):
        check_target(tmp_path / "result", overwrite=True)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": 3}', "\xff"])
def test_a_record_that_cannot_be_read_protects_the_folder(tmp_path, content):
    (tmp_path / "result").mkdir()
    (tmp_path / "result" / "result.json").write_text(content, encoding="latin-1")
    with pytest.raises(OutputError, match="not a result of hushpore"):
        check_target(tmp_path / "result", overwrite=True)


def test_a_directory_appears_only_when_it_is_complete(tmp_path):
    target = tmp_path / "out"
    with new_directory(target, False) as part:
        (part / "a").write_text("1")
        assert not target.exists()
        assert part.parent == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (target / "a").read_text() == "1"


def test_a_directory_has_the_usual_permissions(tmp_path):
    (tmp_path / "usual").mkdir()
    with new_directory(tmp_path / "out", False):
        pass
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode


def fill(place, name, then):
    """Write one file through `new_directory` or `new_file`, then do something else."""
    with place as part:
        (part / name if name else part).write_text("x")
        then()


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit, MemoryError])
def test_nothing_is_left_when_writing_stops(tmp_path, error):
    def stop():
        raise error

    with pytest.raises(error):
        fill(new_directory(tmp_path / "out", False), "half", stop)
    with pytest.raises(error):
        fill(new_file(tmp_path / "out.tif", False), "", stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"),
    [(28, "disk is full"), (13, "permission to write there is missing"), (30, "read-only")],
)
def test_a_full_disk_is_told_and_the_old_result_stays(tmp_path, number, words):
    target = result(tmp_path / "out")

    def stop():
        raise OSError(number, "in other words")

    with pytest.raises(OutputError, match=words):
        fill(new_directory(target, True), "half", stop)
    assert sorted(path.name for path in target.iterdir()) == ["pores.csv", "result.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_old_result_is_put_back_when_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    target = result(tmp_path / "out")
    rename = Path.rename

    def fail(self, other):
        if self.name.endswith(".part") and other == target and not (self / "pores.csv").exists():
            raise PermissionError(13, "in use")
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OutputError), new_directory(target, True) as part:
        (part / "new").write_text("x")
    assert (target / "pores.csv").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_result_that_appeared_meanwhile_is_not_replaced(tmp_path):
    target = check_target(tmp_path / "out")
    with pytest.raises(OutputError, match="already exists"):
        fill(new_directory(target, False), "mine", lambda: result(target))
    assert (target / "pores.csv").exists()


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    result(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    target = check_target(tmp_path / "link", overwrite=True)
    with new_directory(target, True) as part:
        (part / "new").write_text("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "new").exists()


@pytest.mark.parametrize(
    "files",
    [
        ["precious", "result.json"],
        ["thesis.txt", "result.json"],
        ["../notes.csv", "result.json"],
        "link.csv",
        ["link.csv", "result.json"],
    ],
)
def test_a_record_that_lists_other_things_gives_nobody_leave_to_remove_them(tmp_path, files):
    folder = tmp_path / "victim"
    (folder / "precious").mkdir(parents=True)
    (folder / "precious" / "thesis.txt").write_text("years of work")
    (folder / "thesis.txt").write_text("years of work")
    (folder / "link.csv").symlink_to(folder / "thesis.txt")
    (folder / "result.json").write_text(json.dumps({"files": files}))
    with pytest.raises(OutputError, match="was not replaced"):
        check_target(folder, overwrite=True)


def test_an_image_in_blocks_is_replaced_only_if_it_holds_nothing_else(tmp_path):
    folder = tmp_path / "scan.zarr"
    (folder / "0").mkdir(parents=True)
    (folder / "zarr.json").write_text('{"attributes": {"hushpore": {}}}')
    check_target(folder, overwrite=True, suffixes=IMAGES)
    (folder / "notes.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"notes\.txt"):
        check_target(folder, overwrite=True, suffixes=IMAGES)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("r/scan.tif", "is the input that is read"),
        ("r", "contains"),
        ("stack/r", "is inside the input"),
    ],
)
def test_what_is_read_is_never_written_to(tmp_path, place, words):
    for folder in ("r", "stack"):
        (tmp_path / folder).mkdir()
    (tmp_path / "r" / "scan.tif").touch()
    # by another name, too
    (tmp_path / "other").symlink_to(tmp_path)
    with pytest.raises(OutputError, match=words):
        require_apart(
            [tmp_path / place],
            [tmp_path / "other" / "r" / "scan.tif", tmp_path / "other" / "stack"],
        )


def test_a_place_beside_what_is_read_is_free(tmp_path):
    (tmp_path / "scan.tif").touch()
    require_apart([tmp_path / "r", tmp_path / "r.json"], [tmp_path / "scan.tif", "", "no file"])
    with pytest.raises(OutputError, match="the same place"):
        require_apart([tmp_path / "r", tmp_path / "r"], [])
    with pytest.raises(OutputError, match="the same place"):
        require_apart([tmp_path / "r" / "line.json", tmp_path / "r"], [])


ROOT = Path(__file__).parents[2]

#: In a process of its own, since forks are made of it.
KILLS = """
import json, os, random, sys
sys.path.insert(0, "tests/io")
import pandas as pd
from kills import Case, kills
from hushpore.io import read
from hushpore.io.results import write_image, write_results

def of(name):
    return {"job": "pores", "settings": {"of": name}}

def image(target):
    def write(folder, name):
        os.chdir(folder)
        volume = read(f"{name}.tif")
        write_image(folder / target, volume, provenance=of(name), overwrite=True)
    return write

def result(folder, name):
    os.chdir(folder)
    images = {"labels": read(f"{name}.tif")}
    tables = {"pores": pd.DataFrame({"of": [name]})}
    write_results(
        folder / "r", images=images, tables=tables, provenance=of(name), overwrite=True
    )

WORK = {"d.tif": image("d.tif"), "r": result}
found = {}
for name, work in WORK.items():
    case = Case("n", "m", (name, "d.json") if name != "r" else ("r",), share=1.0)
    runs = lambda which, folder, work=work: lambda: work(folder, which)
    found[name] = kills(case, 6, random.Random(0), runs)
print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs Linux")
def test_a_result_that_is_killed_is_the_old_one_or_the_new_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLS], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert [fault for each in found.values() for fault in each["faults"]] == []
    assert sum(each["killed"] for each in found.values()) > 6


def ended(monkeypatch: pytest.MonkeyPatch, target: Path, suffix: str) -> Path:
    """Return a hidden name of a process that is no more."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getpid", lambda: 2**22 + 1)
        return partial_path(target, suffix)


def test_what_a_killed_process_left_goes_with_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis").write_text("years of work")
    for target in (tmp_path / "a.tif", tmp_path / "out"):
        ended(monkeypatch, target, ".part").write_text("half")
        folder = ended(monkeypatch, target, ".part")
        folder.mkdir()
        (folder / "half").write_text("half")
    ended(monkeypatch, tmp_path / "a.tif", ".part").symlink_to(tmp_path / "thesis")
    with new_file(tmp_path / "a.tif", overwrite=False) as part:
        part.write_text("x")
    with new_directory(tmp_path / "out", overwrite=False):
        pass
    kept = {item.name for item in tmp_path.iterdir() if not item.is_symlink()}
    assert kept == {"thesis", "a.tif", "out"}
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_what_others_are_at_work_on_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = partial_path(tmp_path / "a.tif")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.node", lambda: "another computer")
        theirs = ended(elsewhere, tmp_path / "a.tif", ".part")
    for each in (mine, theirs):
        each.write_text("half")
    assert list(abandoned_partials(tmp_path / "a.tif")) == []


def test_a_result_that_was_just_being_replaced_gets_its_name_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ended(monkeypatch, tmp_path / "out", ".old")
    old.mkdir()
    (old / "result.json").write_text('{"files": ["result.json"]}')
    with pytest.raises(OutputError, match="already exists"):
        check_target(tmp_path / "out")
    assert [item.name for item in tmp_path.iterdir()] == ["out"]


def test_of_two_results_the_new_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ended(monkeypatch, tmp_path / "out", ".old")
    for folder in (old, tmp_path / "out"):
        folder.mkdir()
        (folder / "result.json").write_text('{"files": ["result.json"]}')
    with new_directory(check_target(tmp_path / "out", overwrite=True), overwrite=True) as part:
        (part / "new").write_text("x")
    assert [item.name for item in tmp_path.iterdir()] == ["out"]
    assert [item.name for item in (tmp_path / "out").iterdir()] == ["new"]


def resume(target, key, name, error=None):
    with resumable_directory(target, key, overwrite=False) as work:
        before = sorted(file.name for file in work.content.iterdir())
        (work.content / name).write_text("x")
        (work.scratch / name).write_text("x")
        assert not target.exists()
        if error is not None:
            raise error
    return before, work.resumed


def test_a_whole_result_has_its_name_and_nothing_else_is_left(tmp_path):
    assert resume(tmp_path / "a", {}, "one") == ([], False)
    assert [item.name for item in tmp_path.iterdir()] == ["a"]
    assert [item.name for item in (tmp_path / "a").iterdir()] == ["one"]


def test_where_the_machines_are_gone_the_same_work_goes_on_from_what_is_there(tmp_path):
    with pytest.raises(DeviceError):
        resume(tmp_path / "a", {"h": (1, 2)}, "one", DeviceError("gone"))
    assert not (tmp_path / "a").exists()
    assert resume(tmp_path / "a", {"h": (1, 2)}, "two") == (["one"], True)
    assert sorted(item.name for item in (tmp_path / "a").iterdir()) == ["one", "two"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_nobody_else_can_write_where_work_goes_on(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(DeviceError):
        resume(tmp_path / "a", {"h": 1}, "one", DeviceError("gone"))
    with resumable_directory(tmp_path / "a", {"h": 1}, overwrite=False) as work:
        assert work.content.parent.stat().st_mode & 0o077 == 0
        expected = work.content.stat().st_mode
    assert (tmp_path / "a").stat().st_mode == expected


def test_a_result_that_was_moved_away_is_not_gone_on_with(tmp_path):
    # killed just after it got its name: its place here is empty
    with pytest.raises(DeviceError):
        resume(tmp_path / "a", {"h": 1}, "one", DeviceError("gone"))
    (work,) = tmp_path.iterdir()
    (work / "content" / "one").unlink()
    (work / "content").rmdir()
    assert resume(tmp_path / "a", {"h": 1}, "two") == ([], False)


def test_other_work_begins_anew(tmp_path):
    with pytest.raises(DeviceError):
        resume(tmp_path / "a", {"h": 1}, "one", DeviceError("gone"))
    assert resume(tmp_path / "a", {"h": 2}, "two") == ([], False)


@pytest.mark.parametrize("error", [InputError("bad"), KeyboardInterrupt(), OSError(28, "full")])
def test_an_error_or_a_cancel_leaves_nothing_behind(tmp_path, error):
    with pytest.raises((type(error), OutputError)):
        resume(tmp_path / "a", {}, "one", error)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="has no limit for files")
def test_a_disk_that_is_full_at_once_leaves_nothing_behind(tmp_path):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        with pytest.raises(OutputError, match="Cannot write"):
            resume(tmp_path / "a", {}, "one")
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
    assert resume(tmp_path / "a", {"h": 1}, "two") == (["one"], True)


def test_two_at_once_are_kept_apart(tmp_path):
    first = resumable_directory(tmp_path / "a", {}, overwrite=False)
    with first, pytest.raises(OutputError, match="another process"):
        resume(tmp_path / "a", {}, "one")
    assert [item.name for item in tmp_path.iterdir()] == ["a"]


def test_work_on_another_computer_counts_as_running(tmp_path, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("platform.node", lambda: "another computer")
        work = partial_path(tmp_path / "a", ".unfinished")
    work.mkdir()
    with pytest.raises(OutputError, match=f"another process.*delete {re.escape(str(work))}"):
        resume(tmp_path / "a", {}, "one")
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
        resume(tmp_path / "a", {}, "one", DeviceError("gone"))
    (work,) = tmp_path.iterdir()
    others = work if kind == "another user's" else work.rename(tmp_path / ".a.notes.unfinished")
    if kind == "a link":
        work.symlink_to(others)
    if kind == "another user's":
        monkeypatch.setattr("os.geteuid", lambda: os.stat(work).st_uid + 1)
    assert resume(tmp_path / "a", {}, "two") == ([], False)
    assert [item.name for item in (others / "content").iterdir()] == ["one"]
    assert work.is_symlink() or kind != "a link"
    assert [item.name for item in (tmp_path / "a").iterdir()] == ["two"]


def test_a_folder_of_other_things_that_was_given_such_a_name_stays(tmp_path):
    others = partial_path(tmp_path / "a", ".unfinished", owned=False)
    others.mkdir()
    (others / "thesis.txt").write_text("years of work")
    assert resume(tmp_path / "a", {}, "one") == ([], False)
    assert (others / "thesis.txt").read_text() == "years of work"


def test_long_names_with_a_common_beginning_are_made_at_once(tmp_path):
    with resumable_directory(tmp_path / f"{'a' * 60}b", {}, overwrite=False):
        resume(tmp_path / f"{'a' * 60}c", {}, "one")
    assert sorted(item.name[-1] for item in tmp_path.iterdir()) == ["b", "c"]
