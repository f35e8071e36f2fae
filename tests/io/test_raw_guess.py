"""Layouts of raw files that nothing describes."""

import json

import numpy as np
import pytest

from hushpore.io.raw_guess import guess_layout


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
