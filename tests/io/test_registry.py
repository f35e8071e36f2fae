"""A format is declared in one place, and everything that knows of formats takes it from there."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
import hushpore.cli.result_commands
from hushpore import InputError, Volume
from hushpore.base.errors import MissingPackageError, OutputError
from hushpore.base.volume import as_volume
from hushpore.cli.commands import hushpore as command
from hushpore.io import describe, kind_of
from hushpore.io.registry import EXPORTERS, READERS, Exporter, Reader, exporters_of, resolved
from hushpore.io.results import write_image
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import click

    from hushpore.io.export import PoreResult

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", READERS)
def test_every_reader_can_be_imported(name: str) -> None:
    reader = READERS[name]
    assert callable(resolved(reader.read))
    assert not reader.slices_by or callable(resolved(reader.read_slices))


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_can_be_imported(name: str) -> None:
    assert all(callable(resolved(each)) for each in EXPORTERS[name].writers.values())


def row_of(reader: Reader) -> str:
    """Return the row of docs/formats.md that a format should have."""
    install = f"; `pip install hushpore[{reader.extra}]`" if reader.extra else ""
    return f"| {reader.title} | {reader.understood}{install} | {reader.voxel_size} |"


def test_the_table_in_the_docs_is_that_of_the_readers() -> None:
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    table = text.partition("| format | what is understood")[2].partition("\n\n")[0]
    assert table.splitlines()[2:] == [row_of(reader) for reader in READERS.values()]


def test_the_table_of_exports_in_the_docs_is_that_of_the_exporters() -> None:
    text = (DOCS / "howto" / "export.md").read_text(encoding="utf-8")
    table = text.partition("| `--to`")[2].partition("\n\n")[0]
    rows = []
    for name, each in exporters_of("pores").items():
        install = f"; `pip install hushpore[{each.extra}]`" if each.extra else ""
        endings = ", ".join(f"`{end}`" for end in each.endings)
        rows.append(f"| `{name}` | {endings} | {each.content}{install} |")
    assert table.splitlines()[2:] == rows


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
    with pytest.raises(InputError, match="and Toy image"):
        hushpore.read(tmp_path / "notes.txt")
    (tmp_path / "broken.toy").write_text("hello")
    with pytest.raises(InputError, match="its content is not Toy image"):
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


def write_count(path: Path, result: PoreResult) -> None:
    """Write the toy format: how many pores there are."""
    path.write_text(f"{len(result.pores)} pores\n")


@pytest.fixture
def export_command(monkeypatch: pytest.MonkeyPatch) -> Iterator[click.Command]:
    """The command as it is imported where the toy is declared."""
    entry = Exporter(
        title="Count",
        of="pores",
        writers={".count": write_count},
        content="how many pores there are",
    )
    with monkeypatch.context() as patch:
        patch.setitem(EXPORTERS, "count", entry)
        yield importlib.reload(hushpore.cli.result_commands).export_command
    importlib.reload(hushpore.cli.result_commands)


@pytest.mark.parametrize("words", [["foam.count"], ["foam", "--to", "count"]])
def test_a_new_format_is_exported_to(
    tmp_path: Path, export_command: click.Command, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scan = np.full((16, 16), 100)
    scan[4:8, 4:8] = 20
    found = hushpore.segment_pores(scan, threshold=50)
    write_result(tmp_path / "result", [found], as_volume(scan))
    done = CliRunner().invoke(export_command, ["result", "-o", *words])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "foam.count").read_text() == "1 pores\n"


def test_the_help_of_export_names_a_new_format(export_command: click.Command) -> None:
    text = " ".join(CliRunner().invoke(export_command, ["--help"]).output.split())
    assert "count: how many pores there are (.count)" in text
    assert "|count]" in text


def test_images_are_written_in_a_new_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_text(path: Path, volume: Volume) -> None:
        np.savetxt(path, volume.array(), fmt="%d")

    with pytest.raises(OutputError, match=r"must end in \.tif, \.tiff or \.zarr"):
        write_image(tmp_path / "image.toy", Volume(np.eye(2)))
    entry = Exporter(title="Toy image", of="image", writers={".toy": write_text}, content="numbers")
    monkeypatch.setitem(EXPORTERS, "toy", entry)
    write_image(tmp_path / "image.toy", Volume(np.eye(2)))
    assert (tmp_path / "image.toy").read_text() == "1 0\n0 1\n"


def test_the_help_of_info_names_the_formats_that_are_read() -> None:
    text = " ".join(CliRunner().invoke(command, ["info", "--help"]).output.split())
    assert "Supported formats: DICOM, TIFF" in text
