"""Layouts of raw files that nothing describes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.io import kind_of, read
from hushpore.io.raw import layout_by_name, why_misfit
from hushpore.io.raw_guess import guess_layout
from hushpore.runs.scan_recipe import with_voxel_size


def scan(shape=(40, 64, 64), dtype=np.uint16):
    """Return a smooth image with some noise."""
    z, y, x = np.indices(shape)
    rng = np.random.default_rng(1)
    smooth = 1000 + 600 * np.sin(x / 9) * np.cos(y / 7 + z / 11)
    return (smooth + rng.normal(0, 30, shape)).astype(dtype)


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "<f4", ">f4"])
def test_the_size_alone_gives_square_slices_and_the_values_the_type(tmp_path, dtype):
    path = tmp_path / "a.vol"
    scan(dtype=dtype).tofile(path)
    guess = guess_layout(path)
    assert guess.shape == (40, 64, 64)
    assert guess.dtype == np.dtype(dtype).name
    assert guess.byte_order == ("big" if dtype[0] == ">" else "little")
    assert guess.reason == "Guessed from the file size alone; it matches the file size."


def test_negative_values_are_signed(tmp_path):
    path = tmp_path / "a.raw"
    (scan(dtype=np.int16) - 1000).astype(np.int16).tofile(path)
    assert guess_layout(path).dtype == "int16"


def test_a_name_leaves_room_for_a_header(tmp_path):
    path = tmp_path / "bread_70x60x30.raw"
    path.write_bytes(b"h" * 512 + scan((30, 60, 70)).tobytes())
    guess = guess_layout(path)
    assert (guess.shape, guess.dtype, guess.offset) == ((30, 60, 70), "uint16", 512)
    assert "512 bytes before the voxels are left for a header" in guess.reason


def test_a_name_that_fits_gives_the_voxel_size(tmp_path):
    path = tmp_path / "bread_70x60x30_16bit_12.5um.raw"
    scan((30, 60, 70)).tofile(path)
    guess = guess_layout(path)
    assert (guess.shape, guess.voxel_size) == ((30, 60, 70), "12.5um")
    assert "the file name" in guess.reason


def test_neighbours_with_a_header_and_texts_give_the_shape(tmp_path):
    values = scan((30, 60, 70))
    for name in ("a.raw", "b.raw"):
        values.tofile(tmp_path / name)
    stated = {"shape": [30, 60, 70], "dtype": "<u2"}
    (tmp_path / "b.json").write_text(json.dumps(stated))
    guess = guess_layout(tmp_path / "a.raw")
    assert guess.shape == (30, 60, 70)
    assert "b.raw" in guess.reason
    for name in ("b.json", "b.raw"):
        (tmp_path / name).unlink()
    text = "[VolumeData]\nVoxelsX=70\nVoxelsY=60\nVoxelsZ=30\nkV=100.5\n"
    (tmp_path / "scan.log").write_text(text)
    guess = guess_layout(tmp_path / "a.raw")
    assert guess.shape == (30, 60, 70)
    assert "scan.log" in guess.reason


def test_noise_and_odd_sizes_are_said(tmp_path):
    rng = np.random.default_rng(0)
    noise = tmp_path / "noise.raw"
    noise.write_bytes(rng.bytes(64**3))
    assert "looks like noise" in guess_layout(noise).reason
    odd = tmp_path / "odd.raw"
    odd.write_bytes(rng.bytes(10_007))
    guess = guess_layout(odd)
    assert "No shape fits" in guess.reason
    assert np.prod(guess.shape) <= 10_007


CASES = [
    ("bread_7x6x5_16bit.raw", "<u2", None),
    ("bread_7x6x5_int16.raw", "<i2", None),
    ("bread_7x6x5_16bit_signed.vol", "<i2", None),
    ("bread 7x6x5 float32 BE.raw", ">f4", None),
    ("bread-7x6x5-32bit.bin", "<f4", None),
    ("x_7_6_5_voxel_02214nm.raw", "<u2", (2214, "nm")),
    ("scan_7X6X5_uint8_12.5um_px.dat", "u1", (12.5, "um")),
    ("scan_7X6X5_0.5mm_Al_vx12p5um.raw", "<u2", (12.5, "um")),
    ("2026-01-05_7x6x5.raw", "<f8", None),
    ("sample3_7_6_5_8bit_big_endian.raw", "u1", None),
    ("7x6x5_ushort_big-endian.raw", ">u2", None),
]


@pytest.mark.parametrize(("name", "dtype", "size"), CASES)
def test_shape_and_type_are_those_of_the_name(tmp_path, ramp, name, dtype, size):
    values = (ramp % 200).astype(dtype)
    values.tofile(tmp_path / name)
    assert kind_of(tmp_path / name) == "raw"
    volume = read(tmp_path / name)
    np.testing.assert_array_equal(volume.data, values)
    assert "Shape 7 x 6 x 5 (x, y, z)" in volume.notes[-1]
    assert "guessed from the file name" in volume.notes[-1]
    expected = (1.0, "pixel") if size is None else size
    assert (volume.spacing[0], volume.unit) == expected


@pytest.mark.parametrize(
    ("name", "said", "flag"),
    [
        ("foam_7x6x5_16bit_500um_Cu.raw", "500um", "500um"),
        ("core_5mm_7x6x5_16bit_2um.raw", "5mm and 2um", "2um"),
        ("bread_7x6x5_16bit_0.5mm_Al_12um.raw", "0.5mm and 12um", "12um"),
        ("bread_7x6x5_16bit_12p5µm.raw", "12p5µm", "12.5um"),
    ],
)
def test_a_length_that_is_not_called_that_of_a_voxel_is_said_and_not_used(
    tmp_path, ramp, name, said, flag
):
    ramp.tofile(tmp_path / name)
    volume = read(tmp_path / name)
    assert volume.unit == "pixel"
    assert f"The name gives {said}, but" in volume.notes[0]
    assert f"--voxel-size {flag}," in volume.notes[0]
    assert with_voxel_size(volume, flag).unit in ("um", "mm")


@pytest.mark.parametrize("extra", [-1, 1])
def test_the_size_of_the_file_must_agree_to_the_byte(tmp_path, ramp, extra):
    content = ramp.tobytes()
    path = tmp_path / "bread_7x6x5_16bit.raw"
    path.write_bytes(content[:extra] if extra < 0 else content + b"\0")
    assert layout_by_name(path) is None
    with pytest.raises(InputError, match=f"but the file has {420 + extra} bytes") as told:
        read(path)
    assert "docs" not in str(told.value)


def test_a_json_file_counts_more_than_the_name(tmp_path, ramp):
    ramp.tofile(tmp_path / "a_7x6x5.raw")
    (tmp_path / "a_7x6x5.json").write_text('{"shape": [6, 5, 7], "dtype": "<i2"}')
    assert read(tmp_path / "a_7x6x5.raw").shape == (6, 5, 7)


def test_half_a_copy_is_said_by_the_sizes(tmp_path, ramp):
    path = tmp_path / "bread_7x6x5_16bit.raw"
    path.write_bytes(ramp.astype("<u2").tobytes()[:210])
    assert why_misfit(path) == (
        "its name gives 7 x 6 x 5 voxels of uint16 (420 bytes), but the file has 210 bytes"
    )
    with pytest.raises(InputError, match=r"has 210 bytes\. Copy it again .* --shape and --dtype"):
        read(path)
    path.write_bytes(ramp.astype("<u2").tobytes())
    assert not why_misfit(path)
    # a name without a type may mean any
    path.rename(tmp_path / "bread_7x6x5.raw")
    assert not why_misfit(tmp_path / "bread_7x6x5.raw")
