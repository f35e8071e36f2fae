"""Names that can be guessed, in a folder where others write too."""

import os
from pathlib import Path

import numpy as np
import pytest

from hushpore.base.atomic import new_file, partial_path, remove_partial
from hushpore.base.errors import OutputError
from hushpore.io.output_target import new_directory

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links need rights there")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_with_the_name_of_a_partial_file_is_not_followed(tmp_path, monkeypatch, exists):
    if exists:
        (tmp_path / "thesis").write_text("years of work")
    (tmp_path / "taken").symlink_to(tmp_path / "thesis")
    monkeypatch.setattr("hushpore.base.atomic.partial_path", lambda *_: tmp_path / "taken")
    with pytest.raises(OutputError), new_file(tmp_path / "out.tif", overwrite=True) as part:
        part.write_text("mine")
    assert (tmp_path / "taken").is_symlink()
    assert (tmp_path / "thesis").exists() is exists
    assert not exists or (tmp_path / "thesis").read_text() == "years of work"


def test_long_names_with_a_common_beginning_have_hidden_names_of_their_own(tmp_path):
    targets = [tmp_path / f"{'a' * 60}{end}" for end in "bc"]
    assert len({partial_path(target) for target in targets * 2}) == 4


def test_only_what_was_left_half_written_of_a_target_is_removed(tmp_path):
    mine = tmp_path / f".scan.{'0' * 16}.part"
    mine.mkdir()
    (mine / "half").write_text("x")
    (tmp_path / ".scan.notes.part").mkdir()
    (tmp_path / f".scan2.{'0' * 16}.part").mkdir()
    (tmp_path / "thesis").mkdir()
    (tmp_path / f".scan.{'1' * 16}.part").symlink_to(tmp_path / "thesis")
    remove_partial(tmp_path / "scan")
    assert not mine.exists()
    kept = {".scan.notes.part", f".scan2.{'0' * 16}.part", "thesis", f".scan.{'1' * 16}.part"}
    assert {item.name for item in tmp_path.iterdir()} == kept


@pytest.fixture
def calls(monkeypatch):
    """What was written through to the disk, by its number there, and when names were given."""
    found = []
    sync, replace, rename = os.fsync, os.replace, os.rename

    def note(move):
        return lambda a, b, **more: (found.append("named"), move(a, b, **more))[1]

    def synced(handle):
        found.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", note(replace))
    monkeypatch.setattr(os, "rename", note(rename))
    return found


def test_a_file_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(tmp_path, calls):
    with new_file(tmp_path / "a.tif", overwrite=False) as part:
        part.write_text("x")
    file, folder = (place.stat().st_ino for place in (tmp_path / "a.tif", tmp_path))
    assert calls == [file, "named", folder]


def test_what_can_be_made_again_is_not_waited_for(tmp_path, calls):
    with new_file(tmp_path / "a", overwrite=False, lasting=False) as part:
        part.write_text("x")
    assert calls == ["named"]


def test_all_of_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, calls):
    with new_directory(tmp_path / "r", overwrite=False) as part:
        (part / "labels").mkdir()
        for name in ("a", "labels/b"):
            (part / name).write_text("x")
    places = [tmp_path / "r" / name for name in ("a", "labels", "labels/b", ".")]
    at = calls.index("named")
    assert {place.stat().st_ino for place in places} == set(calls[:at])
    assert calls[at:] == ["named", tmp_path.stat().st_ino]


def test_a_disk_that_says_late_that_it_is_full_leaves_the_earlier_file(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    (tmp_path / "a").write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="disk is full"), new_file(tmp_path / "a", True) as part:
        part.write_text("x")
    assert (tmp_path / "a").read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_disk_that_is_full_is_told_as_such_of_arrays_too(tmp_path):
    with pytest.raises(OutputError, match="disk is full"), new_file(tmp_path / "a", True):
        np.zeros(100_000).tofile("/dev/full")
