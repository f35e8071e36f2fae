import json
import os
from pathlib import Path

import pytest

from hushpore.base.atomic import new_file
from hushpore.base.errors import OutputError
from hushpore.io.output_target import check_target, new_directory, require_apart

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
