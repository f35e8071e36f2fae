"""The links of an empty window, and the samples that come with hushpore."""

import importlib.metadata

import numpy as np
import pytest
import tifffile
from napari.layers import Image, Labels, Layer
from napari.utils.notifications import notification_manager
from qtpy.QtGui import QDesktopServices
from qtpy.QtWidgets import QFileDialog

from hushpore.viewer.layers import start
from hushpore.viewer.segment.widget import PoresWidget


@pytest.fixture
def widget(make_napari_viewer):
    return PoresWidget(make_napari_viewer())


def choose(monkeypatch, path):
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(path), ""))
    monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_: str(path))


def test_an_empty_window_offers_every_start(widget):
    assert all(f'href="{target}"' in widget._facts.html for target in start.LINKS)


def test_a_chosen_file_is_opened(widget, monkeypatch, tmp_path):
    values = np.arange(4 * 8 * 8, dtype="u2").reshape(4, 8, 8)
    tifffile.imwrite(tmp_path / "scan.tif", values, photometric="minisblack")
    choose(monkeypatch, tmp_path / "scan.tif")
    widget._follow("open scan")
    assert widget.layer.value.data.shape == (4, 8, 8)
    assert "open scan" not in widget._facts.html


def test_a_folder_of_slices_is_opened(widget, monkeypatch, tmp_path):
    for number in range(3):
        slice_ = np.full((8, 8), number, "u2")
        tifffile.imwrite(tmp_path / f"slice_{number:03d}.tif", slice_)
    choose(monkeypatch, tmp_path)
    widget._follow("open slices")
    assert widget.layer.value.data.shape == (3, 8, 8)


def test_a_cancelled_dialog_opens_nothing(widget, monkeypatch):
    choose(monkeypatch, "")
    widget._follow("open scan")
    widget._follow("open result")
    assert not widget._viewer.layers


def test_the_last_line_says_where_help_is(widget, monkeypatch):
    opened = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))
    address = list(start.LINKS)[-1]
    assert f"Help: {address.removeprefix('https://')}" in start.LINKS[address]
    widget._follow(address)
    metadata = importlib.metadata.metadata("hushpore")
    assert opened == [address]
    assert f"Documentation, {address}" in metadata.get_all("Project-URL")


def test_a_file_that_is_no_scan_is_reported_without_a_traceback(widget, monkeypatch, tmp_path):
    (tmp_path / "junk.tif").write_bytes(b"not a picture")
    choose(monkeypatch, tmp_path / "junk.tif")
    widget._follow("open scan")
    assert "junk.tif" in notification_manager.records[-1].message
    assert notification_manager.records[-1].severity == "warning"
    assert not widget._viewer.layers


def test_the_foam_comes_with_its_truth_hidden():
    noisy, truth = (Layer.create(*data) for data in start.foam())
    assert isinstance(noisy, Image)
    assert isinstance(truth, Labels)
    assert noisy.visible
    assert not truth.visible
    assert truth.data.shape == noisy.data.shape
    assert tuple(truth.scale) == tuple(noisy.scale)
    assert {str(unit) for unit in noisy.units} == {"millimeter"}
    # pores are dark
    assert np.mean(noisy.data[truth.data > 0]) < np.mean(noisy.data[truth.data == 0])


def test_the_core_lies_in_air_and_has_no_voxel_size():
    scan, truth = (Layer.create(*data) for data in start.core())
    assert {str(unit) for unit in scan.units} == {"pixel"}
    assert scan.data[:, 0, 0].mean() < 0.5 * scan.data[:, 96, 96].mean()
    assert not truth.data[:, :5].any()


def test_a_real_slice_can_be_opened():
    (layer,) = (Layer.create(*data) for data in start.slice_of_ct())
    assert layer.data.ndim == 2
    assert {str(unit) for unit in layer.units} == {"millimeter"}
