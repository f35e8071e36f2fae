"""Transport as a function, and as a part of the results of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.base.events import Progress
from hushpore.base.volume import Volume
from hushpore.device.backend import Backend
from hushpore.jobs import start
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from pathlib import Path

rng = np.random.default_rng(0)
BLOBS = ndimage.gaussian_filter(rng.normal(size=(28, 30, 32)), 1.8)
VOID = np.quantile(BLOBS, 0.45) > BLOBS


def channel() -> Any:
    """Return a straight channel along x over a quarter of the cross-section."""
    void = np.zeros((8, 8, 12), bool)
    void[2:6, 2:6] = True
    return void


def test_of_a_channel_all_values_are_those_of_its_cross_section() -> None:
    found = hushpore.transport(Volume(channel(), spacing=(2, 2, 2), unit="um"))
    assert found.totals["effective_diffusivity_x"] == pytest.approx(0.25)
    assert found.totals["voxel_tortuosity_factor_x"] == pytest.approx(1)
    assert found.totals["voxel_formation_factor_x"] == pytest.approx(4)
    assert found.totals["effective_diffusivity_z"] is None
    assert list(found.maps) == ["flux_x"]
    assert found.profile["position"].tolist() == [2.0 * place for place in range(12)]
    assert found.profile["level"].tolist() == pytest.approx((11.5 - np.arange(12)) / 12)


def test_the_permeability_of_another_voxel_size_goes_with_its_square() -> None:
    large, small = (
        hushpore.transport(Volume(channel(), spacing=(size,) * 3, unit="um"), "flow")
        for size in (2, 1)
    )
    ratio = large.totals["voxel_permeability_x"] / small.totals["voxel_permeability_x"]  # type: ignore[operator]
    assert ratio == pytest.approx(4, rel=1e-4)


def test_labels_conduct_by_the_conductivities_of_their_values() -> None:
    layers = np.zeros((6, 6, 10), np.uint8)
    layers[:3] = 4
    found = hushpore.transport(layers, conductivities={0: 1.0, 4: 0.5}).totals
    assert found["effective_diffusivity_x"] == pytest.approx(0.75)
    assert found["effective_diffusivity_z"] == pytest.approx(2 / 3, rel=1e-4)
    assert found["voxel_tortuosity_factor_x"] == pytest.approx(1)


def test_an_image_has_diffusion_along_its_two_axes() -> None:
    found = hushpore.transport(channel()[4]).totals
    assert found["effective_diffusivity_x"] == pytest.approx(0.5)
    assert found["effective_diffusivity_y"] is None


@pytest.mark.parametrize(
    ("volume", "how", "problem"),
    [
        (np.zeros((5, 5, 5), bool), {}, "connects two opposite faces"),
        (rng.normal(size=(5, 5, 5)), {}, "grey values"),
        (np.arange(3, dtype=np.uint8).repeat(9).reshape(3, 3, 3), {}, "several phases"),
        (channel(), {"kind": "heat"}, "kind must be one of diffusion, flow, both"),
        (channel(), {"conductivities": (0.0,)}, "one of them above 0"),
        (channel()[4], {"kind": "flow"}, "Flow is solved in 3D"),
    ],
)
def test_an_input_without_transport_is_refused(volume: Any, how: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        hushpore.transport(volume, **how)


def test_jobs_have_the_values_of_the_function() -> None:
    expected = hushpore.transport(VOID).totals
    pores = hushpore.segment_pores(VOID, transport="diffusion", device="cpu")
    labels = hushpore.measure_labels(VOID, transport="diffusion")
    phases = hushpore.measure_phases(
        np.where(VOID, 2, 1), are_labels=True, transport="diffusion", conductivities="0, 1"
    )
    for found in (pores, labels, phases):
        record = found.provenance["result"]
        assert {name: record[name] for name in expected} == expected
        assert record["transport"]["diffusion_z"]["iterations"] > 5
        assert any("GB of memory" in note for note in found.notes)
        files = found.files()
        assert {"flux_z", "flux_y", "flux_x"} <= set(files.images)
        assert len(files.tables["transport"]) == sum(VOID.shape)
    assert hushpore.transport(pores).totals == expected
    assert hushpore.transport(phases, conductivities=(0, 1)).totals == expected


def test_forms_have_the_values_of_voxels_and_of_the_network_with_their_ratio() -> None:
    found = hushpore.segment_pores(VOID, transport="diffusion", device="cpu")
    form = found.form("electrode").set_index("symbol")["value"]
    assert form["tau_z"] == pytest.approx(form["N_M,z"] * VOID.mean())
    assert form["N_M,z"] == found.provenance["result"]["voxel_formation_factor_z"]
    assert form["N_net/N_M,z"] == pytest.approx(form["N_net,z"] / form["N_M,z"])
    rock = found.form("rock").set_index("symbol")
    assert rock.loc["F_z", "value"] == form["N_M,z"]
    assert "--transport flow" in rock.loc["k_z", "missing"]


def test_a_scan_with_air_around_the_sample_has_a_remark_in_place_of_transport() -> None:
    mask = np.ones(VOID.shape, bool)
    mask[:4] = False
    found = hushpore.segment_pores(VOID, sample_mask=mask, transport="diffusion", device="cpu")
    assert found.transport is None
    assert any("Crop the scan to the sample" in note.message for note in found.remarks)


def test_an_axis_that_nothing_connects_is_named_in_a_remark() -> None:
    found = hushpore.segment_pores(channel(), transport="diffusion", device="cpu")
    assert found.provenance["result"]["voxel_tortuosity_factor_x"] == pytest.approx(1)
    assert any("no transport along z, y:" in note.message for note in found.remarks)


def test_a_job_that_is_cancelled_during_transport_stops_and_can_run_again() -> None:
    job = start("pores", VOID, {"transport": "flow"}, "cpu")
    solving = (each for each in job if isinstance(each, Progress) and each.stage == "transport")
    assert next(solving).fraction < next(solving).fraction < 1
    job.close()
    with pytest.raises(StopIteration):
        next(job)
    again = hushpore.segment_pores(VOID, transport="flow", device="cpu")
    assert again.transport is not None
    assert again.transport.totals["voxel_permeability_z"]


def test_another_voxel_size_scales_permeability_and_positions() -> None:
    found = hushpore.segment_pores(channel(), transport="both", device="cpu")
    other = found.resized((3, 3, 3), "um")
    assert other.transport is not None
    name = "voxel_permeability_x"
    assert other.provenance["result"][name] == 9 * found.provenance["result"][name]
    assert other.transport.totals[name] == other.provenance["result"][name]
    assert other.transport.profile["position"].max() == 33


def test_a_correction_of_the_void_drops_the_transport() -> None:
    found = hushpore.segment_pores(channel(), transport="diffusion", device="cpu")
    hand = hushpore.Corrections(found)
    hand.delete([1])
    after = hand.result
    assert after.transport is None
    assert not any("voxel_" in name for name in after.provenance["result"] if name[0] == "v")


def test_a_volume_that_needs_more_memory_than_is_free_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Backend, "free_memory", lambda self: 1000)
    with pytest.raises(MemoryLimitError, match="Crop it or bin it"):
        hushpore.transport(channel())


def test_the_report_shows_the_flux_and_plots_show_the_profiles(tmp_path: Path) -> None:
    found = hushpore.measure_labels(VOID, transport="diffusion", values="mask")
    write_result(tmp_path / "result", [found], found.volume)
    page = (tmp_path / "result" / "report.html").read_text("utf-8")
    assert "Transport in voxels" in page
    assert "Slices of the diffusive flux" in page
    plots = hushpore.export_plots(tmp_path / "result", tmp_path / "plots", formats=["svg"])
    assert "transport.svg" in {path.name for path in plots}
