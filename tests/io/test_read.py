import os
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile

import hushpore
from hushpore.base.errors import InputError, MissingPackageError
from hushpore.base.volume import Volume
from hushpore.io import kind_of, read, read_all
from hushpore.io.dicom import write_series
from hushpore.io.registry import READERS, titles


@pytest.fixture
def series(tmp_path, ramp):
    return write_series(Volume(ramp, spacing=(3, 1, 1), unit="mm"), tmp_path / "series", seed=1)


def test_the_package_offers_the_readers():
    assert hushpore.read is read
    assert hushpore.read_all is read_all


def test_the_source_of_a_volume_is_the_path_that_was_read(tmp_path, ramp):
    path = tmp_path / "scan.tif"
    tifffile.imwrite(path, ramp, photometric="minisblack")
    assert read(path).source == str(path)
    assert read(str(path)).name == "scan"


def test_a_numpy_file_is_read(tmp_path, ramp):
    np.save(tmp_path / "a.npy", ramp)
    np.testing.assert_array_equal(read(tmp_path / "a.npy").data, ramp)


def test_of_several_stacks_the_largest_is_read_and_the_others_are_named(tmp_path):
    with tifffile.TiffWriter(tmp_path / "two.tif") as tif:
        tif.write(np.zeros((10, 12), np.uint8), photometric="minisblack")
        tif.write(np.ones((20, 24), np.uint8), photometric="minisblack")
    volume = read(tmp_path / "two.tif")
    assert volume.shape == (20, 24)
    assert "two [1] (10 x 12)" in volume.notes[0]
    assert "Choose another with series= (the others: two" in volume.notes[0]
    assert [v.shape for v in read_all(tmp_path / "two.tif")] == [(10, 12), (20, 24)]


def test_a_single_dicom_file_gives_its_own_pixels_only(series, ramp):
    files = sorted(series.iterdir())
    volume = read(files[2])
    assert volume.axes == "yx"
    np.testing.assert_array_equal(volume.data, ramp[2])


def test_dicom_is_found_in_folders_within_folders_and_by_its_mark_alone(tmp_path, series, ramp):
    deep = tmp_path / "study" / "day 1" / "scan"
    deep.mkdir(parents=True)
    for number, path in enumerate(sorted(series.iterdir())):
        path.rename(deep / f"file{number}")
    (tmp_path / "study" / "notes.txt").write_text("hello")
    volume = read(tmp_path / "study")
    np.testing.assert_array_equal(volume.data, ramp)
    assert any("notes.txt" in note for note in volume.notes)


def test_a_dicom_file_whose_free_bytes_look_like_tiff_is_read_as_dicom(series):
    path = sorted(series.iterdir())[0]
    content = bytearray(path.read_bytes())
    content[:4] = b"II*\0"
    path.write_bytes(content)
    assert kind_of(path) == "dicom"
    assert read(path).shape == (6, 7)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("scan.tif", b"this is only text, not an image", "its content is not TIFF"),
        ("scan.dcm", b"this is only text, not an image", "its content is not DICOM"),
        ("scan.npy", b"this is only text, not an image", "its content is not NumPy"),
        ("scan.tif", b"", "empty"),
        ("scan.raw", b"\1\2\3\4", "JSON file of the same name"),
        ("notes.txt", b"hello", f"Supported formats: {titles(READERS.values(), 'and')}"),
        ("pores.csv", b"label,volume\n1,2\n", "is a table, but an image is needed"),
        (
            "a.log",
            b"[Acquisition]\nExposure (ms)=50\n",
            "holds the settings of a scan, but no image",
        ),
        ("a.log", b"12:01 started\n", "Supported formats"),
        ("photo.gif", b"GIF89a", "greyscale TIFF"),
        ("photo.webp", b"RIFF", "is a picture format"),
        ("photo.png", b"\x89PNG\r\n\x1a\n", "damaged or incomplete"),
        ("photo.jpg", b"\xff\xd8\xff\xe0", "damaged or incomplete"),
        ("scan.tif", b"II*\0\x08\0\0\0\xff\xff", "damaged or incomplete"),
        ("scan.tif", b"II*\0", "damaged or incomplete"),
        ("scan.npy", b"\x93NUMPY\x01\x00v\x00", "not a complete NumPy file"),
        ("scan.dcm", b"\0" * 128 + b"DICM", "no pixels"),
    ],
)
def test_a_file_that_is_no_image_is_refused_in_plain_words(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.tif does not exist"):
        read(tmp_path / "nothing.tif")


def test_a_path_through_a_file_is_refused(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError):
        read(tmp_path / "a" / "b.tif")


def test_an_empty_folder_and_one_without_images_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="is empty"):
        read(tmp_path)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(InputError, match=r"All files in .* are empty \(0 bytes\): a\.txt\. Copy"):
        read(tmp_path)
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(
        InputError, match=r"No image stack was found.*only a\.txt\)\. Open the folder"
    ):
        read(tmp_path)


def test_a_folder_of_folders_with_tiff_names_them(tmp_path, ramp):
    (tmp_path / "slices").mkdir()
    tifffile.imwrite(tmp_path / "slices" / "a.tif", ramp, photometric="minisblack")
    with pytest.raises(InputError, match="slices"):
        read(tmp_path)


def test_one_axis_is_not_an_image(tmp_path):
    np.save(tmp_path / "line.npy", np.arange(9))
    with pytest.raises(InputError, match="2 to 5 axes"):
        read(tmp_path / "line.npy")


def test_objects_in_a_numpy_file_are_never_unpickled(tmp_path):
    np.save(tmp_path / "evil.npy", np.array([{}, {}], object), allow_pickle=True)
    with pytest.raises(InputError):
        read(tmp_path / "evil.npy")


def test_a_file_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "secret.tif")

    (tmp_path / "secret.tif").write_bytes(b"II*\0")
    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(InputError, match=r"Permission to read secret\.tif is missing"):
        read(tmp_path / "secret.tif")


def test_without_pydicom_the_command_that_installs_it_is_given(series, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(MissingPackageError, match="pip install pydicom"):
        read(series)


@pytest.mark.parametrize("make", [os.mkfifo]) if hasattr(os, "mkfifo") else pytest.mark.skip
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, make):
    make(tmp_path / "pipe.tif")
    assert kind_of(tmp_path / "pipe.tif") is None
    with pytest.raises(InputError):
        read(tmp_path / "pipe.tif")


def test_kinds_are_told_from_the_content(tmp_path, series, ramp):
    tifffile.imwrite(tmp_path / "a.xyz", ramp, photometric="minisblack")
    np.save(tmp_path / "a.npy", ramp)
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "text.tif").write_text("text")
    kinds = {name: kind_of(tmp_path / name) for name in os.listdir(tmp_path)}
    assert kinds == {
        "a.xyz": "tiff",
        "a.npy": "npy",
        "photo.png": "picture",
        "text.tif": None,
        "series": "dicom",
    }
    assert kind_of(tmp_path / "none") is None


def test_of_a_folder_of_many_other_files_only_the_first_are_looked_at(tmp_path, monkeypatch):
    for number in range(200):
        (tmp_path / f"{number}.txt").write_text("notes", encoding="utf-8")
    opened, open_file = [], Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *mode: opened.append(path) or open_file(path, *mode)
    )
    assert kind_of(tmp_path) is None
    assert 0 < len(opened) < 50


def test_kind_of_never_raises(monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    assert kind_of(tmp_path) is None
    assert kind_of("\0") is None


def test_a_folder_with_one_file_of_another_format_opens_it(tmp_path, ramp):
    np.save(tmp_path / "scan.npy", ramp)
    (tmp_path / "notes.txt").write_text("measured on Monday", encoding="utf-8")
    (tmp_path / "Thumbs.db").write_bytes(b"junk")
    assert kind_of(tmp_path) == "npy"
    volume = read(tmp_path)
    np.testing.assert_array_equal(volume.data, ramp)
    assert volume.name == "scan"


def test_a_folder_with_several_files_of_another_format_names_them(tmp_path, ramp):
    for name in ("wet", "dry"):
        np.save(tmp_path / f"{name}.npy", ramp)
    with pytest.raises(InputError, match=r"dry\.npy, wet\.npy"):
        read(tmp_path)
