"""Picture slices, written by Pillow and read by imageio, too; and folders of SkyScan."""

from __future__ import annotations

import sys

import imageio.v3
import numpy as np
import pytest
from PIL import Image

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.io import describe, kind_of, read, read_all

LOG = """[System]
Scanner=SkyScan1172
Source Type=Hamamatsu 100/250
[Acquisition]
Source Voltage (kV)=  80
Source Current (uA)= 124
Image Pixel Size (um)=   24.8
Exposure (ms)=  1475
Rotation Step (deg)=0.400
Filter=Al 0.5 mm
[Reconstruction]
Reconstruction Program=NRecon
Pixel Size (um)=12.38459
Minimum for CS to Image Conversion=0.0000
"""
SETTINGS = {
    "scanner": "SkyScan1172", "voltage_kv": 80, "current_ua": 124, "filter": "Al 0.5 mm",
    "exposure_ms": 1475, "rotation_step_deg": 0.4,
}  # fmt: skip


@pytest.fixture
def planes(rng):
    return rng.integers(0, 255, (12, 20, 30), dtype=np.uint8)


def written(folder, planes, name="slice_{:04d}.png"):
    folder.mkdir(exist_ok=True)
    for number, plane in enumerate(planes):
        # as programs write it that know nothing of the size
        Image.fromarray(plane).save(folder / name.format(number), dpi=(72, 72))
    return folder


@pytest.mark.parametrize("ending", ["png", "bmp"])
def test_a_folder_of_slices_is_one_volume(tmp_path, planes, ending):
    folder = written(tmp_path / "bread", planes, f"z{{}}.{ending}")
    (folder / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (folder / "._z0.png").write_bytes(b"junk")
    assert kind_of(folder) == "picture"
    volume = read(folder)
    np.testing.assert_array_equal(volume.data, planes)
    np.testing.assert_array_equal(volume.data[10], imageio.v3.imread(folder / f"z10.{ending}"))
    assert (volume.name, volume.axes, volume.unit) == ("bread", "zyx", "pixel")
    assert volume.notes == ["Pictures state no voxel size; the voxel size is not known."]


@pytest.mark.parametrize("dtype", ["u2", "?"])
def test_png_of_16_bits_and_of_1_keep_their_values(tmp_path, rng, dtype):
    values = rng.integers(0, 2 if dtype == "?" else 65535, (3, 9, 8)).astype(dtype)
    volume = read(written(tmp_path / "a", values))
    np.testing.assert_array_equal(volume.data, values)
    assert volume.dtype == dtype


def test_a_grey_palette_is_applied_and_coloured_slices_of_equal_colours_are_grey(tmp_path, planes):
    for name, plane in zip(("a", "b"), planes, strict=False):
        (tmp_path / name).mkdir()
        for number in range(3):
            image = Image.fromarray(plane)
            if name == "a":
                image = image.convert("P")
                image.putpalette([255 - grey for grey in range(256) for _ in range(3)])
            else:
                image = image.convert("RGB")
            image.save(tmp_path / name / f"{number}.bmp")
    np.testing.assert_array_equal(read(tmp_path / "a").data[1], 255 - planes[0])
    volume = read(tmp_path / "b")
    np.testing.assert_array_equal(volume.data[2], planes[1])
    assert "stored in colour" in volume.notes[0]


def test_photographs_are_refused(tmp_path, rng):
    values = rng.integers(0, 255, (3, 9, 8, 3), dtype=np.uint8)
    with pytest.raises(InputError, match="colour image"):
        read(written(tmp_path / "a", values))
    palette = Image.fromarray(values[0]).quantize(8)
    palette.save(tmp_path / "p.png")
    with pytest.raises(InputError, match="colour image"):
        read(tmp_path / "p.png")


def test_jpeg_is_said_to_be_lossy(tmp_path, planes):
    folder = written(tmp_path / "a", planes, "z{}.jpg")
    volume = read(folder)
    np.testing.assert_array_equal(volume.data[3], np.asarray(Image.open(folder / "z3.jpg")))
    assert "JPEG is lossy" in volume.notes[0]


def test_information_decodes_nothing(tmp_path, planes, monkeypatch):
    folder = written(tmp_path / "a", planes)

    def refuse(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr("hushpore.io.pictures._values", refuse)
    assert describe(folder)[0].shape == (12, 20, 30)


@pytest.mark.parametrize("ending", ["bmp", "tif", "png"])
def test_a_skyscan_folder_has_the_voxel_size_and_settings_of_its_log(tmp_path, planes, ending):
    values = planes.astype("u1" if ending == "bmp" else "u2")
    folder = written(tmp_path / "scan", values, f"bread__rec{{:08d}}.{ending}")
    written(folder, planes[:1, ::2, ::2], "bread__rec_spr.bmp")
    if ending == "bmp":
        (folder / "Thumbs.db").write_bytes(b"junk")
        written(folder, planes[:1], "bread__rec_spr.bmp")
    (folder / "bread__rec.log").write_text(LOG)
    volume = read(folder)
    np.testing.assert_array_equal(volume.data, values)
    assert (volume.unit, volume.spacing) == ("um", (12.38459,) * 3)
    assert volume.metadata["scanner"] == SETTINGS
    said = " ".join(volume.notes)
    assert "12.3846 µm, is taken from bread__rec.log" in said
    assert ending != "bmp" or "slices): bread__rec_spr.bmp" in said
    assert "not known" not in said
    assert "unknown" not in said


def test_two_scans_of_one_folder_have_a_log_each(tmp_path, planes):
    folder = written(tmp_path / "scans", planes, "a_rec{:04d}.bmp")
    written(folder, planes[::-1], "b_rec{:04d}.bmp")
    (folder / "a_rec.log").write_text(LOG)
    (folder / "b_rec.log").write_text(LOG.replace("12.38459", "6,5"))
    volumes = read_all(folder)
    assert [volume.name for volume in volumes] == ["a_rec", "b_rec"]
    assert [volume.spacing[0] for volume in volumes] == [12.38459, 6.5]
    np.testing.assert_array_equal(volumes[1].data, planes[::-1])


def test_a_log_of_another_program_states_nothing(tmp_path, planes):
    folder = written(tmp_path / "a", planes)
    (folder / "install.log").write_text("[Setup]\nPixel Size (um)=3\nnothing\n")
    assert read(folder).unit == "pixel"


def test_one_picture_beside_tiff_slices_is_none_and_one_tiff_beside_pictures_is_none(
    tmp_path, planes
):
    folder = written(tmp_path / "a", planes, "z{}.tif")
    written(folder, planes[:1], "view.png")
    assert read(folder).shape == planes.shape
    folder = written(tmp_path / "b", planes, "z{}.png")
    written(folder, planes[:1], "flat.tif")
    assert read(folder).shape == planes.shape


def test_a_small_file_that_states_a_large_picture_is_refused(tmp_path, planes):
    Image.fromarray(planes[0]).save(tmp_path / "a.bmp")
    content = bytearray((tmp_path / "a.bmp").read_bytes())
    content[18:26] = np.array([12000, 12000], "<i4").tobytes()
    (tmp_path / "a.bmp").write_bytes(content)
    with pytest.raises(HushporeError, match="crafted to fill the memory"):
        describe(tmp_path / "a.bmp")


@pytest.mark.parametrize("ending", ["png", "bmp", "jpg"])
def test_damaged_files_give_an_image_or_a_clear_error(tmp_path, planes, rng, ending):
    Image.fromarray(planes[0]).save(tmp_path / f"a.{ending}")
    content = (tmp_path / f"a.{ending}").read_bytes()
    for number in range(100):
        broken = bytearray(content)
        for at in rng.integers(2, len(content), 3):
            broken[at] ^= int(rng.integers(1, 255))
        cut = bytes(broken)[: None if number % 3 else rng.integers(9, len(content))]
        (tmp_path / f"a.{ending}").write_bytes(cut)
        try:
            read(tmp_path / f"a.{ending}")
        except HushporeError:
            continue


def test_without_pillow_the_command_that_installs_it_is_given(tmp_path, planes, monkeypatch):
    folder = written(tmp_path / "a", planes)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[formats\]'"):
        read(folder)
