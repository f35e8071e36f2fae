"""Raw files whose names give shape and type."""

from __future__ import annotations

import numpy as np
import pytest

from hushpore.base.errors import InputError
from hushpore.io import kind_of, read
from hushpore.io.raw_names import layout_by_name, why_misfit

CASES = [
    ("bread_7x6x5_16bit.raw", "<u2", None),
    ("bread_7x6x5_int16.raw", "<i2", None),
    ("bread_7x6x5_16bit_signed.vol", "<i2", None),
    ("bread 7x6x5 float32 BE.raw", ">f4", None),
    ("bread-7x6x5-32bit.bin", "<f4", None),
    ("x_7_6_5_02214nm.raw", "<u2", (2214, "nm")),
    ("scan_7X6X5_uint8_12.5um.dat", "u1", (12.5, "um")),
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
