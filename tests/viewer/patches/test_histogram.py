import numpy as np
import pytest
from napari.components import ViewerModel
from qtpy.QtCore import QPoint, Qt

from hushpore.viewer.patches.panel import PatchHistogram


@pytest.fixture
def histogram(qtbot):
    found = PatchHistogram(ViewerModel())
    qtbot.addWidget(found)
    found.resize(212, 90)
    found.show_values("mean", np.linspace(100, 200, 500))
    found.show()
    return found


def drag(qtbot, histogram, start, end):
    qtbot.mousePress(histogram, Qt.MouseButton.LeftButton, pos=QPoint(start, 40))
    qtbot.mouseMove(histogram, QPoint(end, 40))
    qtbot.mouseRelease(histogram, Qt.MouseButton.LeftButton, pos=QPoint(end, 40))


def test_dragging_chooses_a_range_in_either_direction(qtbot, histogram):
    told = []
    histogram.chosen.connect(told.append)
    drag(qtbot, histogram, 56, 106)
    assert told[-1] == pytest.approx((125, 150))
    drag(qtbot, histogram, 106, 56)
    assert told[-1] == pytest.approx((125, 150))


def test_a_range_ends_with_the_values(qtbot, histogram):
    drag(qtbot, histogram, 106, 500)
    assert histogram.range == pytest.approx((150, 200))


def test_a_click_clears_the_range(qtbot, histogram):
    histogram.choose(110, 120)
    drag(qtbot, histogram, 50, 51)
    assert histogram.range is None


@pytest.mark.parametrize("values", [[], [3.0, 3.0], [np.nan, 1.0, 2.0]])
def test_few_or_strange_values_are_drawn(histogram, values):
    histogram.show_values("loss", np.array(values, float))
    histogram.choose(1, 2)
    assert not histogram.grab().isNull()
    assert "loss" in histogram.accessibleName()
