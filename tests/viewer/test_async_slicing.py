"""The window with napari's asynchronous rendering of layers switched on."""

from __future__ import annotations

import numpy as np
import pytest
from napari.layers import Layer
from napari.settings import get_settings

from hushpore.base.events import Preview, Progress, result_of
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.preview import survey_greys
from hushpore.pores.settings import PoreSettings
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.results.pore_layer import pore_layer
from hushpore.viewer.results.pore_view import PoreView
from hushpore.viewer.running.task import capture
from hushpore.viewer.segment.grey_panel import VoidPreview

pytestmark = pytest.mark.usefixtures("small_network")


@pytest.fixture
def viewer(make_napari_viewer, qtbot, scan):
    """A whole napari: without its window, slices from the thread are never delivered."""
    viewer = make_napari_viewer()
    get_settings().experimental.async_ = True
    viewer.add_image(scan, name="scan", scale=(2, 0.5, 0.5), units=("mm",) * 3)
    viewer.dims.set_current_step(0, 3)
    yield viewer
    # a slice that is still on its way keeps the viewer
    qtbot.waitUntil(lambda: all(layer.loaded for layer in viewer.layers))
    get_settings().experimental.async_ = False


def on_screen(viewer, layer):
    """Return the slice of a layer as napari shows it: (y, x); None for each missing value."""
    z, (y, x) = viewer.dims.point[0], layer.data.shape[-2:]
    scale = layer.scale[-2:]
    values = [
        layer.get_value((z, row * scale[0], column * scale[1]), world=True)
        for row in range(y) for column in range(x)
    ]  # fmt: skip
    return np.array([np.nan if value is None else value for value in values]).reshape(y, x)


def until_shown(qtbot, viewer, layer, expected):
    qtbot.waitUntil(lambda: np.array_equal(on_screen(viewer, layer), expected))


def test_the_void_overlay_follows_the_slider(qtbot, viewer, scan):
    preview = VoidPreview(viewer)
    target = capture(viewer.layers["scan"])
    with KernelThreads(1) as threads:
        greys = result_of(survey_greys(target.volume, threads))
    preview.show(target, PoreSettings(exterior="keep", threshold=0.0), greys)
    qtbot.waitUntil(lambda: preview.layer is not None)
    until_shown(qtbot, viewer, preview.layer, scan[3] <= 0)
    viewer.dims.set_current_step(0, 6)
    until_shown(qtbot, viewer, preview.layer, scan[6] <= 0)
    until_shown(qtbot, viewer, viewer.layers["scan"], scan[6])


def test_a_preview_of_denoising_is_refined_and_becomes_the_result(qtbot, viewer, scan, fake_job):
    first, second = scan[3] + 1, scan[3] + 2

    def script(volume):
        yield Progress("training", 1, 4, "steps", 0.25)
        yield Preview("denoised", first, (3,))
        return (yield from fake_job.wait_at_gate(volume))

    fake_job.script = script
    widget = DenoiseWidget(viewer)
    viewer.window.add_dock_widget(widget, name="Denoise")
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2)
    layer = viewer.layers["scan · denoised (preview)"]
    until_shown(qtbot, viewer, layer, first)
    widget._now.show_preview(Preview("denoised", second, (3,)))
    until_shown(qtbot, viewer, layer, second)
    fake_job.gate.set()
    qtbot.waitUntil(lambda: not widget.is_running)
    denoised = viewer.layers["scan · denoised"]
    until_shown(qtbot, viewer, denoised, scan[3])


def test_a_click_selects_the_pore_of_the_slice_just_chosen(qtbot, viewer, made_of_cubes):
    layer = viewer.add_layer(Layer.create(*pore_layer(made_of_cubes([2, 5]), "pores")))
    view = PoreView.of(viewer, layer)
    world = layer.data_to_world((0, 0, 0))
    viewer.dims.set_point(0, world[0])
    qtbot.waitUntil(lambda: layer.get_value(world, world=True) == 1)
    # pore 1 is two slices high
    world = layer.data_to_world((3, 0, 0))
    viewer.dims.set_point(0, world[0])
    assert view.label_at(world, None, [1, 2]) == 0
    view.close()
