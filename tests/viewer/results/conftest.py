"""A result to correct by hand, and waiting for a correction; `panel` is that of each test file."""

from __future__ import annotations

import numpy as np
import pytest

from hushpore import Volume, segment_pores


@pytest.fixture
def given():
    void = np.zeros((11, 20, 60), bool)
    void[2:9, 3:10, 2:9] = void[2:9, 3:10, 10:17] = True  # a wall of one voxel between them
    void[3:8, 12:17, 25:50] = True
    return segment_pores(Volume(void, 2.0, "um", name="plugs"), merge_height=50)


@pytest.fixture
def after(qtbot, panel):
    """Do something, and wait until the correction is shown."""

    def do(act):
        with qtbot.waitSignal(panel.corrections.corrected):
            act()
        qtbot.waitUntil(lambda: not panel.corrections.is_busy)
        qtbot.wait(50)

    return do
