"""What the pages tell the reader to type must work."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

import hushpore
from hushpore.cli.commands import hushpore as command
from hushpore.io.dicom import write_series
from hushpore.io.results import write_image
from hushpore.pores.geometry.sums import SUMS
from hushpore.pores.tables.measures import PORES, THROATS
from hushpore.runs.result_folder import write_result
from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(page: Path) -> Iterator[str]:
    """The command lines of a page, without what a shell would add."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?:    |\$ )(hushpore .*)$", text, re.MULTILINE):
        yield re.split(r"\s+#|\s+\||\s+>", line)[0]


def blocks(page: Path) -> list[str]:
    """The Python code of a page, in its order; that for napari is run by tests of the viewer."""
    if "import napari" in page.read_text(encoding="utf-8"):
        return []
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize(
    ("page", "line"), [(name(page), line) for page in PAGES for line in commands(page)]
)
def test_every_command_line_on_a_page_is_understood(
    page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text("[pores]\nmerge_height = 0.5\n", encoding="utf-8")
    words = shlex.split(line)[1:]
    context = command.make_context("hushpore", list(words))
    _, chosen, rest = command.resolve_command(context, words)
    assert chosen is not None
    try:
        chosen.make_context(chosen.name, rest, parent=context)
    except click.exceptions.Exit:
        pass  # --help and the like
    except click.UsageError as error:
        pytest.fail(f"{page}: {line}: {error.format_message()}")


@pytest.fixture
def declared() -> Iterator[None]:
    """What a page declares is gone after it."""
    before = [(table, list(table)) for table in (SUMS, PORES, THROATS)]
    yield
    for table, entries in before:
        table[:] = entries


@pytest.fixture(scope="module")
def worked_on(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages work on, small."""
    scan, folder = foam_phantom((16, 48, 48)).volume, tmp_path_factory.mktemp("pages")
    write_series(scan, folder / "scan")
    write_image(folder / "scan.tif", scan)
    write_image(folder / "clean.tif", scan)
    write_result(folder / "result", [hushpore.segment_pores(scan)], scan)
    return folder


@pytest.fixture
def small_scan(worked_on: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of it, and training of two steps."""
    shutil.copytree(worked_on, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def quick(volume: Any, **settings: Any) -> Any:
        return hushpore.run("denoise", volume, {**settings, "steps": 2, "patch_size": 16}, "cpu")

    monkeypatch.setattr(hushpore, "denoise", quick, raising=False)


@pytest.mark.usefixtures("small_scan", "small_network", "declared")
@pytest.mark.parametrize("page", [name(page) for page in PAGES if blocks(page)])
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
def test_the_python_code_on_a_page_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    known: dict[str, Any] = {}
    for code in blocks(ROOT / page):
        if "write_series" in code:
            shutil.rmtree("scan")
        try:
            exec(compile(code, page, "exec"), known)
        except ModuleNotFoundError as error:
            # another program's, which not everybody has
            if error.name != "openpnm":
                raise
    capsys.readouterr()
