from napari.components import ViewerModel
from napari.plugins.utils import get_preferred_reader
from napari.settings import get_settings

from hushpore.viewer.layers.reader import prefer_hushpore, prefers_hushpore
from hushpore.viewer.preferences import PreferencesWidget


def test_folders_and_dicom_files_go_to_hushpore_and_other_choices_stay(tmp_path, monkeypatch):
    plugins = get_settings().plugins
    before = plugins.extension2reader
    try:
        plugins.extension2reader = {"*.tif": "napari", f"{tmp_path}/special/": "napari"}
        (tmp_path / "special").mkdir()
        prefer_hushpore()
        assert get_preferred_reader(str(tmp_path)) == "hushpore"
        assert get_preferred_reader(str(tmp_path / "a.dcm")) == "hushpore"
        assert get_preferred_reader(str(tmp_path / "a.tif")) == "napari"
        assert get_preferred_reader(str(tmp_path / "special")) == "napari"
    finally:
        plugins.extension2reader = before


def test_the_preference_is_a_box_that_acts_at_once(qtbot, tmp_path):
    plugins = get_settings().plugins
    before = plugins.extension2reader
    try:
        plugins.extension2reader = {"*.tif": "napari"}
        widget = PreferencesWidget(ViewerModel())
        qtbot.addWidget(widget)
        assert not widget._opens.isChecked()
        widget._opens.click()
        assert get_preferred_reader(str(tmp_path)) == "hushpore"
        assert prefers_hushpore()
        # other choices of the user stay
        plugins.extension2reader = {**plugins.extension2reader, "*.dcm": "napari"}
        prefer_hushpore(False)
        assert plugins.extension2reader == {"*.tif": "napari", "*.dcm": "napari"}
        assert not prefers_hushpore()
    finally:
        plugins.extension2reader = before
