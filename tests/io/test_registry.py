"""A format is declared in one place, and everything that knows of formats takes it from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MissingPackageError
from hushpore.cli.commands import hushpore as command
from hushpore.io import describe, kind_of
from hushpore.io.registry import READERS, Reader, resolved

if TYPE_CHECKING:
    from collections.abc import Generator

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", READERS)
def test_every_reader_can_be_imported(name: str) -> None:
    reader = READERS[name]
    assert callable(resolved(reader.read))
    assert not reader.slices_by or callable(resolved(reader.read_slices))


def row_of(reader: Reader) -> str:
    """Return the row of docs/formats.md that a format should have."""
    install = f"; `pip install hushpore[{reader.extra}]`" if reader.extra else ""
    return f"| {reader.title} | {reader.understood}{install} | {reader.voxel_size} |"


def test_the_table_in_the_docs_is_that_of_the_readers() -> None:
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    table = text.partition("| format | what is understood")[2].partition("\n\n")[0]
    assert table.splitlines()[2:] == [row_of(reader) for reader in READERS.values()]


def read_text_image(path: Path) -> Generator[float, None, Volume]:
    """Read the toy format: a line that marks it, then rows of numbers."""
    yield 1.0
    return Volume(np.loadtxt(path, skiprows=1, ndmin=2), spacing=(2, 3), unit="um", name=path.stem)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Reader:
    entry = Reader(
        title="Toy image",
        patterns=("*.toy",),
        matches=lambda start, path: start.startswith(b"TOY\n"),
        read=read_text_image,
        understood="numbers as text",
        voxel_size="always the same",
    )
    monkeypatch.setitem(READERS, "toy", entry)
    return entry


@pytest.fixture
def scan(tmp_path: Path, toy: Reader) -> Path:
    # the name does not tell; the content does
    path = tmp_path / "scan.txt"
    path.write_text("TOY\n1 2 3\n4 5 6\n")
    return path


def test_a_new_format_is_recognised_described_and_read(scan: Path) -> None:
    assert kind_of(scan) == "toy"
    (volume,) = describe(scan)
    assert (volume.shape, volume.spacing, volume.unit) == ((2, 3), (2, 3), "um")
    np.testing.assert_array_equal(hushpore.read(scan).array(), [[1, 2, 3], [4, 5, 6]])
    (told,) = json.loads(CliRunner().invoke(command, ["info", str(scan), "--json"]).output)[
        "volumes"
    ]
    assert told["shape"] == [2, 3]


@pytest.mark.usefixtures("toy")
def test_messages_name_a_new_format(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InputError, match="raw voxels or Toy image"):
        hushpore.read(tmp_path / "notes.txt")
    (tmp_path / "broken.toy").write_text("hello")
    with pytest.raises(InputError, match="named like Toy image but is not"):
        hushpore.read(tmp_path / "broken.toy")


def test_a_new_format_whose_package_is_missing_says_what_to_install(
    scan: Path, toy: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Reader(**{**vars(toy), "package": "not_there", "extra": "toys"})
    monkeypatch.setitem(READERS, "toy", entry)
    with pytest.raises(MissingPackageError, match=r"Toy image .* pip install 'hushpore\[toys\]'"):
        hushpore.read(scan)


def test_a_folder_of_slices_in_a_new_format_is_one_volume(
    tmp_path: Path, toy: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_stack(files: list[Path], folder: Path, others: list[Path]) -> Volume:
        planes = [np.loadtxt(file, skiprows=1) for file in files]
        return Volume(np.stack(planes), name=folder.name, notes=[f"{len(others)} other file"])

    entry = Reader(**{**vars(toy), "slices_by": "name", "read_slices": read_stack})
    monkeypatch.setitem(READERS, "toy", entry)
    for number in (10, 2):
        (tmp_path / f"slice{number}.toy").write_text(f"TOY\n{number} 0\n0 0\n")
    (tmp_path / "notes.txt").write_text("hello")
    assert kind_of(tmp_path) == "toy"
    volume = hushpore.read(tmp_path)
    assert [volume.array()[z, 0, 0] for z in (0, 1)] == [2, 10]
    assert list(volume.notes) == ["1 other file"]


def test_a_new_format_is_segmented_in_a_batch(tmp_path: Path, toy: Reader) -> None:
    void = np.full((16, 16), 100)
    void[4:8, 4:8] = 0
    rows = "\n".join(" ".join(map(str, row)) for row in void)
    (tmp_path / "foam.toy").write_text(f"TOY\n{rows}\n")
    words = ["batch", str(tmp_path / "*.toy"), "-o", str(tmp_path / "out"), "--no-denoise"]
    done = CliRunner().invoke(command, [*words, "--threshold", "50"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "foam" / "pores.csv").is_file()
