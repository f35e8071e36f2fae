"""A fourth job, a median filter: settings, a generator and one entry, and it is everywhere."""

from __future__ import annotations

import dataclasses
import json
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import ndimage
from skimage.filters import median as median_of_skimage

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import OutputError
from hushpore.base.events import Note, Progress, ResultFiles, result_of
from hushpore.base.provenance import make_provenance
from hushpore.base.settings import Settings, option
from hushpore.cli.commands import hushpore as command
from hushpore.cli.job_commands import batch_command
from hushpore.io.results import write_image
from hushpore.jobs import JOBS, ExtraFile, JobDescription
from hushpore.runs import presets
from hushpore.runs.batch import run_batch
from hushpore.runs.presets import remember, remembered
from hushpore.runs.rerun import rerun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class MedianSettings(Settings):
    width: int = option(3, "Edge of the window.", unit="voxels", minimum=1, maximum=15)
    border: str = option(
        "mirror", "What lies beyond the border.", choices=("mirror", "nearest"), more="Border"
    )


@dataclass(frozen=True)
class Filtered:
    volume: Volume
    provenance: dict[str, Any]

    @property
    def headline(self) -> str:
        return f"Smoothed {self.provenance['result']['slices']} slices"

    @property
    def remarks(self) -> tuple[Note, ...]:
        return ()

    @property
    def timings(self) -> dict[str, float]:
        return self.provenance["timings"]

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.provenance["notes"])

    def files(self) -> ResultFiles:
        return ResultFiles({"smoothed": self.volume})


def median(volume: Volume, settings: MedianSettings, backend: Any) -> Iterator[Any]:
    timer, values, count = backend.timer(), volume.array(), volume.shape[0]
    smooth = np.empty_like(values)
    for number in range(count):
        yield Progress("filtering", number, count, "slices", number / count)
        with timer.stage("filtering"):
            smooth[number] = ndimage.median_filter(
                values[number], settings.width, mode=settings.border
            )
    yield Progress("filtering", count, count, "slices", 1.0)
    made = make_provenance("median", volume, settings, backend.description, timer.timing())
    return Filtered(volume.replace(smooth), {**made, "result": {"slices": count}})


def check_note(path: str, overwrite: bool) -> Path:
    if Path(path).exists() and not overwrite:
        raise OutputError(f"{path} is there already.")
    return Path(path)


def write_note(target: Path, result: Filtered, volume: Volume, overwrite: bool) -> None:
    target.write_text(f"{result.volume.array().std() < volume.array().std()}")


MEDIAN = JobDescription(
    "Median filter",
    f"{__name__}:MedianSettings",
    f"{__name__}:median",
    on_gpu=False,
    short_help="Smooth a stack with a median filter.",
    gives="smoothed",
    extras=(
        ExtraFile("note", "Say that it is smooth.", f"{__name__}:check_note",
                  f"{__name__}:write_note"),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def fourth_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOBS, "median", MEDIAN)


@pytest.fixture
def scan(tmp_path: Path, noisy_ball: Volume) -> Path:
    return write_image(tmp_path / "scan.tif", noisy_ball)


def call(*words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_the_library_runs_it(noisy_ball: Volume) -> None:
    found = hushpore.run("median", noisy_ball, {"width": 5, "border": "nearest"})
    expected = [median_of_skimage(plane, np.ones((5, 5))) for plane in noisy_ball.array()]
    np.testing.assert_array_equal(found.volume.data, expected)
    with pytest.raises(InputError, match="width must be a whole number from 1 to 15; got 99"):
        hushpore.start("median", noisy_ball, {"width": 99})


def test_it_has_a_command_with_its_flags_their_help_and_their_limits(
    scan: Path, tmp_path: Path
) -> None:
    assert "Smooth a stack with a median filter." in call("--help").output
    text = call("median", "--help").output
    places = [
        text.index(words)
        for words in (
            "TIFF or OME-Zarr (.zarr) to write", "--note FILE", "--settings FILE", "--voxel-size",
            "Median filter:", "--width NUMBER", "[voxels]", "Median filter, more:",
            "--border [mirror|nearest]",
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert "--cluster" not in text
    out = tmp_path / "smooth.tif"
    done = call("median", scan, "-o", out, "--width", "5", "--note", tmp_path / "note.txt")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["Smoothed 12 slices", f"Written: {out}"]
    np.testing.assert_array_equal(
        hushpore.read(out).data,
        hushpore.run("median", hushpore.read(scan), {"width": 5}).volume.data,
    )
    assert json.loads((tmp_path / "smooth.json").read_text())["settings"]["width"] == 5
    assert (tmp_path / "note.txt").read_text() == "True"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--width", "16"], 2, "width must be a whole number from 1 to 15"),
        (["--border", "wrap"], 2, "'mirror', 'nearest'"),
        (["-o", "scan.tif"], 1, "scan.tif"),
        (["--note", "scan.tif"], 1, "scan.tif is there already"),
        (["--at", "t"], 1, "Give an axis and a number"),
    ],
)
def test_its_errors_are_one_line_and_leave_nothing(
    scan: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int, message: str
) -> None:
    monkeypatch.chdir(scan.parent)
    done = call("median", "scan.tif", "-o", "out.tif", *words)
    assert (done.exit_code, message in done.stderr.splitlines()[-1]) == (status, True), done.output
    assert [item.name for item in scan.parent.iterdir()] == ["scan.tif"]


def test_its_settings_come_from_flags_files_and_presets(scan: Path, tmp_path: Path) -> None:
    def used(*words: object) -> dict[str, Any]:
        done = call("median", scan, "-o", tmp_path / "out.tif", "--json", "--overwrite", *words)
        assert done.exit_code == 0, done.output
        settings: dict[str, Any] = json.loads(done.stdout)["settings"]
        return settings

    file = tmp_path / "s.toml"
    assert call("settings", "-o", file).exit_code == 0
    text = file.read_text(encoding="utf-8")
    assert "[median]  # Median filter" in text
    assert used("--settings", file) == {"width": 3, "border": "mirror"}
    file.write_text(text.replace("# width = 3", "width = 7"), encoding="utf-8")
    assert used("--settings", file, "--border", "nearest") == {"width": 7, "border": "nearest"}
    presets.save_preset("soft", "median", MedianSettings(width=9))
    assert presets.names_to_choose("median") == ["Default", "soft"]
    assert used("--preset", "soft")["width"] == 9
    remember("median", MedianSettings(width=11))
    assert remembered("median", MedianSettings) == MedianSettings(width=11)
    assert used("--preset", "Last used")["width"] == 11


def test_it_is_made_again_the_same_to_the_bit(scan: Path, tmp_path: Path) -> None:
    assert call("median", scan, "-o", tmp_path / "one.tif", "--width", 5).exit_code == 0
    done = call("rerun", tmp_path / "one.json", "-o", tmp_path / "two.tif")
    assert "Identical: the new result equals the original bit for bit." in done.output
    one, two = (hushpore.read(tmp_path / name).data for name in ("one.tif", "two.tif"))
    np.testing.assert_array_equal(one, two)


def test_scans_are_sent_through_it_and_the_job_that_follows(scan: Path, tmp_path: Path) -> None:
    steps = {"median": MedianSettings(width=5), "pores": JOBS["pores"].settings()}
    batch = result_of(run_batch(scan, tmp_path / "out", steps, device="cpu"))
    assert batch.count("done") == 1, batch.table
    folder = tmp_path / "out" / "scan"
    smooth = hushpore.run("median", hushpore.read(scan), steps["median"]).volume
    expected = hushpore.segment_pores(smooth)
    np.testing.assert_array_equal(hushpore.read(folder / "smoothed.tif").data, smooth.data)
    np.testing.assert_array_equal(hushpore.read(folder / "labels.tif").data, expected.labels)
    assert batch.table["porosity"][0] == expected.porosity
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Settings: Median filter" in page
    words = [str(scan), "-o", str(tmp_path / "out"), "--width", "5"]
    again = CliRunner().invoke(batch_command(("median", "pores")), words)
    assert "1 of them from an earlier run" in again.output
    assert result_of(rerun(folder, tmp_path / "again")).summary.startswith("Identical")
    with pytest.raises(
        InputError, match="'median' cannot follow Segment pores, which makes no image"
    ):
        result_of(run_batch(scan, tmp_path / "o", dict(reversed(steps.items()))))


def test_without_an_image_for_others_its_result_is_a_folder_with_a_report(
    scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(JOBS, "median", dataclasses.replace(MEDIAN, gives=""))
    out = tmp_path / "out"
    done = call("median", scan, "-o", out, "--width", 5)
    assert done.exit_code == 0, done.output
    names = {path.name for path in out.iterdir()}
    assert names == {"smoothed.tif", "report.html", "result.json"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Smoothed 12 slices" in page
    assert "<tr class=changed><td>Width</td><td>5 voxels</td><td>3 voxels</td></tr>" in page
    assert result_of(rerun(out, tmp_path / "again")).summary.startswith("Identical")
    batch = result_of(run_batch(scan, tmp_path / "all", {"median": MedianSettings()}))
    assert batch.table["slices"].tolist() == [12]


def test_the_documentation_lists_it() -> None:
    page = runpy.run_path(str(DOCS / "settings.py"))["settings_page"]()
    assert "## Median filter (`median`)" in page
    row = "| `width` | Width | `3` | a whole number from 1 to 15, voxels | Edge of the window. |"
    assert row in page
