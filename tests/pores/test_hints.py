import numpy as np
import pytest

from hushpore.base.volume import Volume
from hushpore.pores.phases.settings import PhaseSettings
from hushpore.pores.preview import GreySurvey
from hushpore.pores.settings import PoreSettings
from hushpore.pores.void.threshold import Range
from hushpore.scan.histogram import Histogram

#: 100 voxels of -1000, 200 of 0 and 700 of 200.
GREYS = GreySurvey(
    Histogram(np.array([100, 200, 700]), np.array([-1000.0, 0.0, 200.0])),
    Range(-1000, 200),
    unit="HU",
)


def said(name, known=None, **settings):
    return PoreSettings(**settings).hints({"greys": GREYS} if known is None else known)[name]


def test_a_number_says_how_much_of_the_scan_is_void():
    assert said("threshold", threshold=-500.0) == "Void 10 % of the whole scan."
    assert said("threshold", threshold=0.0) == "Void 30 % of the whole scan."
    assert said("threshold", threshold=-5.0, pores_are="bright") == "Void 90 % of the whole scan."
    strict = said("threshold", threshold=0.0, hysteresis=-500.0)
    assert strict == "Void at most 30 % of the whole scan."


def test_a_method_says_which_number_it_finds():
    settings = PoreSettings()
    GREYS.find(settings)
    assert said("threshold") == "Otsu -1000 HU: void 10 % of the whole scan."


def test_nothing_is_said_of_a_threshold_that_is_not_known_yet():
    assert "threshold" not in PoreSettings(threshold="li").hints({"greys": GREYS})
    assert "threshold" not in PoreSettings().hints({})


def test_of_two_values_it_is_said_which_is_pore():
    mask = GreySurvey(Histogram(np.array([3, 7]), np.array([0.0, 1.0])), Range(0, 1))
    dark, bright = (
        said("threshold", {"greys": mask}, threshold=0.0, pores_are=phase)
        for phase in ("dark", "bright")
    )
    assert dark.endswith("The image has only two values, 0 and 1; 0 is pore (Pores are).")
    assert bright.endswith("1 is pore (Pores are).")
    assert "two values" not in said("threshold", threshold=0.0)


def test_shares_are_of_the_sample_once_it_is_known():
    sample = Histogram(np.array([20, 100, 680]), GREYS.histogram.centers)
    known = {"greys": GREYS, "sample": sample}
    assert said("threshold", known, threshold=0.0) == "Void 15 % of the sample."
    bright = said("threshold", known, threshold=0.0, pores_are="bright")
    assert bright == "Void 85 % of the sample."
    assert said("hysteresis", known, threshold=0.0, hysteresis=-500.0).startswith(
        "2.5 % of the sample is darker"
    )


@pytest.mark.parametrize(
    ("threshold", "pores_are", "begins"),
    [(-2000.0, "dark", "no"), (300.0, "dark", "all"), (300.0, "bright", "no")],
)
def test_a_number_beyond_all_grey_values_is_pointed_out(threshold, pores_are, begins):
    text = said("threshold", threshold=threshold, pores_are=pores_are)
    assert text.startswith(f"{begins.capitalize()} voxels are")
    assert text.endswith("(grey values range from -1000 to 200 HU).")


def test_a_method_that_fails_says_why():
    settings = PoreSettings(threshold="minimum")
    GREYS.find(settings)
    assert "finds no threshold" in said("threshold", threshold="minimum")


def test_a_local_threshold_says_where_it_comes_from():
    assert "51 voxels around it" in said("threshold", threshold="sauvola")


def test_the_stricter_threshold_must_be_stricter():
    assert (
        said("hysteresis", threshold=0.0, hysteresis=50.0) == "Must be below the threshold, 0 HU."
    )
    assert said("hysteresis", threshold=0.0, hysteresis=-500.0).startswith("10 % of the whole scan")


def test_the_merge_height_is_said_as_a_length():
    volume = Volume(np.zeros((4, 4, 4)), (5.0, 2.0, 2.0), "um")
    assert "at least 6 voxels narrower" in said("merge_height", merge_height=3.0)
    assert "at least 12 µm narrower" in said("merge_height", {"volume": volume}, merge_height=3.0)
    assert "split pores" in said("merge_height", merge_height=0.2)
    assert "0.5 voxels smooths out" in said("merge_height", merge_height=0.5)
    assert said("merge_height") == "Chosen from the pore size; shown with the result."


def unused(**settings):
    return PoreSettings(**settings).unused({})


def test_settings_without_effect_say_what_they_are_for():
    local, greys = (
        {"local_window", "local_window_by_slice", "sauvola_k"},
        {"void_grey", "solid_grey"},
    )
    assert set(unused()) == local | greys | {"periodic_sides"}
    assert "periodic_sides" not in unused(transport="diffusion")
    assert not greys & set(unused(subvoxel_porosity=True))
    assert "ball_radius" in unused(exterior="keep")
    assert {"otsu_classes", "hysteresis"} <= set(unused(threshold="sauvola"))
    assert unused(merging="snow")["merge_height"].startswith("Not used: SNOW merges basins")
    assert {"merge_height", "merging"} <= set(unused(markers="seeds"))
    assert {"exterior", "ball_radius"} <= set(unused(sample_mask="disc", exterior="remove"))
    assert "ball_radius" not in unused(exterior="remove")
    regions = PhaseSettings().unused({})
    assert {"merge_height", "merge_overlapping"} <= set(regions)
    assert not {"merge_height", "merge_overlapping"} & set(PhaseSettings(regions=True).unused({}))


def test_what_a_job_would_refuse_can_be_set_back():
    assert "otsu_classes" not in unused(threshold="li", otsu_classes=3)
    assert "hysteresis" not in unused(threshold="niblack", hysteresis=3.0)


def test_of_a_void_no_grey_value_counts():
    reasons = PoreSettings().unused({"is_void": True})
    assert "without grey values" in reasons["threshold"]
    assert "merge_height" not in reasons
