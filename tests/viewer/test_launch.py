import builtins
import io
import json
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.resources import files

import napari
import numpy as np
import pytest
import tifffile
from qtpy.QtGui import QPixmap
from qtpy.QtWidgets import QSplashScreen

import hushpore
from hushpore.base.errors import MissingPackageError
from hushpore.viewer import launch
from hushpore.viewer.docks import open_page
from hushpore.viewer.results.pore_layer import result_of
from hushpore.viewer.running import problem


@pytest.fixture
def opened(make_napari_viewer, monkeypatch):
    """What `open_viewer` opens, in a napari that does not show itself."""
    viewers = []

    def make(**keywords):
        viewers.append(make_napari_viewer(**keywords))
        return viewers[-1]

    monkeypatch.setattr(napari, "Viewer", make)
    monkeypatch.setattr(napari, "run", lambda: None)
    return viewers


def test_files_are_opened_with_every_widget_at_hand(opened, tmp_path):
    tifffile.imwrite(tmp_path / "scan.tif", np.zeros((6, 8, 8), np.uint8))
    launch.open_viewer([tmp_path / "scan.tif"])
    (viewer,) = opened
    assert [layer.name for layer in viewer.layers] == ["scan"]
    assert set(viewer.window.dock_widgets) == {f"{name} (hushpore)" for name in launch.WIDGETS}
    assert viewer.canvas.overlays.scale_bar.visible
    icon, picture = viewer.window._qt_window.windowIcon(), files("hushpore") / "icon.png"
    assert icon.pixmap(256).toImage() == QPixmap(str(picture)).toImage()
    for page in ("Crop", "Denoise", "Pores"):
        assert open_page(viewer, page).layer.value == viewer.layers["scan"]


def test_a_picture_that_says_what_is_loaded_is_shown_until_the_window_is(opened, monkeypatch):
    shown = []
    real = QSplashScreen.showMessage

    def show(splash, text, *more):
        shown.append((splash, text.strip(), splash.isVisible(), len(opened)))
        real(splash, text, *more)

    monkeypatch.setattr(QSplashScreen, "showMessage", show)
    launch.open_viewer()
    assert [known[1:] for known in shown] == [
        ("Loading napari …", True, 0), ("Loading the widgets …", True, 1),
    ]  # fmt: skip
    assert not shown[0][0].isVisible()
    assert not shown[0][0].pixmap().isNull()


@pytest.mark.parametrize(("newest", "said"), [("99.1", "99.1 can be installed"), ("0.0.9", "")])
def test_a_newer_version_is_named_only_to_those_who_prefer_it(
    opened, qtbot, monkeypatch, newest, said
):
    asked, notes = [], []

    def answer(address, timeout):
        asked.append(address)
        return io.BytesIO(json.dumps({"info": {"version": newest}}).encode())

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setattr(problem, "notify_note", lambda viewer, text: notes.append(text))
    launch.open_viewer()
    assert asked == []
    worker = launch.look_for_update(opened[0])
    qtbot.waitUntil(lambda: not worker.is_running and len(notes) == bool(said))
    assert asked == ["https://pypi.org/pypi/hushpore/json"]
    assert said in "".join(notes)


def test_without_a_network_nothing_is_said_of_updates(opened, qtbot, monkeypatch):
    def unreachable(address, timeout):
        raise urllib.error.URLError("unreachable")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    monkeypatch.setenv("HUSHPORE_UPDATES", "true")
    looked = []
    look = launch.look_for_update
    monkeypatch.setattr(launch, "look_for_update", lambda viewer: looked.append(look(viewer)))
    monkeypatch.setattr(problem, "notify_note", lambda *_: pytest.fail("a note"))
    launch.open_viewer()
    (worker,) = looked
    qtbot.waitUntil(lambda: not worker.is_running)


def test_the_sample_can_be_opened(opened):
    launch.open_viewer(sample=True)
    (viewer,) = opened
    image, truth = viewer.layers
    assert viewer.layers.selection.active == image
    assert not truth.visible


def test_volumes_and_results_show_themselves_as_layers(opened):
    data = np.full((12, 40, 40), 200, np.uint8)
    data[3:9, 4:10, 4:10] = data[3:9, 20:26, 20:26] = 10
    scan = hushpore.Volume(data, spacing=2.0, unit="um", name="scan")
    viewer = scan.show()
    assert [layer.name for layer in viewer.layers] == ["scan"]
    result = hushpore.segment_pores(scan, local_thickness="void")
    assert result.show(viewer) is viewer
    image, pores, thickness = viewer.layers
    assert (image.data is data, pores.name) == (True, "scan · pores")
    np.testing.assert_array_equal(pores.data, result.labels)
    assert tuple(pores.scale) == (2, 2, 2)
    assert not thickness.visible
    # as those of the window: merged again, saved and compared
    assert result_of(pores) is result
    hushpore.measure_phases(scan, phases=2).show(viewer)
    assert viewer.layers[-1].name == "scan · phases"


def test_without_napari_the_command_that_installs_it_is_given(monkeypatch):
    real = builtins.__import__

    def blocked(name, *rest):
        if name == "napari":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", blocked)
    with pytest.raises(MissingPackageError, match=r'pip install "hushpore\[all\]"'):
        launch.open_viewer()


def test_a_widget_is_opened_before_the_engine_of_pores_and_the_formats_of_images_are_there():
    later = "{'hushpore.pores.tables.measures', 'hushpore.io'}"
    code = f"import sys, hushpore.viewer.denoise.widget; assert not {later} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
