from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io.results import write_image
from hushpore.runs.source import Source

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def drying(tmp_path: Path) -> Path:
    values = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    return write_image(tmp_path / "drying.tif", Volume(values, axes="tzyx"))


def test_what_was_read_is_read_again_from_its_record(
    drying: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(drying.parent)
    first = Source("drying.tif", at=("t=1",))
    again = Source.of(first.to_dict())
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(again.read().data, np.arange(60, 120).reshape(3, 4, 5))


def test_a_stamp_changes_with_names_sizes_and_times(drying: Path) -> None:
    folder = Source(str(drying.parent))
    before = folder.stamp()
    assert (before["files"], before["bytes"]) == (1, drying.stat().st_size)
    assert folder.stamp() == before
    os.utime(drying, ns=(0, 0))
    touched = folder.stamp()
    assert touched != before
    drying.rename(drying.with_name("other.tif"))
    assert folder.stamp() != touched


def test_what_is_gone_has_no_stamp(tmp_path: Path) -> None:
    assert Source(str(tmp_path / "gone")).stamp() == {}


def test_a_record_without_a_path_is_refused() -> None:
    with pytest.raises(InputError, match="does not say which file"):
        Source.of({"at": []})


def test_a_position_needs_an_axis_and_a_number(drying: Path) -> None:
    with pytest.raises(InputError, match="expected an axis and a number"):
        Source(str(drying), at=("t",)).read()
