"""What is told of the files of a folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hushpore.io.folders import read_beginnings_ahead

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_reading_ahead_waits_for_nothing_and_leaves_errors_to_whoever_opens_a_file(
    tmp_path: Path,
) -> None:
    pipe, empty = tmp_path / "pipe", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.touch()

    before = len(os.listdir("/dev/fd"))
    read_beginnings_ahead([pipe, tmp_path / "missing", tmp_path, empty])

    assert len(os.listdir("/dev/fd")) == before
