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


def test_the_real_denoiser_runs_behind_the_widget(qtbot, scan):
    viewer = ViewerModel()
    viewer.add_image(scan, name="scan", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget)
    for name, value in {
        "steps": 3,
        "patch_size": 16,
        "batch_size": 2,
        "precision": "float32",
    }.items():
        widget.form.fields[name].set(value)
    widget._run_button.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert "Denoised" in widget._result.text()
    result = viewer.layers["scan denoised"]
    assert result.data.shape == scan.shape
    assert result.dtype == np.float32
    assert tuple(result.scale) == (2, 0.5, 0.5)
    assert {str(unit) for unit in result.units} == {"millimeter"}
    record = result.metadata[KEY]["provenance"]
    assert record["settings"]["steps"] == 3
    assert record["input"]["name"] == "scan"
