"""The methods paragraph says what was done, and what the record does not hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
from hushpore import InputError, Volume
from hushpore.cli.commands import hushpore as command
from hushpore.runs.methods_text import MethodsText, methods_text
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def scan() -> Volume:
    """Three balls, one of which a face cuts."""
    places, void = np.indices((40, 40, 40)), np.zeros((40, 40, 40), bool)
    for centre in ((12, 12, 12), (28, 28, 12), (0, 20, 30)):
        void |= sum((p - c) ** 2 for p, c in zip(places, centre, strict=True)) < 49
    grey = np.where(void, 50, 200) + np.random.default_rng(0).normal(0, 8, void.shape)
    return Volume(grey.astype(np.uint8), spacing=0.012, unit="mm", name="scan")


def text_of(scan: Volume, **settings: Any) -> MethodsText:
    found = hushpore.segment_pores(scan, **settings)
    touches = found.pores["touches_border"].to_numpy()
    return methods_text({"jobs": [found.provenance]}, touches)


def test_it_names_scan_threshold_splitting_and_counts(scan: Volume) -> None:
    found = hushpore.segment_pores(scan, exterior="keep")
    text = text_of(scan, exterior="keep")
    threshold = found.threshold
    assert threshold is not None
    for part in (
        "40 x 40 x 40 voxels of 0.012 mm (uint8)",
        f"a grey value of {threshold:.4g} were segmented as void",
        "Otsu's method [1]",
        "watershed of its exact Euclidean distance map",
        "chosen from the typical pore radius",
        "3 pores, 1 of them (33 %) cut by faces of the volume",
        f"hushpore {hushpore.__version__}",
    ):
        assert part in text.paragraph
    assert text.references == ("10.1109/TSMC.1979.4310076",)
    assert any("--intervals" in each for each in text.missing)
    assert any("tube voltage" in each for each in text.missing)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"threshold": 120}, "grey value of 120, set by hand"),
        ({"pores_are": "bright", "threshold": 120}, "Voxels above a grey value"),
        ({"threshold": "sauvola", "local_window": 15}, "a window of 15 voxels and k = 0.2"),
        ({"threshold": 120, "hysteresis": 60}, "stricter threshold of 60"),
        ({"pore_type": "closed"}, "Only closed void was analysed."),
        ({"merging": "snow"}, "from the peaks of the SNOW algorithm [2]"),
        ({"merge_height": 1.5}, "1.5 voxels (set by hand)"),
        ({"minimum_voxels": 20}, "Pores of fewer than 20 voxels were excluded."),
        ({}, "Pores of fewer than 8 voxels were excluded."),
        ({"edge_pores": "remove"}, "Pores cut by faces of the volume were excluded."),
        ({"edge_pores": "sizes"}, "of the volume were excluded from the size statistics."),
        ({"local_thickness": "both"}, "mean local thickness of pores and solid [2]"),
        ({"intervals": True}, "90 % uncertainty interval of the porosity"),
    ],
)
def test_each_setting_has_its_sentence(scan: Volume, settings: dict[str, Any], part: str) -> None:
    text = text_of(scan, exterior="keep", **settings)
    assert part in text.paragraph
    assert ("set to this value" in " ".join(text.missing)) == (settings.get("threshold") == 120)
    assert ("--intervals" in " ".join(text.missing)) != ("intervals" in settings)


def test_air_and_a_mask_are_named(scan: Volume) -> None:
    wide = scan.replace(np.pad(scan.array(), 15, constant_values=20))
    assert "rolling ball of a radius of" in text_of(wide, exterior="remove").paragraph
    mask = np.ones(scan.shape, bool)
    mask[:5] = False
    masked = Volume(scan.data, auxiliary={"mask": mask})
    text = text_of(masked, sample_mask="mask")
    assert "delimited by a mask" in text.paragraph
    assert any("--voxel-size" in each for each in text.missing)


def test_a_volume_without_pores_and_an_image_have_a_text() -> None:
    assert "0 pores" in text_of(Volume(np.zeros((9, 9, 9), bool))).paragraph
    assert "binary image of the void" in text_of(Volume(np.eye(20, dtype=bool))).paragraph


def test_denoising_is_named_with_its_method(data_folder: Path) -> None:
    record = json.loads((data_folder / "results" / "run" / "result.json").read_text())
    text = methods_text(record)
    assert "denoised by Recorrupted-to-Recorrupted [1]" in text.paragraph
    assert "(2D, 3 training steps, seed 2)" in text.paragraph
    assert text.references[0] == "10.1109/CVPR46437.2021.00208"
    with pytest.raises(InputError, match="pore result"):
        methods_text({"jobs": record["jobs"][:1]})


def test_it_is_in_the_report_and_on_the_command_line(scan: Volume, tmp_path: Path) -> None:
    found = hushpore.segment_pores(scan, exterior="keep")
    folder = write_result(tmp_path / "out", [found], scan)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h2>Methods, ready to paste</h2>" in page
    done = CliRunner().invoke(command, ["methods", str(folder)])
    assert done.exit_code == 0
    assert "1 of them (33 %) cut by faces" in done.output
    assert "[1] https://doi.org/10.1109/TSMC.1979.4310076" in done.output
    as_json = json.loads(CliRunner().invoke(command, ["methods", str(folder), "--json"]).output)
    assert as_json["paragraph"] in done.output
