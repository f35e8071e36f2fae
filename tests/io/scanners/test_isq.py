"""Scanco volumes, written by the layout of their header."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.rescaled import Scaled, held
from hushpore.io import describe, kind_of, read


def isq_bytes(values, lengths=(70, 60, 50), scaling=4096, blocks=2, patient=b"Doe, Jane"):
    depth, rows, columns = values.shape
    header = bytearray(512 * (blocks + 1))
    header[:16] = b"CTDATA-HEADER_V1"
    struct.pack_into("<6i", header, 44, columns, rows, depth, *lengths)
    struct.pack_into("<i", header, 88, scaling)
    header[128 : 128 + len(patient)] = patient
    struct.pack_into("<2i", header, 168, 70000, 114)
    struct.pack_into("<i", header, 508, blocks)
    return bytes(header) + values.astype("<i2").tobytes()


@pytest.mark.parametrize("blocks", [0, 2])
def test_values_are_attenuation_and_the_voxel_size_is_length_over_number(tmp_path, ramp, blocks):
    path = tmp_path / "bone.ISQ"
    path.write_bytes(isq_bytes(ramp, blocks=blocks))
    assert kind_of(path) == "isq"
    volume = read(path)
    assert isinstance(volume.data, Scaled)
    np.testing.assert_array_equal(held(volume.data), ramp)
    np.testing.assert_array_equal(volume.array(), (ramp / 4096).astype(np.float32))
    assert (volume.spacing, volume.unit) == ((0.01, 0.01, 0.01), "mm")
    assert volume.metadata["value_unit"] == "1/cm"
    assert volume.metadata["scanner"] == {"voltage_kv": 70, "current_ua": 114}


@pytest.mark.needs("itk")
def test_the_scanco_module_of_itk_agrees(tmp_path, ramp):
    import itk

    path = tmp_path / "bone.isq"
    path.write_bytes(isq_bytes(ramp))
    theirs, ours = itk.imread(str(path)), read(path)
    np.testing.assert_array_equal(itk.array_from_image(theirs), held(ours.data))
    assert list(theirs.GetSpacing())[::-1] == pytest.approx(ours.spacing)


def test_the_patient_is_not_read(tmp_path, ramp):
    path = tmp_path / "bone.isq"
    path.write_bytes(isq_bytes(ramp))
    assert "Doe" not in repr(describe(path))


def test_a_scan_that_ends_too_early_is_refused(tmp_path, ramp):
    path = tmp_path / "bone.isq"
    path.write_bytes(isq_bytes(ramp)[:-2])
    with pytest.raises(InputError, match="incomplete"):
        describe(path)
    path.write_bytes(isq_bytes(ramp)[:100])
    with pytest.raises(InputError, match="incomplete"):
        describe(path)


def test_damaged_headers_give_an_image_or_a_clear_error(tmp_path, ramp, rng):
    path = tmp_path / "a.isq"
    content = isq_bytes(ramp)
    for _ in range(150):
        broken = bytearray(content)
        for at in rng.integers(16, 512, 4):
            broken[at] ^= int(rng.integers(1, 255))
        path.write_bytes(bytes(broken))
        try:
            read(path)
        except HushporeError:
            continue
