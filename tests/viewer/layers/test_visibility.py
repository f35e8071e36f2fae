from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from napari.components import ViewerModel

from hushpore.viewer.layers.conversion import Lineage, hide_previous_results, set_lineage
from hushpore.viewer.layers.visibility import show_new_scans, show_scale_bar, slice_of
from hushpore.viewer.running.task import capture, slice_on_screen


@pytest.fixture
def viewer():
    """A large scan in millimetres, at its slice 30, with labels of its own."""
    viewer = ViewerModel()
    viewer.add_image(np.zeros((40, 64, 64)), name="first", scale=(9, 5, 5), units=("mm",) * 3)
    viewer.dims.set_current_step(0, 30)
    return viewer


def test_a_scan_that_is_opened_after_another_comes_to_the_screen(viewer):
    small = viewer.add_image(np.zeros((7, 8, 8)), name="small", scale=(2, 1, 1), units=("mm",) * 3)
    show_new_scans(viewer, [small])
    assert not viewer.layers["first"].visible
    assert small.visible
    # slice 3 of 7
    assert viewer.dims.point[0] == 6
    # and the canvas is about it, not about the large one
    assert viewer.scene.camera.center[-1] == pytest.approx(3.5)


def test_a_scan_in_another_unit_comes_to_the_screen(viewer):
    fine = viewer.add_image(np.zeros((7, 8, 8)), name="fine", scale=(20, 10, 10), units=("um",) * 3)
    show_new_scans(viewer, [fine])
    assert slice_of(viewer, fine)[0] == 3
    zoom = viewer.scene.camera.zoom
    # napari's world stays in micrometres
    coarse = viewer.add_image(
        np.zeros((9, 8, 8)), name="coarse", scale=(5, 10, 10), units=("mm",) * 3
    )
    show_new_scans(viewer, [coarse])
    assert slice_of(viewer, coarse)[0] == 4
    assert viewer.dims.point[0] == 20_000
    assert viewer.scene.camera.center[-1] == pytest.approx(35_000)
    assert viewer.scene.camera.zoom == pytest.approx(zoom / 1000)
    target = capture(coarse, ("z", "y", "x"))
    assert slice_on_screen(viewer, target) == (4,)


def test_labels_that_are_opened_hide_nothing(viewer):
    labels = viewer.add_labels(np.zeros((40, 64, 64), int))
    show_new_scans(viewer, [labels])
    assert viewer.layers["first"].visible


def test_two_series_of_one_folder_are_both_shown(viewer):
    both = [viewer.add_image(np.zeros((4, 8, 8)), name=name) for name in "ab"]
    show_new_scans(viewer, both)
    assert [layer.visible for layer in viewer.layers] == [False, True, True]


def test_a_picture_that_is_opened_after_a_scan_comes_to_the_screen(viewer):
    picture = viewer.add_image(np.zeros((20, 20)), contrast_limits=(0, 1))
    show_new_scans(viewer, [picture])
    assert [layer.visible for layer in viewer.layers[-2:]] == [False, True]


def test_the_first_scan_is_shown_as_napari_does():
    viewer = ViewerModel()
    only = viewer.add_image(np.zeros((8, 8, 8)))
    viewer.dims.set_current_step(0, 1)
    show_new_scans(viewer, [only])
    assert viewer.dims.current_step[0] == 1


def test_a_file_that_is_dropped_on_a_scan_hides_it(qtbot, make_napari_viewer, tmp_path):
    viewer = make_napari_viewer()
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((6, 8, 8), np.uint8))
    tifffile.imwrite(tmp_path / "b.tif", np.ones((6, 8, 8), np.uint8))
    viewer.open(str(tmp_path / "a.tif"), plugin="hushpore")
    viewer.open(str(tmp_path / "b.tif"), plugin="hushpore")
    qtbot.waitUntil(lambda: not viewer.layers["a"].visible)
    assert viewer.layers["b"].visible


def test_a_number_without_a_unit_is_no_scale_bar(viewer):
    bar = viewer.canvas.overlays.scale_bar
    show_scale_bar(viewer)
    assert bar.visible
    unknown = viewer.add_image(np.zeros((4, 8, 8)), name="of unknown size")
    show_scale_bar(viewer)
    # napari has no unit for either now
    assert viewer.layers.units is None
    assert not bar.visible
    viewer.layers.remove(unknown)
    show_scale_bar(viewer)
    assert bar.visible


def test_pores_of_the_same_scan_from_another_layer_are_hidden():
    viewer = ViewerModel()
    made = {}
    for name, scan, layer in (("old", "one", "noisy"), ("other", "two", "noisy of two")):
        made[name] = viewer.add_labels(np.zeros((2, 4, 4), int), name=name)
        set_lineage(made[name], Lineage(scan, layer, "pores", name))
    image = viewer.add_image(np.zeros((2, 4, 4)), name="denoised")
    set_lineage(image, Lineage("one", "noisy", "denoise", "denoised"))
    hide_previous_results(viewer, SimpleNamespace(layer="denoised", scan="one", job="pores"))
    assert [each.visible for each in (made["old"], made["other"], image)] == [False, True, True]
    assert made["old"].name == "old"
