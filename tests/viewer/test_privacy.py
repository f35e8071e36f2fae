import logging

import pytest
from napari.components import ViewerModel
from napari.layers import Layer
from napari.utils.notifications import notification_manager

from hushpore.viewer.denoise.widget import DenoiseWidget
from hushpore.viewer.layers import reader
from hushpore.viewer.layers.reader import get_reader
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def viewer(monkeypatch, scan_of_a_patient):
    """A viewer without its window, in which a person's scan was opened."""
    viewer = ViewerModel()
    monkeypatch.setattr(reader, "current_viewer", lambda: viewer)
    path = str(scan_of_a_patient)
    for data in get_reader(path)(path):
        viewer.add_layer(Layer.create(*data))
    return viewer


def everything(layer):
    return repr([layer.name, layer.metadata, layer.source, getattr(layer, "features", "")])


def run(qtbot, widget):
    qtbot.addWidget(widget.native)
    widget._buttons.run.click()
    qtbot.waitUntil(lambda: not widget.is_running, timeout=60_000)


def test_nothing_of_the_patient_enters_the_layers_that_jobs_make(
    qtbot, viewer, patient, caplog, capfd
):
    with caplog.at_level(logging.DEBUG):
        denoise = DenoiseWidget(viewer)
        for name, value in {"steps": 2, "patch_size": 16, "batch_size": 2}.items():
            denoise.form[name].value = value
        run(qtbot, denoise)
        pores = PoresWidget(viewer)
        run(qtbot, pores)
    assert [layer.name for layer in viewer.layers if layer.name.endswith("pores")]
    assert len(viewer.layers) >= 3
    said = "".join(everything(layer) for layer in viewer.layers)
    said += "".join(note.message for note in notification_manager.records)
    said += denoise._result.text() + pores._result.text() + caplog.text
    said += "".join(capfd.readouterr())
    for value in patient.values():
        assert value not in said
