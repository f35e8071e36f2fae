import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Image, Layer
from napari.utils.notifications import notification_manager

from hushpore import Volume
from hushpore.viewer.layers import reader
from hushpore.viewer.layers.conversion import layer_data, volume_of
from hushpore.viewer.layers.reader import can_resample, resample_selected
from hushpore.viewer.layers.voxel_size import set_voxel_size


@pytest.fixture
def viewer(monkeypatch):
    viewer = ViewerModel()
    monkeypatch.setattr(reader, "current_viewer", lambda: viewer)
    notification_manager.records.clear()
    return viewer


@pytest.fixture
def uneven():
    """A ramp along z whose slices lie at 0, 2, 6 and 8 mm."""
    places = [0.0, 2.0, 6.0, 8.0]
    values = np.broadcast_to(np.array(places)[:, None, None], (4, 5, 6)).astype(np.int16)
    volume = Volume(
        values, (2, 1, 1), "mm", name="scan", notes=["odd"], metadata={"slice_positions": places}
    )
    return Layer.create(*layer_data(volume, contrast_limits=(0, 5)))


def test_the_selected_layer_gets_an_even_one_beside_it(qtbot, viewer, uneven):
    viewer.add_layer(uneven)
    resample_selected()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=10_000)
    even = viewer.layers[1]
    assert even.name == "scan resampled"
    np.testing.assert_array_equal(even.data[:, 0, 0], [0, 2, 4, 6, 8])
    assert tuple(even.scale) == (2, 1, 1)
    assert tuple(even.contrast_limits) == (0, 5)
    assert "Resampled" in even.metadata["hushpore"]["notes"][-1]
    assert not can_resample(even)


def test_slices_lie_where_a_voxel_size_that_was_given_says(qtbot, viewer, uneven):
    viewer.add_layer(uneven)
    set_voxel_size(viewer, uneven, "500um")
    resample_selected()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=10_000)
    np.testing.assert_array_equal(viewer.layers[1].data[:, 0, 0], [0, 2, 4, 6, 8])


def test_what_is_even_already_is_said_to_be_so(viewer):
    resample_selected()
    viewer.add_layer(Image(np.zeros((3, 4, 5)), name="flat"))
    resample_selected()
    messages = [note.message for note in notification_manager.records]
    assert "Select a layer" in messages[0]
    assert "flat: nothing to resample" in messages[1]
    assert len(viewer.layers) == 1


def test_labels_of_uneven_slices_are_refused_in_words(viewer, uneven):
    volume = volume_of(uneven)
    labels = volume.replace(np.ones(volume.shape, np.int32), name="scan · pores")
    viewer.add_layer(Layer.create(*layer_data(labels, "labels")))
    assert not can_resample(viewer.layers[0])
    resample_selected()
    assert "labels cannot be interpolated" in notification_manager.records[-1].message
    assert len(viewer.layers) == 1
