from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel

from hushpore import InputError
from hushpore.base.settings import Settings, option
from hushpore.denoising.settings import DenoiseSettings
from hushpore.viewer.forms.fields import LayerField, ModelField, NameBox, NameLabel
from hushpore.viewer.running.task import capture


@dataclass(frozen=True)
class Masked(Settings):
    mask: str = option("", "What to keep.", auxiliary=("labels", "points"))


@pytest.fixture
def field(qtbot, viewer):
    field = LayerField(Masked.options()[0], viewer)
    qtbot.addWidget(field.native)
    return field


def names(field):
    return [field.native.itemText(number) for number in range(field.native.count())]


def choose(field, name):
    field.native.setCurrentText(name)
    field.native.activated.emit(field.native.currentIndex())


def test_layers_that_suit_are_listed_after_none(viewer, field):
    viewer.add_image(np.eye(4), name="scan")
    viewer.add_labels(np.ones((4, 4), int), name="crumb")
    viewer.add_points([[1, 1]], name="seeds")
    assert names(field) == ["none", "seeds", "crumb"]
    assert (field.value, field.is_default, field.layer) == ("", True, None)


def test_a_chosen_layer_keeps_being_chosen_under_a_new_name_and_among_new_layers(viewer, field):
    labels = viewer.add_labels(np.ones((4, 4), int), name="crumb")
    choose(field, "crumb")
    labels.name = "crust"
    viewer.add_labels(np.ones((4, 4), int), name="other")
    assert (field.value, field.layer) == ("crust", labels)
    assert field.native.currentText() == "crust"


def test_a_layer_that_is_deleted_is_chosen_no_more(viewer, field):
    labels = viewer.add_labels(np.ones((4, 4), int), name="crumb")
    choose(field, "crumb")
    told = []
    field.changed.connect(told.append)
    viewer.layers.remove(labels)
    assert told == [""]
    assert (field.value, names(field)) == ("", ["none"])


def test_a_layer_is_chosen_by_name_as_settings_say(viewer, field):
    viewer.add_labels(np.ones((4, 4), int), name="crumb")
    field.value = "crumb"
    assert field.native.currentText() == "crumb"
    field.value = ""
    assert field.value == ""
    field.value = "no such layer"
    assert field.value == ""


def test_layers_beside_are_captured_in_the_voxels_of_the_target(viewer):
    scan = viewer.add_image(np.zeros((5, 6, 7)), name="scan", scale=(2, 1, 1), translate=(10, 0, 0))
    mask = viewer.add_labels(np.ones((5, 6, 7), int), name="crumb")
    seeds = viewer.add_points([[12.0, 1.0, 2.0], [18.0, 3.0, 4.0]], name="seeds")
    beside = capture(scan, auxiliary=[mask, seeds]).volume.auxiliary
    assert beside["crumb"] is mask.data
    np.testing.assert_allclose(beside["seeds"], [[1, 1, 2], [4, 3, 4]])


def test_a_second_scan_is_captured_with_its_voxel_size(viewer):
    scan = viewer.add_image(np.zeros((5, 6, 7)), name="scan", scale=(2, 1, 1), units="mm")
    other = viewer.add_image(np.ones((5, 6, 7)), name="other", scale=(3, 1, 1), units="mm")
    volume = capture(scan, scans=[other]).volume
    assert volume.auxiliary["other"].spacing == (3, 1, 1)
    with pytest.raises(InputError, match="voxels of other are 3 x 1 x 1 mm"):
        volume.auxiliary_of(DenoiseSettings(pair="other"), "pair")
    other.scale = (2, 1, 1)
    volume = capture(scan, scans=[other]).volume
    assert volume.auxiliary_of(DenoiseSettings(pair="other"), "pair") is other.data


def test_points_of_other_axes_are_refused(viewer):
    scan = viewer.add_image(np.zeros((5, 6, 7)), name="scan")
    seeds = viewer.add_points([[1.0, 2.0]], name="seeds")
    with pytest.raises(InputError, match="seeds have 2 axes, but scan has 3"):
        capture(scan, auxiliary=[seeds])


class Learnt:
    """A model of which only counts whether it can be saved and is let go."""

    def save(self, path):
        path.write_bytes(b"weights")
        return path


def test_the_file_of_a_model_is_written_once_and_goes_with_the_model():
    files = []
    for _ in range(3):
        # each may take the number in memory of the one before
        learnt = Learnt()
        files.append(ModelField._file_of(learnt))
        assert ModelField._file_of(learnt) == files[-1]
        assert files[-1].read_bytes() == b"weights"
        model = weakref.ref(learnt)
        del learnt
        gc.collect()
        assert model() is None
        assert not files[-1].parent.exists()
    assert len(set(files)) == 3


LONG = "a very long name of a scan of bread, as scanners give it, 2026-11-26 "


@pytest.fixture
def label(qtbot):
    label = NameLabel()
    qtbot.addWidget(label)
    label.resize(200, 20)
    return label


def test_a_long_name_loses_its_middle(label):
    label.setText(LONG + "pores")
    assert "…" in QLabel.text(label)
    assert QLabel.text(label).endswith("pores")
    assert label.toolTip() == LONG + "pores"
    label.show()
    label.resize(2000, 20)
    assert QLabel.text(label) == LONG + "pores"


def test_markup_in_a_name_is_no_markup(label):
    label.setText("<b>5 & 6")
    assert QLabel.text(label) == "<b>5 & 6"
    assert label.textFormat() == Qt.TextFormat.PlainText
    label.setText("")
    assert label.text() == label.toolTip() == ""


def test_names_that_end_differently_look_different_in_a_combo_box(qtbot):
    box = NameBox()
    qtbot.addWidget(box)
    box.addItems([LONG + "denoised", LONG + "removed"])
    box.resize(250, 25)
    before = box.grab().toImage()
    box.setCurrentIndex(1)
    assert box.grab().toImage() != before
    assert box.currentText() == LONG + "removed"
