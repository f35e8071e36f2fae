from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner
from skimage.metrics import peak_signal_noise_ratio

from hushpore import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.cli.demo import _print_table
from hushpore.io.results import write_image
from hushpore.sample_data import foam_phantom

if TYPE_CHECKING:
    from pathlib import Path


def test_the_demo_holds_its_result_against_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = foam_phantom((16, 80, 80), seed=1)
    monkeypatch.setattr("hushpore.cli.demo.foam_phantom", lambda: small)
    folder = tmp_path / "demo"
    done = CliRunner().invoke(
        command, ["demo", "-o", str(folder), "--time-budget", "2", "--device", "cpu"]
    )
    assert done.exit_code == 0, done.output
    accuracy = json.loads((folder / "result.json").read_text())["accuracy"]
    clean, noisy = small.clean.array(), small.volume.array()
    expected = peak_signal_noise_ratio(clean, noisy, data_range=np.ptp(clean))
    assert accuracy["noisy"]["psnr"] == pytest.approx(expected, abs=1e-3)
    assert accuracy["truth"]["pores"] == small.n_pores
    assert "truth" in done.output
    assert {path.name for path in folder.iterdir()} == {
        "denoised.tif", "labels.tif", "pores.csv", "throats.csv", "totals.csv", "profile.csv",
        "report.png", "report.html", "result.json", "merging.npz",
    }  # fmt: skip


def test_the_demo_works_on_a_stack_of_the_users(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.normal(100, 20, (4, 64, 64)).astype(np.float32)
    scan = write_image(tmp_path / "scan.tif", Volume(values, spacing=2, unit="um"))
    folder = tmp_path / "demo"
    words = ["demo", str(scan), "-o", str(folder), "--time-budget", "1", "--device", "cpu"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert "accuracy" in json.loads((folder / "result.json").read_text())


def test_a_result_without_pores_has_no_diameter_in_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing = {"pores": 0, "porosity": 0.0, "median_diameter": None}
    _print_table({"denoised": nothing, "truth": {**nothing, "median_diameter": 1.5}})
    shown = capsys.readouterr().out
    assert "None" not in shown
    assert "1.5" in shown
