import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.encaps import encapsulate

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.io import read
from hushpore.io.dicom import write_series
from hushpore.io.guards import stated_size

imagecodecs = pytest.importorskip("imagecodecs")

SYNTAXES = {
    "rle": ("1.2.840.10008.1.2.5", None),
    "jpeg lossless": ("1.2.840.10008.1.2.4.70", imagecodecs.ljpeg_encode),
    "jpeg-ls": ("1.2.840.10008.1.2.4.80", imagecodecs.jpegls_encode),
    "jpeg 2000": (
        "1.2.840.10008.1.2.4.90",
        lambda a: imagecodecs.jpeg2k_encode(a, level=0, codecformat="j2k", reversible=True),
    ),
}


def compressed(path, name, values):
    """Rewrite a slice with compressed pixels."""
    dataset = pydicom.dcmread(path)
    dataset.PixelRepresentation = int(values.dtype.kind == "i")
    syntax, encode = SYNTAXES[name]
    if encode is None:
        dataset.PixelData = values.tobytes()
        dataset.compress(syntax)
    else:
        dataset.PixelData = encapsulate([encode(values)])
        dataset["PixelData"].is_undefined_length = True
        dataset.file_meta.TransferSyntaxUID = syntax
    dataset.save_as(path)
    return path


@pytest.fixture
def file(tmp_path, ramp):
    volume = Volume(np.zeros((1, 32, 40), np.int16), spacing=(3, 1, 1), unit="mm")
    return next(iter(write_series(volume, tmp_path / "s", seed=1).iterdir()))


@pytest.mark.parametrize(
    ("name", "dtype"),
    # the encoders at hand know no signed values of the other two
    [*((name, np.uint16) for name in SYNTAXES), ("rle", np.int16), ("jpeg 2000", np.int16)],
)
def test_compressed_values_are_those_that_were_compressed(file, rng, name, dtype):
    low = -2000 if dtype == np.int16 else 0
    values = rng.integers(low, 4000, (32, 40)).astype(dtype)
    np.testing.assert_array_equal(read(compressed(file, name, values)).data, values)


def test_signed_values_that_the_codec_takes_for_unsigned_get_their_sign_back(file, rng):
    values = rng.integers(-2000, 2000, (32, 40)).astype(np.int16)
    compressed(file, "jpeg-ls", values.view(np.uint16))
    dataset = pydicom.dcmread(file)
    dataset.PixelRepresentation = 1
    dataset.save_as(file)
    np.testing.assert_array_equal(read(file).data, values)


@pytest.mark.parametrize(
    "name",
    ["MR_small_RLE", "MR_small_jp2klossless", "JPEG2000", "J2K_pixelrep_mismatch", "693_J2KI"],
)
def test_pydicom_decodes_to_the_same_values(name):
    path = get_testdata_file(f"{name}.dcm", download=False)
    dataset = pydicom.dcmread(path)
    try:
        expected = dataset.pixel_array
    except Exception as error:
        pytest.skip(f"pydicom has no decoder here: {type(error).__name__}")
    slope, intercept = dataset.get("RescaleSlope", 1), dataset.get("RescaleIntercept", 0)
    np.testing.assert_array_equal(read(path).data, expected * float(slope) + float(intercept))


@pytest.mark.parametrize("name", ["jpeg lossless", "jpeg-ls", "jpeg 2000"])
def test_a_frame_that_states_another_size_is_refused_before_memory_is_taken(file, rng, name):
    values = rng.integers(0, 4000, (64, 80)).astype(np.uint16)
    frame = SYNTAXES[name][1](values)
    assert stated_size(frame) == (64, 80)
    with pytest.raises(InputError, match="64 x 80 pixels, but its header gives 32 x 40"):
        read(compressed(file, name, values))


@pytest.mark.parametrize("name", SYNTAXES)
def test_a_frame_that_was_cut_is_told_at_once(file, rng, name):
    compressed(file, name, rng.integers(0, 4000, (32, 40)).astype(np.uint16))
    dataset = pydicom.dcmread(file)
    frame = next(pydicom.encaps.generate_frames(dataset.PixelData, number_of_frames=1))
    dataset.PixelData = encapsulate([frame[: len(frame) // 2]])
    dataset["PixelData"].is_undefined_length = True
    dataset.save_as(file)
    with pytest.raises(InputError, match="damaged or incomplete"):
        read(file)
