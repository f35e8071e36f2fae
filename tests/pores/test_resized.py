from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hushpore import InputError, Volume, segment_pores
from hushpore.pores.tables.measures import PORES, THROATS, resized_table
from hushpore.pores.tables.totals import is_proportional, resized_totals
from hushpore.runs.scan_recipe import with_voxel_size


@pytest.fixture
def foam() -> np.ndarray:
    """Touching balls of several sizes, noisy."""
    rng = np.random.default_rng(3)
    z, y, x = np.mgrid[:24, :40, :40]
    void = np.zeros(z.shape, bool)
    for centre, radius in zip(rng.uniform(4, 36, (14, 3)), rng.uniform(3, 7, 14), strict=True):
        void |= (
            (z - centre[0] * 0.6) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2
        ) < radius**2
    return np.where(void, 40, 180).astype(np.uint8)


@pytest.mark.parametrize(
    "settings", [{}, {"merge_height": 2.0}, {"merging": "snow"}, {"minimum_voxels": 60}]
)
def test_another_voxel_size_gives_what_a_run_with_it_gives_to_the_last_digit(
    foam: np.ndarray, settings: dict[str, object]
) -> None:
    unknown = Volume(foam, name="foam")
    resized = segment_pores(unknown, **settings).resized((15.4,) * 3, "um")
    truth = segment_pores(with_voxel_size(unknown, "15.4um"), **settings)
    pd.testing.assert_frame_equal(resized.pores, truth.pores, check_exact=True)
    pd.testing.assert_frame_equal(resized.throats, truth.throats, check_exact=True)
    assert resized.provenance["result"] == truth.provenance["result"]
    assert resized.provenance["input"] == truth.provenance["input"]
    assert resized.headline == truth.headline
    # and goes on like it
    again = resized.remerge(3.0)
    pd.testing.assert_frame_equal(again.pores, truth.remerge(3.0).pores, check_exact=True)


def test_voxels_of_another_shape_have_to_be_segmented_again(foam: np.ndarray) -> None:
    with pytest.raises(InputError, match="Segment the pores again"):
        segment_pores(foam).resized((5.0, 0.5, 0.5), "mm")
    assert is_proportional((2.0, 1.0, 1.0), (0.2, 0.1, 0.1))
    assert not is_proportional((1.0, 1.0, 1.0), (0.2, 0.1, 0.1))


def test_tables_alone_are_resized_like_the_result(foam: np.ndarray) -> None:
    origin = (10.0, 20.0, 30.0)
    before = segment_pores(Volume(foam, spacing=0.5, unit="mm", origin=origin), report_form="foam")
    assert "surface_distance" in before.pores_of_form
    truth = before.resized((0.02,) * 3, "mm")
    ratio = np.full(3, 0.02 / 0.5)
    pores = resized_table(before.pores_of_form, PORES, origin, ratio)
    throats = resized_table(before.throats, THROATS, origin, ratio)
    pd.testing.assert_frame_equal(pores, truth.pores_of_form, rtol=1e-9)
    pd.testing.assert_frame_equal(throats, truth.throats, rtol=1e-9)
    totals = resized_totals(before.provenance["result"], float(ratio[0]), "mm")
    expected = truth.provenance["result"]
    numbers = {name for name, value in expected.items() if isinstance(value, float)}
    assert {"median_diameter", "specific_surface"} <= numbers
    for name, value in expected.items():
        assert totals[name] == (pytest.approx(value, rel=1e-9) if name in numbers else value)
    assert totals.keys() == expected.keys()


def test_an_image_of_pores_is_resized_too(foam: np.ndarray) -> None:
    flat = Volume(foam[12])
    resized = segment_pores(flat).resized((3.0, 3.0), "nm")
    truth = segment_pores(Volume(foam[12], spacing=3.0, unit="nm"))
    pd.testing.assert_frame_equal(resized.pores, truth.pores, check_exact=True)
    ratio = np.full(2, 3.0)
    table = resized_table(segment_pores(flat).pores, PORES, (0.0, 0.0), ratio)
    pd.testing.assert_frame_equal(table, truth.pores, rtol=1e-9)
