"""A scan cropped and binned in the window."""

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Labels
from qtpy.QtCore import Qt

import hushpore
from hushpore import Volume
from hushpore.base.events import Note, Remedy
from hushpore.io.results import write_image
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.viewer.forms import layout
from hushpore.viewer.forms.layout import CROP, FLATTEN, advice_linked
from hushpore.viewer.layers.conversion import METADATA_KEY, READ, known_of, volume_of
from hushpore.viewer.layers.crop_layers import Part, crop_job
from hushpore.viewer.layers.layer_files import SavedLayer
from hushpore.viewer.layers.reader import read_layers
from hushpore.viewer.layers.scan_panels import BOX, CropWidget
from hushpore.viewer.layers.voxel_size import set_voxel_size
from hushpore.viewer.running.messages import RemarkList, ResultMessage
from hushpore.viewer.running.problem import explain

SHAPE = (12, 40, 50)


@pytest.fixture
def values():
    _, y, x = np.indices(SHAPE)
    rng = np.random.default_rng(0)
    inside = np.hypot(y - 19, x - 26) < 14
    return (np.where(inside, 2000, 300) + rng.normal(0, 30, SHAPE)).astype(np.uint16)


@pytest.fixture
def viewer(values, tmp_path):
    path = write_image(tmp_path / "scan.tif", Volume(values, spacing=(5, 2, 2), unit="um"))
    viewer = ViewerModel()
    (layer,) = read_layers(str(path))
    viewer.add_image(layer[0], **layer[1])
    return viewer


@pytest.fixture
def widget(qtbot, viewer):
    widget = CropWidget(viewer)
    qtbot.addWidget(widget)
    widget.show()
    return widget


def crop(qtbot, viewer, widget):
    widget._run.click()
    qtbot.waitUntil(lambda: "Added" in widget._result.html)
    return viewer.layers.selection.active


def test_the_dragged_box_gives_the_voxels_in_their_place(qtbot, viewer, widget, values, tmp_path):
    scan = viewer.layers[0]
    viewer.add_labels(np.ones(SHAPE, np.uint8), name="mask", scale=scan.scale, units=scan.units)
    inside, outside = (5 * 4, 2 * 20, 2 * 25), (0, 0, 0)
    viewer.add_points([inside, outside], name="points", units=scan.units)
    viewer.layers[BOX].data = [np.array([[9.6, 4.7], [9.6, 30.4], [33.2, 30.4], [33.2, 4.7]])]
    widget._sliders[0].setValue((2, 9))
    assert viewer.dims.point[0] == pytest.approx(2 * 5)
    assert widget.part.crop == "2:9,10:34,5:31"
    assert "7 x 24 x 26" in widget._size.text()
    assert "--crop 2:9,10:34,5:31" in widget._size.text()
    part = crop(qtbot, viewer, widget)
    np.testing.assert_array_equal(part.data, values[2:9, 10:34, 5:31])
    np.testing.assert_allclose(part.translate, (10, 20, 10))
    assert part.name == "scan crop"
    assert not scan.visible
    # hidden, as shapes that are removed end VisPy without a graphics card
    assert not viewer.layers[BOX].visible
    mask, points = viewer.layers["mask crop"], viewer.layers["points crop"]
    np.testing.assert_allclose(mask.translate, part.translate)
    assert mask.data.shape == part.data.shape
    mask.data[0, 0, 0] = 7
    assert viewer.layers["mask"].data.max() == 1
    np.testing.assert_array_equal(points.data, [inside])
    # what a result of the crop records is what rerun reads
    recipe = ScanRecipe.of(known_of(part)[READ])
    read = recipe.read()
    np.testing.assert_array_equal(read.data, part.data)
    assert read.origin == volume_of(part).origin
    made = hushpore.segment_pores(volume_of(part), threshold=1000)
    again = hushpore.segment_pores(values[2:9, 10:34, 5:31], threshold=1000)
    np.testing.assert_array_equal(made.labels, again.labels)


def test_a_crop_of_a_crop_and_a_bin_are_read_from_the_file(qtbot, viewer, widget):
    widget.set_box("1:12,4:36,6:46")
    first = crop(qtbot, viewer, widget)
    widget.layer.value = first
    widget.set_box("2:10,1:31,0:20")
    widget._factor.setValue(2)
    widget._keep_slices.setChecked(True)
    second = crop(qtbot, viewer, widget)
    assert second.name == "scan crop crop bin 1,2,2"
    recipe = ScanRecipe.of(known_of(second)[READ])
    assert (recipe.crop, recipe.bin) == ("3:11,5:35,6:26", "1,2,2")
    read = recipe.read()
    np.testing.assert_array_equal(read.data, second.data)
    assert read.origin == volume_of(second).origin
    assert read.spacing == volume_of(second).spacing
    # and a crop of that
    third = _job(viewer, second, Part(((1, 5), (2, 9), (3, 8)), (1, 1, 1)))
    read = ScanRecipe.of(known_of(third)[READ]).read()
    np.testing.assert_array_equal(read.data, third.data)
    assert read.origin == volume_of(third).origin
    with pytest.raises(hushpore.InputError, match="is binned already"):
        crop_job(viewer, second, Part(((0, 8), (0, 8), (0, 8)), (2, 2, 2)))


def _job(viewer, layer, part):
    job = crop_job(viewer, layer, part)
    while True:
        try:
            next(job)
        except StopIteration as end:
            return end.value[-1]


def test_a_voxel_size_set_later_is_that_of_the_binned_voxels(viewer):
    layer = viewer.layers[0]
    small = _job(viewer, layer, Part(((0, 12), (8, 40), (10, 50)), (2, 2, 2)))
    viewer.add_layer(small)
    set_voxel_size(viewer, small, "20,8,8um")
    made = {"job": "pores", "input": {"source": volume_of(small).source}}
    small.metadata[METADATA_KEY]["provenance"] = made
    source = SavedLayer.of(small).record("labels")["source"]
    read = ScanRecipe.of(source).read()
    assert read.spacing == (20, 8, 8)
    np.testing.assert_array_equal(read.data, small.data)


def test_the_box_around_the_sample(qtbot, viewer, widget, values):
    qtbot.mouseClick(widget._sample, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: widget.part.box[1] != (0, 40))
    (low, high), (left, right) = widget.part.box[1:]
    assert 0 < low <= 6
    assert 33 <= high < 40
    assert 0 < left <= 13
    assert 40 <= right < 50


def test_the_cylinder_inside_the_sample_is_what_rerun_reads(qtbot, viewer, widget, values):
    scan = viewer.layers[0]
    viewer.add_labels(np.ones(SHAPE, np.uint8), name="mask", scale=scan.scale, units=scan.units)
    widget.layer.value = scan
    qtbot.mouseClick(widget._round, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: widget.part.cylinder is not None)
    assert "cylinder inside" in widget._size.text()
    assert "--crop cylinder" in widget._size.text()
    assert widget._sample.isEnabled()
    # inside the round sample, whose radius is 14 voxels
    (low, high), (left, right) = widget.part.box[1:]
    assert 5 <= low < high <= 34
    assert 12 <= left < right <= 41
    part = crop(qtbot, viewer, widget)
    inside = part.data != part.data[0, 0, 0]
    assert 0.7 < inside.mean() < 0.8  # pi / 4 of the box
    np.testing.assert_array_equal(part.data[inside], values[:, low:high, left:right][inside])
    # the rim of the sample is known to a voxel
    assert (values[:, low:high, left:right][inside] > 1000).mean() > 0.98
    # masks keep the box
    assert viewer.layers["mask crop"].data.shape == part.data.shape
    recipe = ScanRecipe.of(known_of(part)[READ])
    assert recipe.crop == "cylinder"
    read = recipe.read()
    np.testing.assert_array_equal(read.data, part.data)
    assert read.origin == volume_of(part).origin
    assert volume_of(part).metadata["padding_value"] == part.data[0, 0, 0]
    # a part of the cylinder depends on the whole scan, which no recipe says
    again = _job(viewer, part, Part(((2, 9), *((0, n) for n in part.data.shape[1:])), (1, 1, 1)))
    assert not known_of(again)[READ]
    assert any("two steps" in note for note in volume_of(again).notes)


def test_a_box_moved_from_the_cylinder_is_a_box(qtbot, viewer, widget, values):
    widget.to_cylinder()
    qtbot.waitUntil(lambda: widget.part.cylinder is not None)
    widget._sliders[0].setValue((2, 9))
    assert widget.part.cylinder is None
    assert "cylinder" not in widget._size.text()
    (low, high), (left, right) = widget.part.box[1:]
    part = crop(qtbot, viewer, widget)
    np.testing.assert_array_equal(part.data, values[2:9, low:high, left:right])


def test_messages_that_advise_to_crop_open_the_widget(qtbot, viewer):
    label = ResultMessage(viewer)
    qtbot.addWidget(label)
    label.show_problem(explain(MemoryError()))
    assert f'href="{CROP}"' in label.html
    assert "crop or bin the volume</a>" in label.html
    assert CROP not in advice_linked("The cropped scan.")


def test_the_note_on_drift_offers_to_flatten_and_a_local_threshold(qtbot, viewer, monkeypatch):
    opened, chosen = [], []
    monkeypatch.setattr(layout, "open_page", lambda _, name: opened.append(name))
    remarks = RemarkList(viewer)
    qtbot.addWidget(remarks)
    remarks.remedy_chosen.connect(chosen.append)
    remedy = Remedy("Use a local threshold", {"threshold": "sauvola"})
    remarks.show_remarks([Note("Flatten the scan, or use a local threshold.", True, remedy=remedy)])
    assert f'href="{FLATTEN}"' in remarks.text()
    remarks._first.linkActivated.emit(FLATTEN)
    assert (opened, chosen) == ([FLATTEN], [])
    remarks._first.linkActivated.emit("remedy 0")
    assert (opened, chosen) == ([FLATTEN], [remedy])


def test_without_a_scan_nothing_can_be_cropped(qtbot):
    widget = CropWidget(ViewerModel())
    qtbot.addWidget(widget)
    assert not widget._run.isEnabled()
    assert "Open a scan" in widget._size.text()


def test_a_mask_is_binned_with_the_scan_and_keeps_its_kind(qtbot, viewer, widget):
    scan = viewer.layers[0]
    mask = np.zeros(SHAPE, np.uint8)
    mask[:, :21] = 5
    viewer.add_labels(mask, name="mask", scale=scan.scale, units=scan.units)
    widget.layer.value = scan
    widget._factor.setValue(2)
    part = crop(qtbot, viewer, widget)
    binned = viewer.layers["mask bin 2"]
    assert isinstance(binned, Labels)
    assert binned.data.shape == part.data.shape
    np.testing.assert_allclose(binned.scale, part.scale)
    np.testing.assert_allclose(binned.translate, part.translate)
    # of the block of rows 20 and 21, half is in the mask: the lower of two equally frequent values
    expected = np.zeros(part.data.shape, np.uint8)
    expected[:, :10] = 5
    np.testing.assert_array_equal(binned.data, expected)


def test_the_box_is_one_layer_that_follows_the_scan_and_hides_with_the_widget(
    qtbot, viewer, widget, values
):
    box = viewer.layers[BOX]
    assert viewer.layers.selection.active is box
    widget.hide()
    assert not box.visible
    assert viewer.layers.selection.active is viewer.layers[0]
    widget.show()
    assert (box.visible, box.mode) == (True, "select")
    other = viewer.add_image(values[:, :20], name="other", scale=(3, 3, 3), units=("mm",) * 3)
    widget.layer.value = other
    assert [each for each in viewer.layers if each.name.startswith(BOX)] == [box]
    np.testing.assert_allclose(box.scale, (3, 3))
    np.testing.assert_allclose(box.data[0].max(0), (19.5, 49.5))
    again = CropWidget(viewer)
    qtbot.addWidget(again)
    again.show()
    assert [each for each in viewer.layers if each.name.startswith(BOX)] == [box]
