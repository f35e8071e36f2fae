from pathlib import Path

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner
from napari.components import ViewerModel
from napari.layers import Layer
from napari.utils.notifications import notification_manager
from PIL import Image

import hushpore
from hushpore import InputError
from hushpore.base.events import Progress
from hushpore.base.volume import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.io.dicom import write_series
from hushpore.io.registry import READERS, Reader
from hushpore.viewer.layers import reader
from hushpore.viewer.layers.reader import NO_LAYERS, get_reader

STACK = np.arange(6 * 8 * 10, dtype=np.uint16).reshape(6, 8, 10)


@pytest.fixture(autouse=True)
def nothing_said():
    notification_manager.records.clear()


@pytest.fixture
def tiff(tmp_path):
    path = tmp_path / "scan.tif"
    tifffile.imwrite(
        path,
        STACK,
        imagej=True,
        resolution=(1 / 0.5, 1 / 0.5),
        metadata={"spacing": 2.0, "unit": "mm", "axes": "ZYX"},
    )
    return str(path)


@pytest.fixture
def viewer(monkeypatch):
    """A viewer without its window, as the one that napari shows now."""
    viewer = ViewerModel()
    monkeypatch.setattr(reader, "current_viewer", lambda: viewer)
    return viewer


def read(viewer, path):
    """Do as napari does with what a reader returns."""
    found = get_reader(path)(path)
    for data in [] if found is NO_LAYERS else found:
        viewer.add_layer(Layer.create(*data))


def said():
    return [(note.severity.value, note.message) for note in notification_manager.records]


REFUSED = {
    "empty.tif": (b"", "empty.tif is empty (0 bytes). Copy or export it again."),
    "junk.tif": (b"a text file", "junk.tif"),
    "photo.png": (b"\x89PNG\r\n\x1a\n", "photo.png is damaged or incomplete"),
    "scan.vol": (b"\1\2\3\4", "--shape 400,512,512"),
    "scan.h5": (b"\x89HDF\r\n\x1a\n", "scan.h5 is damaged or incomplete"),
    "notes.txt": (b"hello", "notes.txt"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_the_sentence_of_the_command_line(
    viewer, tmp_path, name
):
    content, words = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    read(viewer, str(tmp_path / name))
    ((severity, message),) = said()
    assert severity == "warning"
    assert words in message
    assert "Traceback" not in message
    done = CliRunner().invoke(command, ["info", str(tmp_path / name)])
    assert done.exit_code == 1
    assert message.split() == done.output.removeprefix("hushpore: ").split()


def test_a_folder_without_images_is_refused_in_words(viewer, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    read(viewer, str(tmp_path))
    ((_, message),) = said()
    assert "notes.txt" in message


@pytest.mark.parametrize("path", ["missing.tif", "https://example.org/scan.tif"])
def test_what_is_not_there_is_left_to_napari(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    assert get_reader(path) is None


def test_slices_that_are_opened_as_a_stack_are_one_layer(tmp_path):
    paths = [str(tmp_path / f"s{number}.tif") for number in range(12)]
    for number, path in enumerate(paths):
        tifffile.imwrite(path, np.full((8, 10), number, np.uint8))
    ((data, _, _),) = get_reader(paths)(paths[::-1])
    np.testing.assert_array_equal(data[:, 0, 0], range(12))


def test_several_paths_that_are_not_slices_are_left_to_others(tiff, tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    np.save(tmp_path / "a.npy", STACK)
    assert get_reader([tiff, str(tmp_path / "notes.txt")]) is None
    assert get_reader([str(tmp_path / "a.npy")] * 2) is None
    assert get_reader([str(tmp_path), str(tmp_path)]) is None
    assert get_reader([]) is None


def test_a_small_file_is_read_at_once(tiff):
    ((data, keywords, kind),) = get_reader(tiff)(tiff)
    np.testing.assert_array_equal(data, STACK)
    assert kind == "image"
    assert keywords["scale"] == pytest.approx((2, 0.5, 0.5))
    assert keywords["axis_labels"] == ("z", "y", "x")
    assert keywords["metadata"]["hushpore"]["source"] == tiff


def test_a_file_opens_in_napari_through_the_manifest(make_napari_viewer, tiff):
    viewer = make_napari_viewer()
    viewer.open(tiff, plugin="hushpore")
    (layer,) = viewer.layers
    assert layer.name == "scan"
    assert tuple(layer.scale) == pytest.approx((2, 0.5, 0.5))
    assert {str(unit) for unit in layer.units} == {"millimeter"}


@pytest.mark.parametrize("name", ["empty.tif", "scan.vol", "junk"])
def test_a_refused_drop_shows_one_notification_and_no_traceback(make_napari_viewer, tmp_path, name):
    viewer = make_napari_viewer()
    path = tmp_path / name
    if name == "junk":
        path.mkdir()
        (path / "a.docx").write_bytes(b"PK")
    else:
        path.write_bytes(REFUSED[name][0])
    viewer.open(str(path), plugin="hushpore")
    ((severity, message),) = said()
    assert severity == "warning"
    assert path.name in message
    assert len(viewer.layers) == 0


@pytest.mark.parametrize("ending", ["png", "bmp"])
def test_a_folder_of_pictures_opens_as_a_drop_would(make_napari_viewer, tmp_path, ending):
    for number, plane in enumerate(STACK.astype(np.uint8)):
        Image.fromarray(plane).save(tmp_path / f"bread_rec{number:04d}.{ending}")
    (tmp_path / "bread_rec.log").write_text("[Reconstruction]\nPixel Size (um)=12.5\n")
    viewer = make_napari_viewer()
    viewer.open(str(tmp_path), plugin="hushpore")
    (layer,) = viewer.layers
    np.testing.assert_array_equal(layer.data, STACK.astype(np.uint8))
    assert tuple(layer.scale) == (12.5, 12.5, 12.5)
    assert {str(unit) for unit in layer.units} == {"micrometer"}


def test_a_large_file_is_read_in_a_thread(qtbot, make_napari_viewer, monkeypatch, tiff):
    monkeypatch.setattr(reader, "LARGE", 100)
    viewer = make_napari_viewer()
    viewer.open(tiff, plugin="hushpore")
    assert len(viewer.layers) == 0
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=10_000)
    assert viewer.layers[0].name == "scan"
    assert tuple(viewer.layers[0].scale) == pytest.approx((2, 0.5, 0.5))


@pytest.mark.parametrize("large", [100, 10**9], ids=["in a thread", "at once"])
def test_what_cannot_be_read_is_said_in_words(qtbot, viewer, monkeypatch, tmp_path, large):
    monkeypatch.setattr(reader, "LARGE", large)
    path = tmp_path / "cut.tif"
    tifffile.imwrite(path, np.random.default_rng(0).integers(0, 9, (20, 50, 50), np.uint8))
    path.write_bytes(path.read_bytes()[:20_000])
    read(viewer, str(path))
    qtbot.waitUntil(lambda: bool(said()), timeout=10_000)
    ((severity, message),) = said()
    assert severity == "warning"
    assert "cut.tif" in message
    assert len(viewer.layers) == 0


def test_without_a_viewer_an_error_is_raised(tmp_path, monkeypatch):
    path = tmp_path / "cut.tif"
    tifffile.imwrite(path, np.zeros((20, 50, 50), np.uint8))
    path.write_bytes(path.read_bytes()[:20_000])
    monkeypatch.setattr(reader, "current_viewer", lambda: None)
    with pytest.raises(InputError):
        get_reader(str(path))(str(path))


def test_what_the_reader_met_is_said_and_kept(viewer, monkeypatch, tiff):
    volume = hushpore.Volume(STACK, name="scan", notes=["Slice 6 is missing."])
    monkeypatch.setattr(hushpore, "read_all", lambda path: [volume], raising=False)
    read(viewer, tiff)
    assert said() == [("info", "scan: Slice 6 is missing.")]
    assert viewer.layers[0].metadata["hushpore"]["notes"] == ["Slice 6 is missing."]


@pytest.mark.parametrize("large", [100, 10**9], ids=["in a thread", "at once"])
def test_every_series_becomes_a_layer(qtbot, viewer, monkeypatch, tiff, large):
    volumes = [hushpore.Volume(STACK, name=name) for name in ("chest", "head")]

    def load(path, lazy, trust):
        yield Progress("reading", 1, 2, "slices", 0.5)
        return volumes

    monkeypatch.setattr(hushpore, "read_all", lambda path: volumes, raising=False)
    monkeypatch.setattr(reader, "load", load)
    monkeypatch.setattr(reader, "LARGE", large)
    read(viewer, tiff)
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=10_000)
    assert [layer.name for layer in viewer.layers] == ["chest", "head"]


@pytest.fixture
def several(tmp_path, rng):
    """A folder with three series, of which one lacks a slice."""
    for number, depth in enumerate((5, 9, 3)):
        values = rng.integers(-900, 900, (depth, 16, 12)).astype(np.int16)
        volume = hushpore.Volume(values, spacing=(2, 1, 1), unit="mm", name=f"part {number}")
        folder = write_series(volume, tmp_path / f"{number}", seed=number)
        if depth == 9:
            sorted(folder.iterdir())[4].unlink()
    return str(tmp_path)


def chooser_of(viewer):
    (dock,) = viewer.window.dock_widgets.values()
    return dock


@pytest.mark.parametrize("large", [100, 10**9], ids=["in a thread", "at once"])
def test_of_several_series_those_are_opened_that_have_a_tick(
    qtbot, make_napari_viewer, monkeypatch, several, large
):
    monkeypatch.setattr(reader, "LARGE", large)
    viewer = make_napari_viewer()
    viewer.open(several, plugin="hushpore")
    qtbot.waitUntil(lambda: len(viewer.window.dock_widgets) == 1, timeout=10_000)
    assert len(viewer.layers) == 0
    chooser = chooser_of(viewer)
    assert len(chooser.ticked()) == 3
    chooser.tick([0, 1])
    chooser._open.click()
    qtbot.waitUntil(lambda: len(viewer.layers) == 2 and bool(said()), timeout=10_000)
    assert [layer.data.shape[0] for layer in viewer.layers] == [5, 8]
    assert not viewer.window.dock_widgets
    assert any("Slice 5 is missing" in message for _, message in said())


def test_slices_that_are_dropped_one_by_one_are_one_layer(qtbot, make_napari_viewer, several):
    viewer = make_napari_viewer()
    slices = sorted(str(path) for path in (Path(several) / "0").iterdir())
    viewer.open(slices, stack=False, plugin="hushpore")
    assert len(viewer.layers) == 0
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=10_000)
    (layer,) = viewer.layers
    assert layer.data.shape == (5, 16, 12)
    assert tuple(layer.scale) == (2, 1, 1)
    qtbot.wait(100)
    assert len(viewer.layers) == 1


def test_a_note_about_missing_slices_offers_to_resample(
    qtbot, make_napari_viewer, monkeypatch, several
):
    monkeypatch.setattr(reader, "LARGE", 100)
    viewer = make_napari_viewer()
    viewer.open(f"{several}/1", plugin="hushpore")
    qtbot.waitUntil(lambda: bool(notification_manager.records), timeout=10_000)
    (note,) = notification_manager.records
    ((text, act),) = note.actions
    assert text == "Resample"
    act(None)
    qtbot.waitUntil(lambda: len(viewer.layers) == 2, timeout=10_000)
    assert [layer.data.shape[0] for layer in viewer.layers] == [8, 9]


def test_many_small_files_count_as_a_large_one(tmp_path):
    for number in range(100):
        (tmp_path / f"{number}").touch()
    assert reader.size_of(str(tmp_path), reader.LARGE) >= reader.LARGE
    assert reader.size_of(str(tmp_path / "0"), reader.LARGE) < reader.LARGE


def test_the_size_of_a_folder_is_found_without_walking_it_all(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "EACH_FILE", 1)
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(b"x" * 10)
    assert reader.size_of(str(tmp_path), 1000) == 50
    assert reader.size_of(str(tmp_path), 20) == 20


def test_nothing_is_what_napari_takes_for_no_layer():
    assert NO_LAYERS == [(None,)]


def test_a_format_that_is_declared_in_the_registry_is_read(tmp_path, monkeypatch):
    entry = Reader(
        title="Toy image",
        patterns=("*.toy",),
        matches=lambda start, path: start.startswith(b"TOY\n"),
        read=lambda path: Volume(np.loadtxt(path, skiprows=1), unit="um"),
        understood="numbers as text",
        voxel_size="is not stated",
    )
    path = str(tmp_path / "scan.toy")
    (tmp_path / "scan.toy").write_text("TOY\n1 2\n3 4\n")
    monkeypatch.setitem(READERS, "toy", entry)
    ((data, keywords, kind),) = get_reader(path)(path)
    np.testing.assert_array_equal(data, [[1, 2], [3, 4]])
    assert (kind, keywords["units"]) == ("image", ("micrometer", "micrometer"))


def test_a_file_that_may_fill_the_memory_is_opened_only_with_consent(
    qtbot, make_napari_viewer, tmp_path
):
    blank = np.zeros((2, 4096, 4096), np.uint16)
    tifffile.imwrite(tmp_path / "blank.tif", blank, compression="zstd")
    viewer = make_napari_viewer()
    viewer.open(str(tmp_path / "blank.tif"), plugin="hushpore")
    (note,) = notification_manager.records
    assert "1,000:1" in note.message
    assert not viewer.layers
    assert "--trust" not in note.message
    ((text, act),) = note.actions
    assert text == "Open anyway"
    act(None)
    qtbot.waitUntil(lambda: len(viewer.layers) == 1, timeout=20_000)
    assert viewer.layers[0].data.shape == blank.shape
