"""Acceptance limits, on balls whose figures are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import ndimage

import hushpore
from hushpore import InputError, Volume
from hushpore.cli.commands import hushpore as command
from hushpore.cli.job_commands import NOT_ACCEPTED
from hushpore.io.results import write_image
from hushpore.pores.forms.limits import judged, read_limits
from hushpore.pores.result import restored

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def limits(folder: Path, text: str, form: str = "casting") -> str:
    file = folder / "limits.toml"
    file.write_text(f'form = "{form}"\n{text}', encoding="utf-8")
    return str(file)


@pytest.fixture
def scan(balls: Callable[..., np.ndarray]) -> Volume:
    """Two balls of 14 voxels, 0.7 mm, in a cube of 2 mm."""
    void = balls((40, 40, 40), [(12, 12, 12), (28, 28, 12)], 7)
    return Volume(void, spacing=0.05, unit="mm", name="balls")


def verdicts(scan: Volume, file: str, **settings: Any) -> tuple[str, dict[str, str]]:
    result = hushpore.segment_pores(scan, limits=file, **settings).provenance["result"]
    lines = result["acceptance"]["lines"]
    return result["limits"], {line["symbol"]: line["verdict"] for line in lines}


def test_figures_of_known_balls_pass_and_fail_their_limits(scan: Volume, tmp_path: Path) -> None:
    # 0.70 mm; 250 in a cm3; the edges are 5 voxels below a face
    passes = '[d_max]\nmax = 0.72\n[N_V]\nmin = 249\nmax = 251\n["N(d>=1)"]\nmax = 0\n'
    file = limits(tmp_path, passes)
    assert verdicts(scan, file)[0] == "passed"
    file = limits(tmp_path, passes + '[a_min]\nmin = 0.5\nunit = "mm"\n')
    assert verdicts(scan, file) == (
        "failed",
        {"d_max": "passed", "N_V": "passed", "N(d>=1)": "passed", "a_min": "failed"},
    )


@pytest.fixture
def blurred(scan: Volume) -> Volume:
    """The balls with a blur of a voxel, and noise."""
    grey = ndimage.gaussian_filter(np.where(scan.data, 20_000.0, 30_000.0), 1.0)
    grey += np.random.default_rng(0).normal(0, 800, grey.shape)
    return Volume(grey.astype(np.uint16), spacing=0.05, unit="mm", name="blurred")


def test_the_largest_pore_and_its_depth_have_the_interval_of_the_plausible_thresholds(
    blurred: Volume, tmp_path: Path
) -> None:
    file = limits(tmp_path, "[d_max]\nmax = 0.71\n[V_max]\nmax = 0.3\n[a_max]\nmin = 0.204\n")
    how: dict[str, Any] = {"exterior": "keep", "report_form": "casting"}
    found = hushpore.segment_pores(blurred, limits=file, intervals=True, **how)
    totals = found.provenance["result"]
    ends = [
        hushpore.segment_pores(blurred, threshold=totals[f"threshold_{end}"], **how).form("casting")
        for end in ("low", "high")
    ]
    value, low, high = (
        found.form("casting").set_index("symbol").loc["d_max", ["value", "low", "high"]]
    )
    smaller, larger = (form.set_index("symbol").loc["d_max", "value"] for form in ends)
    # nine tenths of the range, and equal by any merge height
    assert value - low == pytest.approx(0.9 * (value - smaller), rel=1e-6)
    assert high - value == pytest.approx(0.9 * (larger - value), rel=1e-6)
    assert low < 0.70 < high
    volume = found.form("casting").set_index("symbol").loc["V_max"]
    assert volume["low"] == pytest.approx(np.pi / 6 * low**3, rel=1e-6)
    # the surface of a ball moves by half of what its diameter does
    depth = found.form("casting").set_index("symbol").loc["a_max"]
    assert depth["high"] - depth["value"] == pytest.approx((value - low) / 2, rel=0.2)
    assert depth["value"] - depth["low"] == pytest.approx((high - value) / 2, rel=0.2)
    verdict = {line["symbol"]: line["verdict"] for line in totals["acceptance"]["lines"]}
    assert verdict == {"d_max": "not decided", "V_max": "passed", "a_max": "not decided"}


def test_limits_of_foam_and_bread_are_judged(scan: Volume, tmp_path: Path) -> None:
    assert verdicts(scan, limits(tmp_path, "[d_max]\nmax = 0.5\n", "foam"))[0] == "failed"
    assert verdicts(scan, limits(tmp_path, "[eps]\nmax = 9.1\n", "bread"))[0] == "passed"


@pytest.mark.parametrize(
    ("low", "high", "least", "most", "verdict"),
    [
        (2.0, 3.0, None, 3.0, "passed"),
        (2.0, 3.0, 1.0, None, "passed"),
        (2.0, 3.0, None, 2.9, "not decided"),
        (2.0, 3.0, 2.1, 9.0, "not decided"),
        (2.0, 3.0, None, 1.9, "failed"),
        (2.0, 3.0, 3.1, None, "failed"),
    ],
)
def test_a_limit_inside_the_interval_is_not_decided(
    scan: Volume, low: float, high: float, least: float | None, most: float | None, verdict: str
) -> None:
    found = hushpore.segment_pores(scan)
    findings = found._findings
    findings.totals.update(porosity=0.025, porosity_low=low / 100, porosity_high=high / 100)
    acceptance = {"form": "casting", "lines": [{"symbol": "P", "min": least, "max": most}]}
    assert judged(acceptance, findings)["limits"] == verdict


def test_without_pores_no_pore_is_too_large_or_too_near_to_the_surface(tmp_path: Path) -> None:
    solid = Volume(np.zeros((9, 9, 9), bool), spacing=0.05, unit="mm")
    file = limits(tmp_path, "[d_max]\nmax = 0.1\n[a_min]\nmin = 1\n[A_min]\nmin = 1\n")
    assert verdicts(solid, file)[0] == "passed"


def test_a_length_of_a_scan_without_voxel_size_is_not_decided(scan: Volume, tmp_path: Path) -> None:
    unknown = Volume(scan.data)
    file = limits(tmp_path, "[d_max]\nmax = 99\n[P]\nmax = 99\n")
    assert verdicts(unknown, file)[1] == {"d_max": "not decided", "P": "passed"}


def test_merging_again_judges_again_and_a_stored_result_keeps_its_verdict(
    tmp_path: Path, balls: Callable[..., np.ndarray]
) -> None:
    touching = balls((40, 40, 40), [(20, 20, 15), (20, 20, 25)], 7)
    scan = Volume(touching, spacing=0.05, unit="mm", name="pair")
    file = limits(tmp_path, "[N]\nmin = 2\n")
    found = hushpore.segment_pores(scan, limits=file, merge_overlapping=False)
    assert found.provenance["result"]["limits"] == "passed"
    (tmp_path / "limits.toml").unlink()
    assert found.remerge(9.0).provenance["result"]["limits"] == "failed"
    stored = restored(found.labels_volume, found.merging_arrays, found.provenance)
    assert stored.provenance["result"]["acceptance"] == found.provenance["result"]["acceptance"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[dmax]\nmax = 1\n", "the form casting measures no 'dmax'"),
        ("[Key]\nmax = 1\n", "the form casting measures no 'Key'"),
        ("[P]\nmax = 'two'\n", r"\[P\]: min and max must be numbers"),
        ("[P]\nmax = true\n", "min and max must be numbers"),
        ("[P]\nmax = nan\n", "min and max must be numbers"),
        ("[P]\nmin = 3\nmax = 2\n", "min must not be above max"),
        ("[P]\nunit = '%'\n", "needs min or max"),
        ("[P]\nmost = 2\n", "must be a table with min or max"),
        ("P = 2\n", "must be a table with min or max"),
        ("[d_max]\nmax = 200\nunit = 'um'\n", r"\[d_max\]: the unit is mm; got 'um'"),
        ("", "has no limits"),
        ("[P\n", "cannot be read"),
    ],
)
def test_a_damaged_file_of_limits_is_refused_before_the_segmentation(
    scan: Volume, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        hushpore.segment_pores(scan, limits=limits(tmp_path, text))


def test_a_missing_file_and_an_unknown_form_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read from .*none\.toml: No such file"):
        read_limits(str(tmp_path / "none.toml"))
    with pytest.raises(InputError, match="must name the form of its limits"):
        read_limits(limits(tmp_path, "[P]\nmax = 2\n", "cheese"))


def test_a_command_and_a_batch_report_limits_and_exit_with_three(
    scan: Volume, tmp_path: Path
) -> None:
    small = scan.replace(np.roll(scan.data, 3, axis=2) & (np.arange(40) < 16), name="half")
    for each in (scan, small):
        write_image(tmp_path / f"{each.name}.tif", each.replace(255 - 200 * each.data.astype("u1")))
    file = limits(tmp_path, "[V]\nmin = 7.9\n[P]\nmax = 5\n")
    run = CliRunner().invoke
    flags = ["--limits", file, "--exterior", "keep", "--device", "cpu"]
    out = run(command, ["pores", f"{tmp_path}/balls.tif", "-o", f"{tmp_path}/one", *flags])
    assert out.exit_code == 0, out.output
    assert "Acceptance limits (limits.toml): passed. Passed: V; P." in out.output
    file = limits(tmp_path, "[P]\nmax = 4\n")
    wanted = [f"{tmp_path}/*.tif", "-o", f"{tmp_path}/all", "--no-denoise", *flags]
    out = run(command, ["batch", *wanted])
    assert out.exit_code == NOT_ACCEPTED
    import pandas as pd

    table = pd.read_csv(tmp_path / "all" / "summary.csv").set_index("name")
    assert table["limits"].to_dict() == {"balls": "failed", "half": "passed"}
    assert table.loc["balls", "P (%)"] == pytest.approx(100 * scan.data.mean())
    words = f"P {100 * scan.data.mean():.3g} % (at most 4)"
    assert words in (tmp_path / "all" / "balls" / "report.html").read_text("utf-8")
    control = pd.read_csv(tmp_path / "all" / "control.csv")
    assert control["verdict"].tolist() == ["failed", "passed"]
    assert (tmp_path / "all" / "control.png").read_bytes().startswith(b"\x89PNG")
