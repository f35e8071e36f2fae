"""Forms of fields, on plates, struts and balls whose values are known."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import hushpore
from hushpore import InputError, Volume
from hushpore.pores.forms.tables import COLUMNS, FORMS, form_of
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def form(name: str, void: np.ndarray, spacing: float = 0.05, **settings: Any) -> pd.DataFrame:
    """A form of a phantom in mm, by symbol."""
    volume = Volume(void, spacing=spacing, unit="mm")
    found = hushpore.segment_pores(volume, exterior="keep", **settings)
    return found.form(name).set_index("symbol")


def struts(cells: int, pitch: int, width: int) -> np.ndarray:
    """Square struts through the middle of each cell along the three axes; True in the void."""
    middle = np.abs(np.arange(cells * pitch) % pitch - pitch // 2) <= width // 2
    z, y, x = np.meshgrid(middle, middle, middle, indexing="ij")
    return ~((z & y) | (y & x) | (z & x))


def test_settings_name_the_forms_that_there_are() -> None:
    fields = resources.files("hushpore.pores.forms") / "fields"
    assert {f"{name}.toml" for name in FORMS} == {file.name for file in fields.iterdir()}


@pytest.mark.parametrize("name", FORMS)
def test_every_line_has_a_value_with_a_definition_or_a_reason(
    name: str, balls: Callable[..., np.ndarray]
) -> None:
    table = form(name, balls((40, 40, 40), [(12, 12, 12), (28, 28, 12)], 7)).reset_index()
    assert sorted(table.columns) == sorted(COLUMNS)
    assert table["symbol"].is_unique
    assert (table["reference"] != "").all()
    has_value = table["value"].notna()
    assert has_value.any()
    assert (table.loc[has_value, "definition"] != "").all()
    assert (table.loc[has_value, "missing"] == "").all()
    assert (table.loc[~has_value, "missing"] != "").all()


def test_bone_of_plates_has_their_thickness_separation_and_number() -> None:
    # 8 voxels of bone (0.4 mm), 12 of marrow (0.6 mm)
    void = (np.arange(80) - 6) % 20 >= 8
    volume = np.broadcast_to(void[:, None, None], (80, 60, 60)).copy()
    bone = form("bone", volume, local_thickness="both")["value"]
    assert bone["TV"] == pytest.approx(4 * 3 * 3)
    assert bone["BV/TV"] == pytest.approx(40)
    assert bone["BV"] == pytest.approx(0.4 * 36)
    assert bone["BS"] == pytest.approx(8 * 9, rel=0.02)
    assert bone["BS/BV"] == pytest.approx(5, rel=0.02)
    assert bone["Tb.Th"] == pytest.approx(0.4, abs=0.05)
    assert bone["Tb.Sp"] == pytest.approx(0.6, abs=0.05)
    assert bone["Tb.N"] == pytest.approx(1, rel=0.1)
    assert bone["Tb.N (plates)"] == pytest.approx(1, rel=0.02)
    assert bone["Tb.Th (plates)"] == pytest.approx(0.4, rel=0.02)
    # plates that reach the faces all around add nothing to the Euler number of larger ones
    assert bone["Conn.D"] == pytest.approx(1 / 36)


def test_bone_of_struts_has_two_loops_a_cell_and_is_isotropic() -> None:
    bone = form("bone", struts(4, 15, 5), local_thickness="both")["value"]
    cells, side = 4**3, 4 * 15 * 0.05
    assert bone["Conn.D"] == pytest.approx((1 + 2 * cells) / side**3)
    assert bone["BV/TV"] == pytest.approx(100 * (3 * 25 * 15 - 2 * 125) / 15**3)
    assert bone["DA"] == pytest.approx(1, abs=0.01)
    # square rods that meet in nodes: near 4
    assert bone["Tb.Th BS/BV"] == pytest.approx(4, abs=0.8)


def test_bone_names_what_it_cannot_give() -> None:
    void = struts(2, 15, 5)
    bone = form("bone", void)
    assert np.isnan(bone.loc["Tb.Th", "value"])
    assert "--local-thickness both" in bone.loc["Tb.Th", "missing"]
    assert "concave" in bone.loc["SMI", "missing"]
    opened = form("bone", void, pore_type="open")
    assert "--pore-type all" in opened.loc["BS/TV", "missing"]
    mask = np.zeros(void.shape, bool)
    mask[2:-2, 2:-2, 2:-2] = True
    volume = Volume(void, auxiliary={"mask": mask})
    masked = hushpore.segment_pores(volume, sample_mask="mask").form("bone").set_index("symbol")
    assert "Crop" in masked.loc["Conn.D", "missing"]


def test_foam_of_boxes_has_their_pitch_along_each_axis() -> None:
    # closed cells of 9 x 14 x 19 voxels between walls of one
    z, y, x = np.indices((60, 60, 60))
    void = (z % 10 != 0) & (y % 15 != 0) & (x % 20 != 0)
    foam = form("foam", void)["value"]
    # lines that run within walls meet none
    meets = {"z": (14 * 19) / 300, "y": (9 * 19) / 200, "x": (9 * 14) / 150}
    for axis, walls in zip("zyx", (6, 4, 3), strict=True):
        # of the first wall one side is the face of the volume, over which nothing is crossed
        chord = 2 * 59 / (2 * walls - 1)
        assert foam[f"t_{axis}"] == pytest.approx(chord * 0.05 / meets[axis])
        assert foam[f"d_{axis}"] == pytest.approx(1.621 * foam[f"t_{axis}"], rel=1e-3)
    assert foam["rho/rho_s"] == pytest.approx(100 * (1 - 9 * 14 * 19 / 3000))
    assert foam["N_v"] == pytest.approx(6 * 4 * 3 / 0.3**3)
    assert foam["D"] == pytest.approx(0.05 * (6 / np.pi * 9 * 14 * 19) ** (1 / 3))
    assert foam["O_v"] + foam["psi"] == pytest.approx(foam["phi"])


def test_casting_tells_of_the_largest_pore(balls: Callable[..., np.ndarray]) -> None:
    large = balls((60, 60, 60), [(20, 30, 30)], 12)
    void = large | balls((60, 60, 60), [(50, 10, 50)], 4)
    casting = form("casting", void)["value"]
    places = np.argwhere(large)
    assert casting["N"] == 2
    assert casting["d_max"] == pytest.approx(0.05 * (6 / np.pi * large.sum()) ** (1 / 3))
    assert casting["a_max"] == pytest.approx(0.05 * places.min())
    sides = places.max(axis=0) + 1 - places.min(axis=0)
    assert casting["L_max"] == pytest.approx(0.05 * np.linalg.norm(sides))
    assert casting["A_min"] == pytest.approx(0.05 * np.sqrt(30**2 + 20**2 + 20**2))
    assert casting["N(d>=0.5)"] == 1
    assert casting["N(d>=0.2)"] == 2
    assert casting["P"] == pytest.approx(100 * void.mean())


def test_bread_counts_cells_in_cubic_centimetres(balls: Callable[..., np.ndarray]) -> None:
    centres = [(z, y, x) for z in (15, 45) for y in (15, 45) for x in (15, 45)]
    bread = form("bread", balls((60, 60, 60), centres, 10), spacing=0.1)
    assert bread.loc["N_c", "unit"] == "cm^-3"
    assert bread.loc["N_c", "value"] == pytest.approx(8 / 0.6**3)
    assert bread.loc["f_cl", "value"] == 100
    assert bread.loc["f_con", "value"] == 0
    assert bread.loc["V_10", "value"] == pytest.approx(12.5)


def test_an_interval_of_the_porosity_is_that_of_the_form() -> None:
    noise = np.random.default_rng(0).normal(0, 3, (40, 40, 40))
    waves = np.cos(2 * np.pi * np.indices((40, 40, 40)) / 10).sum(axis=0)
    volume = Volume((100 - 40 * np.clip(2 * waves, -1, 1) + noise).astype(np.float32))
    found = hushpore.segment_pores(volume, intervals=True, exterior="keep")
    bone = found.form("bone").set_index("symbol").loc["BV/TV"]
    totals = found.provenance["result"]
    expected = [100 * (1 - totals[f"porosity_{end}"]) for end in ("high", "low")]
    assert [bone["low"], bone["high"]] == pytest.approx(expected)
    # without a voxel size lengths stay what they are
    assert found.form("bone").set_index("symbol").loc["TV", "unit"] == "pixel^3"


def test_an_unknown_form_is_refused() -> None:
    found = hushpore.segment_pores(np.zeros((8, 8, 8), bool))
    with pytest.raises(InputError, match="Available: bone"):
        found.form("wood")


@pytest.mark.parametrize("name", FORMS)
def test_a_volume_without_pores_and_an_image_have_every_form(name: str) -> None:
    for void in (np.zeros((9, 9, 9), bool), np.ones((9, 9, 9), bool), np.eye(20, dtype=bool)):
        assert len(form(name, void)) == len(form_of(name).entries)


def test_the_form_is_a_file_and_a_part_of_the_report(
    tmp_path: Path, balls: Callable[..., np.ndarray]
) -> None:
    volume = Volume(balls((30, 30, 30), [(15, 15, 15)], 8), spacing=0.1, unit="mm")
    found = hushpore.segment_pores(volume, report_form="casting")
    folder = write_result(tmp_path / "out", [found], volume)
    table = pd.read_csv(folder / "form.csv", keep_default_na=False)
    assert table["symbol"].tolist() == [entry.symbol for entry in form_of("casting").entries]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h2>Casting (in the sense of BDG P 203)</h2>" in page
    assert "Diameter of the largest pore" in page
    assert "Not in this scan" in page
    assert "form" not in hushpore.segment_pores(volume).files().tables
