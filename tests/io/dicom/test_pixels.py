import numpy as np
import pydicom
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom.data import get_testdata_file
from pydicom.uid import DeflatedExplicitVRLittleEndian, ImplicitVRLittleEndian

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io import describe, read
from hushpore.io.dicom import write_series


def slice_of(folder, values, bits_stored=None, high_bit=None, slope=None, intercept=None):
    """Write one slice of any integer type."""
    volume = Volume(np.zeros((1, *values.shape), np.int16), spacing=(1, 1, 1), unit="mm")
    (path,) = write_series(volume, folder / "s", seed=1, overwrite=True).iterdir()
    dataset = pydicom.dcmread(path)
    bits = 8 * values.dtype.itemsize
    dataset.BitsAllocated, dataset.BitsStored = bits, bits_stored or bits
    dataset.HighBit = dataset.BitsStored - 1 if high_bit is None else high_bit
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    dataset.PixelData = values.tobytes() + b"\0" * (values.nbytes % 2)
    dataset["PixelData"].VR = "OB" if bits == 8 else "OW"
    if slope is not None:
        dataset.RescaleSlope, dataset.RescaleIntercept = slope, intercept
    dataset.save_as(path)
    return path


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
def test_every_integer_type_is_read_exactly(tmp_path, rng, dtype):
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, (5, 7), dtype=dtype, endpoint=True)
    volume = read(slice_of(tmp_path, values))
    np.testing.assert_array_equal(volume.data, values)
    assert volume.dtype == values.dtype


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, DeflatedExplicitVRLittleEndian])
def test_other_transfer_syntaxes_give_the_same_values(tmp_path, rng, syntax):
    values = rng.integers(-999, 999, (5, 7)).astype(np.int16)
    path = slice_of(tmp_path, values)
    dataset = pydicom.dcmread(path)
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.save_as(path, implicit_vr=syntax.is_implicit_VR, little_endian=True)
    np.testing.assert_array_equal(read(path).data, values)


@pytest.mark.parametrize("name", ["MR_small_bigendian", "MR_small_implicit", "MR_small_RLE"])
def test_one_image_in_other_encodings_is_the_same_image(name):
    paths = (get_testdata_file(f"{each}.dcm", download=False) for each in ("MR_small", name))
    first, second = (read(path) for path in paths)
    np.testing.assert_array_equal(first.data, second.data)
    assert second.dtype.isnative


@given(
    bits=st.integers(2, 16), above=st.integers(0, 14), signed=st.booleans(), seed=st.integers(0, 99)
)
def test_bits_that_hold_no_part_of_the_value_are_dropped(
    tmp_path_factory, bits, above, signed, seed
):
    high_bit = min(15, bits - 1 + above)
    rng = np.random.default_rng(seed)
    low = -(2 ** (bits - 1)) if signed else 0
    values = rng.integers(low, low + 2**bits, (5, 7))
    noise = rng.integers(0, 2**16, (5, 7))
    place = high_bit + 1 - bits
    mask = (2**bits - 1) << place
    stored = ((values << place) & mask) | (noise & ~mask & 0xFFFF)
    stored = stored.astype(np.uint16).view(np.int16 if signed else np.uint16)
    path = slice_of(tmp_path_factory.mktemp("bits"), stored, bits, high_bit)
    np.testing.assert_array_equal(read(path).data, values)


@given(slope=st.floats(-100, 100).filter(bool), intercept=st.floats(-1e4, 1e4))
def test_rescaling_rounds_once(tmp_path_factory, slope, intercept):
    slope, intercept = float(f"{slope:.6g}"), float(f"{intercept:.6g}")
    values = np.array([[-32768, -1, 0], [1, 77, 32767]], np.int16)
    path = slice_of(tmp_path_factory.mktemp("r"), values, slope=slope, intercept=intercept)
    expected = (values.astype(np.float64) * slope + intercept).astype(np.float32)
    np.testing.assert_array_equal(read(path).data.astype(np.float32), expected)


def test_values_of_32_bits_are_rescaled_in_double_precision(tmp_path):
    values = np.array([[2**24 + 1, -(2**30) - 3]], np.int32)
    path = slice_of(tmp_path, values, slope=1, intercept=-(2**24))
    expected = (values.astype(np.float64) - 2**24).astype(np.float32)
    np.testing.assert_array_equal(read(path).data, expected)


@pytest.mark.parametrize("share", [0.3, 0.95, 0.999])
def test_a_file_that_ends_early_is_refused_from_its_header(tmp_path, rng, share):
    path = slice_of(tmp_path, rng.integers(0, 99, (50, 70)).astype(np.int16))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError, match=r"damaged or incomplete|no pixels|bytes of pixels"):
        describe(path)


def test_an_image_that_the_compressed_bytes_cannot_hold_is_refused(tmp_path, rng):
    path = slice_of(tmp_path, rng.integers(0, 99, (50, 70)).astype(np.int16))
    dataset = pydicom.dcmread(path)
    dataset.compress("1.2.840.10008.1.2.5")
    dataset.Rows = dataset.Columns = 60000
    dataset.save_as(path)
    with pytest.raises(InputError, match="crafted to fill the memory"):
        read(path)


@pytest.mark.parametrize(
    ("kind", "first", "entries"),
    [
        ("US", 0, 2 * np.arange(2000) + 7),
        ("HU", 100, np.arange(1900)),
        ("US", 0, np.arange(2000) ** 2 // 100),
    ],
)
def test_a_table_of_grey_values_is_applied_if_it_is_a_line(tmp_path, rng, kind, first, entries):
    values = rng.integers(100, 1900, (6, 7)).astype(np.uint16)
    path = slice_of(tmp_path, values)
    dataset = pydicom.dcmread(path)
    del dataset.RescaleSlope, dataset.RescaleIntercept, dataset.RescaleType
    table = pydicom.Dataset()
    table.add_new(0x00283002, "US", [len(entries), first, 16])
    table.ModalityLUTType = kind
    table.add_new(0x00283006, "US", entries.tolist())
    dataset.ModalityLUTSequence = pydicom.Sequence([table])
    dataset.save_as(path)
    volume = read(path)
    is_line = len(set(np.diff(entries))) == 1
    truth = pydicom.pixels.apply_modality_lut(values, dataset) if is_line else values
    np.testing.assert_array_equal(volume.array(), truth)
    assert volume.metadata.get("value_unit") == ("HU" if kind == "HU" else None)
    assert any("Modality LUT" in note for note in volume.notes) == (not is_line)
