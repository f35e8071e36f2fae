"""Headers that are read without pydicom say what pydicom says of them, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydicom.data.data_manager import DATA_ROOT

from hushpore import Volume
from hushpore.io.dicom import header, write_series
from hushpore.io.dicom.plain import BEGINNING, plain_header
from hushpore.io.log_capture import captured_warnings

if TYPE_CHECKING:
    from collections.abc import Callable

OF_PYDICOM = sorted(each for each in Path(DATA_ROOT, "test_files").glob("*.dcm"))


@pytest.fixture
def agrees(monkeypatch) -> Callable[[Path], None]:
    """Check that a file says the same with and without pydicom."""

    def check(path: Path) -> None:
        found = []
        for reader in (plain_header, lambda *_: None):
            with captured_warnings("pydicom"), monkeypatch.context() as patch:
                patch.setattr(header, "plain_header", reader)
                # what is no number is not equal to itself
                found.append(repr(header._read_header(path)))
        assert found[0] == found[1]

    return check


def is_plain(content: bytes) -> bool:
    return plain_header(content[:BEGINNING], header._tag_set()) is not None


@pytest.fixture
def slice_file(tmp_path: Path) -> Path:
    volume = Volume(np.arange(2 * 12 * 10, dtype=np.int16).reshape(2, 12, 10), unit="mm")
    return min(write_series(volume, tmp_path / "series", seed=0).iterdir())


def test_most_files_are_plain_and_all_say_the_same(data_folder, agrees) -> None:
    files = [*OF_PYDICOM, *(data_folder / "dicom").rglob("*.dcm")]
    for path in files:
        agrees(path)
    plain = sum(is_plain(path.read_bytes()) for path in files)
    assert plain > 0.7 * len(files)


def test_damaged_headers_say_the_same(slice_file: Path, agrees, rng) -> None:
    whole = slice_file.read_bytes()
    found: Any = plain_header(whole, header._tag_set())
    still_plain = 0
    for _ in range(300):
        content = bytearray(whole)
        at = int(rng.integers(128, found.end + 12))
        if rng.random() < 0.8:
            content[at] = rng.integers(256)
        elif rng.random() < 0.5:
            del content[at : at + int(rng.integers(1, 9))]
        else:
            content[at:at] = rng.bytes(int(rng.integers(1, 9)))
        slice_file.write_bytes(content)
        agrees(slice_file)
        still_plain += is_plain(content)
    assert still_plain > 30


@pytest.mark.parametrize("end", [0, 131, 143, 150, 300, -5])
def test_what_ends_before_its_pixels_is_left_to_pydicom(slice_file: Path, end: int, agrees) -> None:
    content = slice_file.read_bytes()
    header_end = plain_header(content, header._tag_set()).end  # type: ignore[union-attr]
    cut = content[: end if end >= 0 else header_end + 12 + end]
    assert not is_plain(cut)
    slice_file.write_bytes(cut)
    agrees(slice_file)
