from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import hushpore
from hushpore import Volume
from hushpore.runs.pore_result import open_regions, open_result, read_result_table
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from pathlib import Path


def test_tables_without_rows_come_back_with_the_types_of_the_job(tmp_path: Path) -> None:
    void = np.zeros((8, 9, 10), bool)
    void[3:5, 3:5, 3:5] = True
    none = hushpore.segment_pores(Volume(void), minimum_voxels=9)
    found = open_result(write_result(tmp_path / "none", [none], none.volume))
    pd.testing.assert_frame_equal(found.pores, none.pores)
    pd.testing.assert_frame_equal(found.throats, none.throats)
    # so that what is asked of a table can be asked of one without rows
    assert found.pores.query("not is_open").empty


def test_phases_that_touch_nowhere_come_back_as_numbers(tmp_path: Path) -> None:
    labels = np.ones((8, 9, 10), np.uint8)
    one = hushpore.measure_phases(Volume(labels), are_labels=True, regions=True)
    folder = write_result(tmp_path / "one", [one], one.volume)
    touching = open_regions(folder).throats
    pd.testing.assert_frame_equal(touching, one.region_contacts)
    contacts = read_result_table(folder / "contacts.csv")
    assert contacts.empty
    assert [contacts[name].dtype.kind for name in ("phase_1", "phase_2", "area")] == list("iif")
