"""A scan flattened in the window."""

import numpy as np
import pytest
from napari.components import ViewerModel

from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.io.flatten import Flattened
from hushpore.io.results import write_image
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.viewer.layers.conversion import READ, known_of
from hushpore.viewer.layers.crop_layers import Part, crop_job
from hushpore.viewer.layers.reader import read_layers
from hushpore.viewer.layers.scan_panels import FlattenWidget

SHAPE = (40, 48, 48)


@pytest.fixture
def values():
    z, y, x = np.indices(SHAPE)
    pores = (z % 12 - 6) ** 2 + (y % 12 - 6) ** 2 + (x % 12 - 6) ** 2 <= 9
    noise = np.random.default_rng(0).normal(0, 300, SHAPE)
    return ((20000 - 10000 * pores) * (1 + 0.004 * x) + noise).astype(np.uint16)


def opened(values, path):
    viewer = ViewerModel()
    write_image(path, Volume(values, spacing=2, unit="um"))
    (layer,) = read_layers(str(path))
    viewer.add_image(layer[0], **layer[1])
    return viewer


@pytest.fixture
def viewer(values, tmp_path):
    return opened(values, tmp_path / "scan.tif")


@pytest.fixture
def widget(qtbot, viewer):
    widget = FlattenWidget(viewer)
    qtbot.addWidget(widget)
    widget.show()
    return widget


def test_the_preview_is_lazy_and_the_copy_is_what_rerun_reads(qtbot, viewer, widget):
    scan = viewer.layers[0]
    widget._show.click()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=30_000)
    preview = viewer.layers[1]
    assert preview.name == "scan (preview)"
    assert isinstance(preview.data, Flattened)
    assert "drifted by" in widget._result.html
    widget._run.click()
    qtbot.waitUntil(lambda: "Added" in widget._result.html, timeout=30_000)
    assert [each.name for each in viewer.layers] == ["scan", "scan flattened"]
    assert not scan.visible
    flat = viewer.layers[1]
    assert tuple(flat.scale) == tuple(scan.scale)
    recipe = ScanRecipe.of(known_of(flat)[READ])
    assert recipe.flatten == "bright"
    np.testing.assert_array_equal(recipe.read().data, flat.data)
    solid = flat.data[flat.data > 15000]
    assert solid.std() < 0.3 * scan.data[scan.data > 15000].std()
    # the field of a crop would be another one
    job = crop_job(viewer, flat, Part(((0, 20), (0, 48), (0, 48)), (1, 1, 1)))
    assert not known_of(result_of(job)[-1])[READ]


def test_the_preview_goes_with_the_widget(qtbot, viewer, widget):
    widget._show.click()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=30_000)
    widget.hide()
    assert len(viewer.layers) == 1


def test_without_drift_nothing_is_added(qtbot, values, tmp_path):
    even = np.where(values > 15000, 20000, 10000) + np.random.default_rng(1).normal(0, 300, SHAPE)
    viewer = opened(even.astype(np.uint16), tmp_path / "even.tif")
    widget = FlattenWidget(viewer)
    qtbot.addWidget(widget)
    widget._run.click()
    qtbot.waitUntil(lambda: "no clear drift" in widget._result.html, timeout=30_000)
    assert len(viewer.layers) == 1


def test_labels_are_not_offered(qtbot):
    viewer = ViewerModel()
    viewer.add_labels(np.ones((4, 8, 8), np.uint8))
    viewer.dims.axis_labels = ("z", "y", "x")
    widget = FlattenWidget(viewer)
    qtbot.addWidget(widget)
    assert not widget._run.isEnabled()
