import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image, Labels

from hushpore.viewer.denoise import DenoiseWidget
from hushpore.viewer.layers import KEY

RESULT = {KEY: {"provenance": {"job": "denoise"}}}


@pytest.mark.parametrize(
    ("layer", "accepted"),
    [
        (Image(np.zeros((4, 8, 8))), True),
        (Image(np.zeros((8, 8, 3), np.uint8), rgb=True), False),
        (Image(np.zeros((4, 8, 8), bool)), False),
        (Labels(np.zeros((4, 8, 8), int)), False),
    ],
    ids=["grey", "colour", "mask", "labels"],
)
def test_only_grey_images_can_be_denoised(layer, accepted):
    assert DenoiseWidget.accepts(layer) is accepted


def test_what_is_denoised_already_is_not_taken_unasked():
    layer = Image(np.zeros((4, 8, 8)), metadata=RESULT)
    assert DenoiseWidget.accepts(layer)
    assert not DenoiseWidget.prefers(layer)


@pytest.fixture
def widget(qtbot, scan):
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget)
    for name, value in {"patch_size": 16, "batch_size": 2, "precision": "float32"}.items():
        widget.form.fields[name].set(value)
    return widget


def test_the_real_denoiser_can_be_finished_early(qtbot, widget):
    widget.form.fields["steps"].set(100_000)
    widget._run_button.click()
    qtbot.waitUntil(widget._finish_button.isEnabled, timeout=60_000)
    widget._finish_button.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert widget._result.text().startswith("Finished early. Denoised")
    record = widget._viewer.layers["scan denoised"].metadata[KEY]["provenance"]
    assert 0 < record["result"]["steps"] < 100_000
    assert any("Stopped early" in note for note in record["notes"])


def test_the_real_denoiser_runs_behind_the_widget(qtbot, widget, scan):
    widget.form.fields["steps"].set(3)
    widget._run_button.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert "Denoised" in widget._result.text()
    result = widget._viewer.layers["scan denoised"]
    assert result.data.shape == scan.shape
    assert result.dtype == np.float32
    assert tuple(result.scale) == (2, 0.5, 0.5)
    assert {str(unit) for unit in result.units} == {"millimeter"}
    record = result.metadata[KEY]["provenance"]
    assert record["settings"]["steps"] == 3
    assert record["input"]["name"] == "scan"
