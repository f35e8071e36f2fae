import gc
import threading
import weakref

import dask.array
import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image, Labels

import hushpore
from hushpore.base.formatting import readable_duration
from hushpore.base.volume import Volume
from hushpore.scan import noise
from hushpore.viewer.denoise import widget as denoise_widget
from hushpore.viewer.denoise.widget import DenoiseWidget, NoiseLine
from hushpore.viewer.layers.conversion import METADATA_KEY

pytestmark = pytest.mark.usefixtures("small_network")

RESULT = {METADATA_KEY: {"provenance": {"job": "denoise"}}}


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
    qtbot.addWidget(widget.native)
    for name, value in {"patch_size": 16, "batch_size": 2, "precision": "float32"}.items():
        widget.form[name].value = value
    return widget


def test_the_real_denoiser_can_be_finished_early(qtbot, widget):
    widget.steps.value = 100_000
    widget._buttons.run.click()
    qtbot.waitUntil(widget._buttons.finish.isEnabled, timeout=60_000)
    widget._buttons.finish.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert widget._result.text().startswith("<b>Denoised")
    provenance = widget._viewer.layers["scan · denoised"].metadata[METADATA_KEY]["provenance"]
    assert 0 < provenance["result"]["steps"] < 100_000
    assert any("Training stopped by the user" in note for note in provenance["notes"])


def test_the_real_denoiser_runs_behind_the_widget(qtbot, widget, scan):
    widget.steps.value = 3
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert "Denoised" in widget._result.text()
    result = widget._viewer.layers["scan · denoised"]
    assert result.data.shape == scan.shape
    assert result.dtype == np.float32
    assert tuple(result.scale) == (2, 0.5, 0.5)
    assert {str(unit) for unit in result.units} == {"millimeter"}
    provenance = result.metadata[METADATA_KEY]["provenance"]
    assert provenance["settings"]["steps"] == 3
    assert provenance["input"]["name"] == "scan"


def test_after_a_run_the_form_says_how_long_the_next_one_takes(qtbot, widget, scan):
    line = widget.form._lines["steps"]
    assert line.text() == ""
    widget.steps.value = 25
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    provenance = widget._viewer.layers["scan · denoised"].metadata[METADATA_KEY]["provenance"]
    times, result = provenance["timings"], provenance["result"]
    widget.steps.value = 100_000
    expected = 100_000 * result["training_seconds"] / 25 + times["denoising"]
    assert line.text().startswith(f"About {readable_duration(expected)[:3]}")
    # of another kind there was none
    widget.dimensions.value = 3
    assert line.text() == ""
    widget.dimensions.value = 2
    assert line.text() != ""
    widget.run_on.value = "local:2"
    assert line.text() == ""


def test_a_cancelled_training_can_be_used_and_gone_on_with(qtbot, widget):
    widget.steps.value = 100_000
    widget._buttons.run.click()
    qtbot.waitUntil(widget._buttons.finish.isEnabled, timeout=60_000)
    widget.cancel()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert widget._result.text().startswith("Cancelled; scan is unchanged.")
    assert "Denoise with what was trained" in widget._result.text()
    widget._follow("apply")
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert widget._result.text().startswith("<b>Denoised")
    provenance = widget._viewer.layers["scan · denoised"].metadata[METADATA_KEY]["provenance"]
    resumed = next(
        note for note in provenance["notes"] if note.startswith("Resumed from the checkpoint")
    )
    assert provenance["result"]["steps"] > int(resumed.removesuffix(".").split()[-1]) > 0


def test_a_run_cancelled_before_it_learnt_anything_offers_nothing(widget):
    widget.settings()
    assert widget.after_cancel() == ""


@pytest.mark.parametrize("opened_as", [np.asarray, dask.array.asarray], ids=["numpy", "dask"])
def test_what_was_removed_is_a_hidden_layer_that_no_job_takes(qtbot, widget, scan, opened_as):
    widget._viewer.layers["scan"].data = opened_as(scan)
    widget.steps.value = 3
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    removed = widget._viewer.layers["scan · removed noise"]
    assert not removed.visible
    expected = scan - widget._viewer.layers["scan · denoised"].data
    np.testing.assert_allclose(np.asarray(removed.data), expected, rtol=1e-4, atol=1e-3)
    assert removed not in widget.layer._listed
    assert tuple(removed.scale) == (2, 0.5, 0.5)


def test_the_facts_say_what_the_noise_is_like(qtbot):
    rng = np.random.default_rng(0)
    viewer = ViewerModel()
    viewer.add_image(rng.normal(100, 20, (4, 64, 64)), name="white")
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    qtbot.waitUntil(lambda: "uncorrelated\xa0✓" in widget._facts.text())
    lines = rng.normal(100, 20, (4, 64, 1)) + rng.normal(0, 10, (4, 64, 64))
    viewer.add_image(lines, name="lines")
    qtbot.waitUntil(lambda: "noise: stripes along x\xa0⚠" in widget._facts.text())
    assert "'Correlation direction' = x" in widget._facts.text().replace("\xa0", " ")


def test_one_layer_is_looked_at_at_a_time_and_of_those_that_wait_the_last(qtbot, monkeypatch):
    looked_at, go_on = [], threading.Event()

    def look(volume, *args, **kwargs):
        looked_at.append(volume.shape[0])
        go_on.wait(20)
        raise ValueError

    monkeypatch.setattr(noise, "estimate_noise", look)
    line = NoiseLine()
    layers = [Image(np.zeros((n_slices, 16, 16))) for n_slices in (3, 4, 5)]
    line.text(layers[0], Volume(layers[0].data))
    qtbot.waitUntil(lambda: looked_at == [3])
    for layer in layers[1:]:
        line.text(layer, Volume(layer.data))
    gone = weakref.ref(layers[1].data)
    del layer, layers[1]
    gc.collect()
    assert gone() is None
    go_on.set()
    qtbot.waitUntil(lambda: not line._worker.is_busy)
    assert looked_at == [3, 5]


def test_rings_are_said_with_a_link_that_has_them_corrected(qtbot):
    rng = np.random.default_rng(0)
    radius = np.hypot(*(np.mgrid[:128, :128] - 63.5))
    rings = np.stack([np.interp(radius, np.arange(92), e) for e in rng.normal(0, 20, (6, 92))])
    viewer = ViewerModel()
    viewer.add_image(100 + rings + rng.normal(0, 10, rings.shape), name="ringed")
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    qtbot.waitUntil(lambda: "ring artefacts" in widget._facts.text())
    assert widget._facts.html.count('href="correct rings"') == 1
    widget._facts.linkActivated.emit("correct rings")
    assert widget.form.value.correct_rings
    # and shown without them, on the slice on the screen
    qtbot.waitUntil(lambda: widget.rings.layer is not None, timeout=20_000)
    preview, (scan, *_) = widget.rings.layer, viewer.layers
    assert preview.data.shape == (1, 128, 128)
    index = round(preview.translate[0])
    assert preview.data.std() < 0.7 * scan.data[index].std()
    assert preview.contrast_limits == scan.contrast_limits
    viewer.dims.set_point(0, 4)
    qtbot.waitUntil(lambda: not widget.rings.is_busy, timeout=20_000)
    assert tuple(preview.translate) == (4, 0, 0)
    np.testing.assert_allclose(preview.data[0].mean(), scan.data[4].mean(), atol=2)
    assert preview not in widget.layer._listed
    # with another voxel size it lies where the slice does
    widget._set_voxel_size("15um")
    qtbot.waitUntil(lambda: widget.rings.layer is not None and not widget.rings.is_busy)
    preview = widget.rings.layer
    assert (tuple(preview.scale), tuple(preview.translate)) == ((15,) * 3, (60, 0, 0))
    widget.form.correct_rings.value = False
    assert preview not in viewer.layers


def test_an_image_whose_noise_cannot_be_told_has_its_facts_all_the_same(qtbot):
    viewer = ViewerModel()
    viewer.add_image(np.eye(5), name="tiny")
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    qtbot.wait(200)
    assert widget._facts.text().startswith("5 x 5")


def test_what_is_found_about_the_noise_once_the_window_is_closed_is_let_go(qtbot):
    viewer = ViewerModel()
    viewer.add_image(np.eye(5))
    widget = DenoiseWidget(viewer)
    gone = []
    widget.native.destroyed.connect(lambda: gone.append(True))
    widget.native.deleteLater()
    qtbot.waitUntil(lambda: len(gone) == 1)
    widget._noise.found.emit()


def test_the_trained_model_is_saved_and_can_be_applied(qtbot, widget, tmp_path, monkeypatch):
    widget.steps.value = 3
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert "Save model" in widget._result.text()
    monkeypatch.setattr(denoise_widget, "ask_for_file", lambda *given: tmp_path / "bread")
    widget._result.linkActivated.emit("save model")
    file = tmp_path / "bread.safetensors"
    qtbot.waitUntil(file.exists)
    assert widget._saving.wait(60)
    model = hushpore.load_model(file)
    assert model.network.dimensions == 2
    # a model that is only applied is saved already
    widget.form.update({"model": str(file)})
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)
    assert "Denoised" in widget._result.text()
    assert "Save model" not in widget._result.text()
