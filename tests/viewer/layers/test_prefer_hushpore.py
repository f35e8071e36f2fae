from napari.plugins.utils import get_preferred_reader
from napari.settings import get_settings

from hushpore.viewer.layers.reader import prefer_hushpore


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
