"""A disk that is full while results are written: real writes that the system refuses."""

import signal
import sys

import numpy as np
import pytest
from napari.components import ViewerModel
from napari.layers import Layer
from napari.utils.notifications import notification_manager

from hushpore.base.errors import OutputError
from hushpore.io import read
from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.layers.layer_files import write_image_layer, write_labels_layer
from hushpore.viewer.results.record_panel import save_with, to_json
from hushpore.viewer.segment.widget import PoresWidget

SOON = 20_000
ROOM = 4096  # bytes that a file may have

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no limit for files to set")


class Disk:
    """Lets the system refuse every write beyond the first bytes of a file, for a while."""

    def __enter__(self):
        import resource

        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)
        # Python ignores the signal, so that a write fails with an error instead
        assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, self._before[1]))

    def __exit__(self, *_):
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, self._before)


@pytest.fixture
def viewer(scan):
    viewer = ViewerModel()
    viewer.add_image(np.tile(scan, (16, 1, 1)), name="scan", scale=(2.0, 0.5, 0.5))
    return viewer


@pytest.fixture(autouse=True)
def nothing_said():
    notification_manager.records.clear()


def said():
    return [note.message for note in notification_manager.records]


def run(qtbot, widget):
    widget.run()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=SOON)


@pytest.mark.parametrize("name", ["result.tif", "result.zarr"])
@pytest.mark.parametrize("kind", ["image", "labels"])
def test_a_layer_is_written_whole_or_not_at_all(tmp_path, name, kind):
    values = np.random.default_rng(0).integers(0, 10_000, (8, 32, 32)).astype(np.int32)
    layer = Layer.create(values, {"name": "pores"}, kind)
    write = {"image": write_image_layer, "labels": write_labels_layer}[kind]
    with Disk(), pytest.raises(OutputError, match="No incomplete files remain"):
        write(str(tmp_path / name), *layer.as_layer_data_tuple()[:2])
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(layer.data, values)
    write(str(tmp_path / name), *layer.as_layer_data_tuple()[:2])
    np.testing.assert_array_equal(read(tmp_path / name).array(), values)


def test_a_layer_that_was_written_before_stays_as_it_was(tmp_path):
    old, new = np.ones((8, 32, 32), np.float32), np.zeros((8, 32, 32), np.float32)
    path = tmp_path / "result.tif"
    write_image_layer(str(path), old, {"name": "result"})
    with Disk(), pytest.raises(OutputError):
        write_image_layer(str(path), new, {"name": "result"})
    np.testing.assert_array_equal(read(path).array(), old)


def test_what_a_job_has_made_stays_and_the_widget_can_be_used_again(
    qtbot, tmp_path, viewer, fake_job
):
    fake_job.gate.set()
    widget = DenoiseWidget(viewer)
    qtbot.addWidget(widget.native)
    run(qtbot, widget)
    result = viewer.layers["scan · denoised"]
    before = result.data.copy()
    provenance = {
        **result.metadata[METADATA_KEY]["provenance"],
        "notes": ["a line of a long record"] * 1000,
    }
    folder = tmp_path / "results"
    folder.mkdir()
    with Disk():
        save_with(folder / "record.json", lambda part: part.write_text(to_json(provenance)))
        qtbot.waitUntil(lambda: bool(said()), timeout=SOON)
    assert len(said()) == 1
    assert "Cannot write" in said()[0]
    assert "No incomplete files remain" in said()[0]
    assert list(folder.iterdir()) == []
    np.testing.assert_array_equal(result.data, before)
    run(qtbot, widget)
    names = [layer.name for layer in viewer.layers]
    assert names == ["scan", "scan · previous denoised", "scan · denoised"]


def test_a_segmentation_whose_temporary_files_find_no_room_says_so(qtbot, viewer):
    widget = PoresWidget(viewer)
    qtbot.addWidget(widget.native)
    qtbot.waitUntil(lambda: not widget._preparing.is_busy, timeout=120_000)
    # so little memory that slabs lie on disk
    widget.memory_budget.value = 0.001
    with Disk():
        run(qtbot, widget)
    assert len(said()) == 1
    assert "temporary files of the segmentation cannot be written" in said()[0]
    assert [layer.name for layer in viewer.layers] == ["scan"]
    widget.memory_budget.value = None
    run(qtbot, widget)
    assert [layer.name for layer in viewer.layers] == ["scan", "scan · pores"]
