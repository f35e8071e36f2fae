from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from hushpore import InputError, Volume, segment_pores
from hushpore.pores.stored import restored

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
