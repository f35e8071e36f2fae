"""Strokes in the window: a layer to paint on, the slice on the screen, and the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import hushpore
from hushpore import Volume
from hushpore.base.events import result_of
from hushpore.io.results import write_image
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.phases.classifier import LiveClassifier
from hushpore.runs.rerun import rerun
from hushpore.runs.result_folder import write_result
from hushpore.runs.scan_recipe import ScanRecipe, origin_of
from hushpore.viewer.phases import PhasesWidget

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE = (6, 48, 48)


@pytest.fixture
def scan() -> np.ndarray:
    """Stripes along y on the left and along x on the right, of the same grey values."""
    _, y, x = np.indices(SHAPE)
    wave = np.sin(2 * np.pi * np.where(x < 24, x, y) / 6)
    noise = np.random.default_rng(0).normal(0, 20, SHAPE)
    return np.rint(1000 + 100 * wave + noise).astype(np.uint16)


@pytest.fixture
def widget(qtbot: Any, viewer: Any, scan: np.ndarray) -> PhasesWidget:
    viewer.add_image(scan, name="scan", scale=(2, 2, 2), units=("um",) * 3)
    widget = PhasesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.native.show()
    return widget


def paint(layer: Any, z: int) -> None:
    """Paint a stroke on either side, as the brush does."""
    for label, x in ((1, 10), (2, 36)):
        layer.selected_label = label
        for y in range(12, 36, 2):
            layer.paint((z, y, x), label)


@pytest.fixture
def shown(qtbot: Any) -> Callable[[Any], None]:
    def wait(panel: Any) -> None:
        qtbot.waitUntil(lambda: not panel.is_busy, timeout=60000)

    return wait


def test_paint_makes_a_layer_with_a_colour_for_each_phase_and_the_brush_ready(
    widget: PhasesWidget, viewer: Any
) -> None:
    panel = widget.strokes_panel
    assert not panel.shown.isEnabled()
    panel.paint.click()
    layer = viewer.layers["scan · strokes"]
    assert (layer.mode, layer.selected_label, layer.dtype) == ("paint", 1, np.uint8)
    assert viewer.layers.selection.active is layer
    np.testing.assert_array_equal(layer.scale, viewer.layers["scan"].scale)
    assert widget.strokes.value == "scan · strokes"
    assert panel.shown.isChecked()
    assert not widget.thresholds.enabled
    assert widget.panel.histogram.lines == {}
    # a second click returns to the same layer
    layer.mode = "pan_zoom"
    panel.paint.click()
    assert layer.mode == "paint"
    assert [each.name for each in viewer.layers].count("scan · strokes") == 1


def test_the_slice_on_the_screen_follows_strokes_undo_and_the_slider(
    widget: PhasesWidget, viewer: Any, shown: Any
) -> None:
    panel = widget.strokes_panel
    panel.paint.click()
    layer = viewer.layers["scan · strokes"]
    viewer.dims.set_current_step(0, 2)
    for y in range(12, 36, 2):
        layer.paint((2, y, 10), 1)
    shown(panel)
    assert "Paint a few voxels of each phase" in panel._line.text()
    paint(layer, 2)
    shown(panel)
    preview = panel.previews[panel.shown].layer
    halves = preview.data[0, :, 4:20], preview.data[0, :, 28:44]
    assert [(half == label).mean() > 0.9 for half, label in zip(halves, (1, 2), strict=True)] == [
        True, True,
    ]  # fmt: skip
    assert panel._line.text() == ""
    assert viewer.layers.index(preview) < viewer.layers.index(layer)
    panel.doubt.setChecked(True)
    shown(panel)
    doubt = panel.previews[panel.doubt].layer
    assert doubt.data[0, :, 21:27].mean() > doubt.data[0, :, 4:20].mean()
    viewer.dims.set_current_step(0, 4)
    shown(panel)
    assert preview.translate[0] == 8
    # undo is napari's
    for _ in range(24):
        layer.undo()
    shown(panel)
    assert panel._line.text() != "" or not layer.data.any()
    panel.shown.setChecked(False)
    assert panel.previews[panel.shown].layer is None


def test_a_run_uses_the_strokes_and_keeps_the_classifier(
    widget: PhasesWidget, viewer: Any, scan: np.ndarray
) -> None:
    widget.strokes_panel.paint.click()
    layer = viewer.layers["scan · strokes"]
    paint(layer, 2)
    widget.names.value = "left, right"
    widget.probabilities.value = True
    widget.run()
    result = widget.wait()
    expected = hushpore.measure_phases(scan, strokes=layer.data)
    np.testing.assert_array_equal(result.labels, expected.labels)
    assert result.classifier.fingerprint != ""
    assert result.classifier.names == ("left", "right")
    assert not viewer.layers["scan · doubt"].visible
    assert not widget.strokes_panel.shown.isChecked()
    assert "strokes" in result.files().images


def test_paint_says_where_thresholds_are_enough(qtbot: Any, viewer: Any) -> None:
    rng = np.random.default_rng(0)
    grey = np.where(np.indices(SHAPE)[2] < 24, 100, 200) + rng.normal(0, 10, SHAPE)
    viewer.add_image(grey.astype(np.uint8), name="plates")
    widget = PhasesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.native.show()
    qtbot.waitUntil(lambda: widget.panel.greys is not None and not widget.panel.is_busy)
    assert widget.panel.advice() == ""  # three phases in two groups
    widget.phases.value = 2
    widget.strokes_panel.paint.click()
    assert "thresholds may be enough" in widget.strokes_panel._line.text()


def test_paint_says_where_the_grey_value_drifts(qtbot: Any, viewer: Any) -> None:
    """Flattening is offered for one solid alone: with several it would take them for one."""
    shape = (24, 64, 64)
    rng = np.random.default_rng(0)
    field = gaussian_filter(rng.normal(size=shape), 3, mode="wrap")
    solid = field > np.quantile(field, 0.3)
    grey = 1000 + solid * (300 + 600 * np.indices(shape)[2] / 64) + rng.normal(0, 120, shape)
    viewer.add_image(grey.astype(np.uint16), name="core")
    widget = PhasesWidget(viewer)
    qtbot.addWidget(widget.native)
    widget.native.show()
    qtbot.waitUntil(lambda: widget.panel.greys is not None and not widget.panel.is_busy)
    said = widget.panel.advice()
    assert "drifts by" in said
    assert 60 < float(said.partition("drifts by ")[2].split()[0]) < 110  # 600 of 600
    assert said.endswith("where it is dark and where it is bright.")
    widget.phases.value = 2
    widget.strokes_panel.paint.click()
    assert ">Flatten the scan</a>" in widget.strokes_panel._line.text().replace("\u00a0", " ")


def test_a_second_scan_uses_the_classifier_in_one_click(
    qtbot: Any, widget: PhasesWidget, viewer: Any, scan: np.ndarray, tmp_path: Path
) -> None:
    panel = widget.strokes_panel
    assert panel.reuse.isHidden()
    panel.paint.click()
    layer = viewer.layers["scan · strokes"]
    paint(layer, 2)
    widget.names.value = "left, right"
    widget.run()
    first = widget.wait()
    assert panel.reuse.isHidden()  # it is of this scan
    viewer.add_image(scan[:, ::-1] + np.uint16(2), name="next", scale=(2, 2, 2), units=("um",) * 3)
    widget.layer.value = viewer.layers["next"]
    assert not panel.reuse.isHidden()
    panel.reuse.click()
    second = widget.wait()
    assert second.classifier.fingerprint == first.classifier.fingerprint
    expected = first.classifier.names
    assert second.names == expected == ("left", "right")
    assert (second.labels[:, :, :18] == 1).mean() > 0.9
    assert (second.labels[:, :, 30:] == 2).mean() > 0.9
    # the file of the window is gone when the result is repeated
    write_image(tmp_path / "next.tif", second.volume)
    source = ScanRecipe(str(tmp_path / "next.tif"))
    write_result(tmp_path / "made", [second], second.volume, source=origin_of(source, []))
    Path(second.provenance["settings"]["classifier"]).unlink()
    assert result_of(rerun(tmp_path / "made", tmp_path / "again")).identical


def test_a_slice_is_classified_as_in_a_run_by_slice(scan: np.ndarray) -> None:
    strokes = np.zeros(SHAPE, np.uint8)
    strokes[1, 10:30, 8], strokes[4, 10:30, 40] = 3, 7
    live = LiveClassifier(Volume(scan))
    live.TREES = 100
    with KernelThreads() as threads:
        known, likely = live.classify(strokes, 2, threads)
        again = live.classify(strokes, 2, threads)[1]
    assert known.tolist() == [3, 7]
    run = hushpore.measure_phases(scan, strokes=strokes, by_slice=True)
    np.testing.assert_array_equal(likely.argmax(axis=0) + 1, run.labels[2])
    np.testing.assert_array_equal(again, likely)
