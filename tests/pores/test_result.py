from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from hushpore import InputError, Volume, segment_pores
from hushpore.pores.result import restored
from hushpore.pores.tables.measures import PORES, THROATS, resized_table
from hushpore.pores.tables.totals import is_proportional, resized_totals
from hushpore.runs.scan_recipe import with_voxel_size

if TYPE_CHECKING:
    from hushpore.pores.result import Pores


@pytest.fixture(scope="module")
def core() -> Volume:
    """A cylinder with pores, some of them open, and air around it."""
    rng = np.random.default_rng(1)
    z, y, x = np.mgrid[:20, :48, :48]
    solid = (y - 23.5) ** 2 + (x - 23.5) ** 2 < 20**2
    for at, radius in zip(rng.uniform(4, 44, (16, 3)), rng.uniform(2, 6, 16), strict=True):
        solid &= ((z - at[0] * 0.4) ** 2 + (y - at[1]) ** 2 + (x - at[2]) ** 2) > radius**2
    return Volume(np.where(solid, 200, 30).astype(np.uint8), 0.5, "mm", origin=(1, 2, 3))


@pytest.fixture(scope="module")
def result(core: Volume) -> Pores:
    return segment_pores(core)


@pytest.mark.parametrize(
    "settings",
    [{}, {"exterior": "remove", "ball_radius": 6}, {"merging": "snow"}, {"minimum_voxels": 40}],
)
def test_what_was_stored_merges_like_the_result_itself(core: Volume, settings: dict) -> None:
    result = segment_pores(core, **settings)
    again = restored(result.labels_volume, result.merging_arrays, result.provenance)
    pd.testing.assert_frame_equal(again.pores, result.pores, check_exact=True)
    pd.testing.assert_frame_equal(again.throats, result.throats, check_exact=True)
    np.testing.assert_array_equal(again.porosity_profile, result.porosity_profile)
    assert (again.headline, again.remarks) == (result.headline, result.remarks)
    merged, truth = again.remerge(2.0), result.remerge(2.0)
    np.testing.assert_array_equal(merged.labels, truth.labels)
    pd.testing.assert_frame_equal(merged.pores, truth.pores, check_exact=True)
    assert merged.provenance == truth.provenance


def test_an_image_is_stored_too(core: Volume) -> None:
    result = segment_pores(Volume(core.data[10]))
    again = restored(result.labels_volume, result.merging_arrays, result.provenance)
    np.testing.assert_array_equal(again.remerge(2.0).labels, result.remerge(2.0).labels)


def test_what_is_not_of_these_labels_is_refused(core: Volume) -> None:
    result = segment_pores(core)
    arrays = result.merging_arrays
    moved = result.labels_volume.replace(np.roll(result.labels, 5, axis=2))
    with pytest.raises(InputError, match="do not belong to these labels"):
        restored(moved, arrays, result.provenance)
    del arrays["graph_saddle"]
    with pytest.raises(InputError, match="are incomplete"):
        restored(result.labels_volume, arrays, result.provenance)


@pytest.mark.parametrize(
    ("name", "at"),
    [("graph_crossings", (1, 4)), ("graph_sums", (1, 5)), ("graph_contacts", (0, 2))],
)
def test_what_gives_other_figures_than_the_tables_is_refused(
    result: Pores, name: str, at: tuple[int, ...]
) -> None:
    """What nobody can see in the numbers, the tables beside them tell."""
    tables = {"pores": result.pores, "throats": result.throats}
    arrays = dict(result.merging_arrays)
    restored(result.labels_volume, arrays, result.provenance, tables)
    arrays[name] = arrays[name].copy()
    arrays[name][at] += 1
    with pytest.raises(InputError, match="do not match the table of"):
        restored(result.labels_volume, arrays, result.provenance, tables)


def test_pores_that_are_not_made_of_whole_basins_are_refused(result: Pores) -> None:
    values = result.labels.copy()
    values[tuple(np.argwhere(values)[0])] = 0
    with pytest.raises(InputError, match="do not belong to these labels"):
        restored(result.labels_volume.replace(values), result.merging_arrays, result.provenance)


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
