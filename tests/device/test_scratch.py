from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hushpore.device import memory
from hushpore.device.memory import new_folder, remove_left_over, scratch_folder, temporary_folders

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which temporary files are looked for."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setenv("HUSHPORE_TEMPORARY_FOLDER", str(place))
    monkeypatch.setattr(memory.tempfile, "gettempdir", lambda: str(place))
    return place


def test_temporary_files_avoid_a_folder_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HUSHPORE_TEMPORARY_FOLDER", "TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(memory, "_DISK", tmp_path)
    monkeypatch.setattr(memory, "_lies_in_memory", lambda folder: True)
    assert scratch_folder() == tmp_path
    monkeypatch.setenv("TMPDIR", "/chosen")
    assert scratch_folder() != tmp_path


def test_the_folder_that_is_preferred_is_used(place: Path) -> None:
    assert scratch_folder() == place
    assert new_folder().parent == place


def test_what_is_in_use_is_listed_and_kept() -> None:
    folder = new_folder()
    (folder / "basins.raw").write_bytes(bytes(100_000))
    (found,) = temporary_folders()
    assert found.path == folder
    assert found.nbytes >= 100_000
    assert not found.is_left_over
    assert remove_left_over() == []
    assert folder.is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
def test_what_a_killed_program_left_over_is_removed(place: Path) -> None:
    code = "from hushpore.device.memory import *; print(new_folder(), flush=True); input()"
    environment = {**os.environ, "HUSHPORE_TEMPORARY_FOLDER": str(place)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as program:
        assert program.stdout is not None
        folder = program.stdout.readline().strip()
        assert [found.is_left_over for found in temporary_folders()] == [False]
        program.send_signal(signal.SIGKILL)
    mine = new_folder()
    (removed,) = remove_left_over()
    assert str(removed.path) == folder
    assert [path.name for path in place.iterdir()] == [mine.name]


def ended(folder: Path) -> Path:
    """Rename a folder as one of a process that is no more."""
    computer, _, rest = folder.name.removeprefix("hushpore-").split("-")
    return folder.rename(folder.with_name(f"hushpore-{computer}-{2**22 + 1:x}-{rest}"))


def test_what_may_be_of_another_computer_is_kept() -> None:
    folder = ended(new_folder())
    theirs = folder.with_name(f"hushpore-{'0' * 8}-{folder.name.split('-', 2)[2]}")
    folder.rename(theirs)
    assert [found.is_left_over for found in temporary_folders()] == [False]
    assert remove_left_over() == []
    assert theirs.is_dir()


def test_a_process_that_began_after_the_last_change_is_not_the_writer() -> None:
    folder = new_folder()
    os.utime(folder, (1, 1))
    assert [removed.path for removed in remove_left_over()] == [folder]


def test_folders_of_others_are_not_touched(place: Path, tmp_path: Path) -> None:
    (place / "hushpore-notes").mkdir()
    (place / "hushpore-notes" / "thesis.txt").write_text("my own")
    mine = ended(new_folder())
    elsewhere = mine.rename(tmp_path / "elsewhere")
    (elsewhere / "thesis.txt").write_text("my own")
    if sys.platform != "win32":
        mine.symlink_to(elsewhere)
    assert temporary_folders() == []
    assert remove_left_over() == []
    assert (elsewhere / "thesis.txt").is_file()
