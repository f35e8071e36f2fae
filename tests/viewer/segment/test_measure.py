"""Labels of another program, measured in the window."""

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.volume import Volume
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.results.pore_layer import tables_of
from hushpore.viewer.segment.measure import MeasureWidget
from hushpore.viewer.segment.merge_height import MergeHeight
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def labels() -> np.ndarray:
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((12, 30, 40)), 2)
    return ndimage.label(smooth < np.quantile(smooth, 0.2))[0]


def test_a_labels_layer_is_measured_with_its_own_labels(
    qtbot: Any, viewer: Any, labels: np.ndarray
) -> None:
    scan = np.random.default_rng(1).integers(0, 900, labels.shape).astype(np.uint16)
    viewer.add_image(scan, name="scan", scale=(2, 2, 2), units=("um",) * 3)
    viewer.add_labels(labels, name="avizo", scale=(2, 2, 2), units=("um",) * 3)
    widget = MeasureWidget(viewer)
    qtbot.addWidget(widget.native)
    assert widget.layer.value is viewer.layers["avizo"]
    merging = MergeHeight(viewer)
    qtbot.addWidget(merging)
    widget.run()
    result = widget.wait()
    layer = viewer.layers.selection.active
    np.testing.assert_array_equal(layer.data, labels)
    tables = tables_of(layer)
    assert tables is not None
    assert len(tables.pores) == labels.max()
    expected = hushpore.measure_labels(result.volume, values="labels").pores
    np.testing.assert_allclose(tables.pores["volume"], expected["volume"])
    assert layer.metadata[METADATA_KEY]["provenance"]["job"] == "measure"
    # measured labels are not merged again, and are not the next input
    assert merging.layer is None
    assert not MeasureWidget.prefers(layer)


def test_the_pores_widget_has_a_link_to_the_measurement(
    qtbot: Any, viewer: Any, labels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = viewer.add_labels(labels, name="avizo")
    viewer.add_labels(labels, name="another")
    widget, other = PoresWidget(viewer), MeasureWidget(viewer)
    for each in (widget, other):
        qtbot.addWidget(each.native)
    opened = []
    monkeypatch.setattr(
        "hushpore.viewer.job_widget.open_beside",
        lambda native, viewer, name: opened.append(name) or other,
    )
    widget.layer.value = layer
    assert "Measure these labels" in widget._facts.text()
    other.layer.value = viewer.layers["another"]
    widget._facts.linkActivated.emit("measure")
    assert opened == ["Measure labels"]
    assert other.layer.value is layer


def test_an_image_of_labels_is_asked_about_before_it_is_segmented(
    qtbot: Any, viewer: Any, labels: np.ndarray
) -> None:
    viewer.add_image(labels.astype(np.uint16), name="avizo")
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    said = widget.facts(Volume(labels.astype(np.uint16)))
    assert said.endswith("labels of another program, not grey values ⚠ Measure these labels")
    grey = np.random.default_rng(1).integers(0, 900, labels.shape).astype(np.uint16)
    assert "labels" not in widget.facts(Volume(grey))
