import logging
import re
import sys
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.data.data_manager import DATA_ROOT
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.base.volume import Volume
from hushpore.io import read, read_all
from hushpore.io.dicom import write_series

# which slices of HU_truth each series holds, its distance of slices, and a word of its notes
CASES = {
    "regular": (range(12), 2.0, None),
    "noext_shuffled": (range(12), 2.0, None),
    "unsigned": (range(12), 2.0, None),
    "enhanced": (range(12), 2.0, None),
    "rle": (range(12), 2.0, None),
    "per_slice_slope": (range(12), 2.0, None),
    "monochrome1": (range(12), 2.0, "MONOCHROME1"),
    "oblique": (range(12), 2.0, "oblique (45.0 degrees"),
    "duplicate_z": (range(12), 2.0, "images have the same position"),
    "no_ipp_anon": (range(12), 2.0, "no position"),
    "descending": (range(11, -1, -1), 2.0, None),
    "missing_slice": ([0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11], 2.0, "Slice 6 is missing"),
    "uneven": (range(12), 3.5, "unevenly spaced"),
}


@pytest.mark.parametrize("case", CASES)
def test_values_order_spacing_and_notes_agree_with_the_truth(data_folder, truth, case):
    order, distance, word = CASES[case]
    volume = read(data_folder / "dicom" / case)
    assert (volume.axes, volume.unit, volume.dtype) == ("zyx", "mm", np.float32)
    assert volume.spacing == (distance, 0.7, 0.5)
    # the files hold whole numbers; with a slope the rounding is half of it
    tolerance = 1.06 if case == "per_slice_slope" else 0.51
    np.testing.assert_allclose(volume.data, truth[list(order)], atol=tolerance)
    if word is None:
        assert volume.notes == []
    else:
        assert len(volume.notes) == 1
        assert word in volume.notes[0]


def test_slopes_that_differ_are_applied_slice_by_slice(data_folder):
    folder = data_folder / "dicom" / "per_slice_slope"
    headers = [pydicom.dcmread(path) for path in sorted(folder.iterdir())]
    expected = [h.pixel_array * float(h.RescaleSlope) + float(h.RescaleIntercept) for h in headers]
    np.testing.assert_allclose(read(folder).data, expected, rtol=1e-6)


def test_the_origin_is_the_first_voxel_in_z_y_x_order(data_folder):
    assert read(data_folder / "dicom" / "regular").origin == (0.0, -16.8, -16.0)
    assert read(data_folder / "dicom" / "descending").origin == (-22.0, -16.8, -16.0)


def test_a_series_is_chosen_by_number_or_name(data_folder):
    folder = data_folder / "dicom" / "two_series"
    first, second = read_all(folder)
    np.testing.assert_array_equal(read(folder, series=2).data, second.data)
    assert read(folder, series=first.name).name == first.name
    with pytest.raises(InputError, match=f"1 {re.escape(first.name)}; 2 "):
        read(folder, series="spine")


def test_several_files_are_read_as_if_they_were_all_of_their_folder(data_folder, truth):
    files = sorted((data_folder / "dicom" / "regular").iterdir())
    volume = read(files[::-1])
    assert (volume.name, volume.source) == ("regular", str(files[0].parent))
    np.testing.assert_allclose(volume.data, truth, atol=0.51)


def test_two_series_in_one_folder_are_two_volumes_and_the_stray_file_is_named(data_folder, truth):
    first, second = read_all(data_folder / "dicom" / "two_series")
    np.testing.assert_allclose(first.data, truth, atol=0.51)
    assert first.name != second.name
    assert any("README.txt" in note for note in first.notes)
    assert any("Choose another with series=" in note for note in read(first.source).notes)


@pytest.fixture
def philips(data_folder):
    return data_folder / "philips"


def test_a_real_scanners_folder_gives_one_volume_without_its_localiser(philips):
    (volume,) = read_all(philips)
    assert volume.shape == (28, 64, 64)
    assert volume.spacing == pytest.approx((5.0, 0.451171875, 0.451171875))
    assert volume.metadata["contrast_limits"] == [0.0, 80.0]
    assert len(volume.notes) == 1
    assert "1 file skipped (localiser): I10" in volume.notes[0]
    # by hand: the fourth file by number, 12 of 16 bits, intercept -1024
    raw = pydicom.dcmread(philips / "S2010" / "I40").pixel_array
    np.testing.assert_array_equal(volume.data[3], raw.astype(np.float32) - 1024)


def test_the_directory_file_of_a_disc_stands_for_its_folder(philips):
    assert read(philips / "S2010" / "DIRFILE").shape == (28, 64, 64)


def test_a_localiser_alone_is_shown_and_said(philips):
    volume = read(philips / "S1000")
    assert volume.axes == "yx"
    assert any("localiser" in note for note in volume.notes)


# every file that comes with pydicom: its shape, or the reason why it is refused
COLOUR, NO_PIXELS = "colour image", "no pixels"
OF_PYDICOM = {
    "693_J2KI": (512, 512),
    "CT_small": (128, 128),
    "J2K_pixelrep_mismatch": (512, 512),
    "JPEG-lossy": (1024, 256),
    "JPEG2000": (1024, 256),
    # its codestream was damaged on purpose, and states 3.7 thousand million columns
    "JPEG2000-embedded-sequence-delimiter": "damaged",
    "JPEGLSNearLossless_08": (45, 10),
    "JPEGLSNearLossless_16": (50, 10),
    "JPGExtended": (1024, 256),
    "MR_small": (64, 64),
    "MR_small_RLE": (64, 64),
    "MR_small_bigendian": (64, 64),
    "MR_small_expb": (64, 64),
    "MR_small_implicit": (64, 64),
    "MR_small_jp2klossless": (64, 64),
    "MR_small_jpeg_ls_lossless": (64, 64),
    "MR_small_padded": (64, 64),
    "MR_truncated": "damaged or incomplete",
    "badVR": (10, 10),
    "examples_overlay": (300, 484),
    "image_dfl": (512, 512),
    "liver_1frame": (512, 512),
    "liver_expb_1frame": (512, 512),
    "no_meta": "its content is not DICOM",
    "rtdose": (15, 10, 10),
    "rtdose_1frame": (10, 10),
    "rtdose_expb": (15, 10, 10),
    "rtdose_expb_1frame": (10, 10),
    "rtdose_rle": (15, 10, 10),
    "rtdose_rle_1frame": (10, 10),
    **dict.fromkeys(
        ("ExplVR_BigEnd", "GDCMJ2K_TextGBR", "examples_jpeg2k", "examples_palette",
         "examples_rgb_color", "examples_ybr_color"), COLOUR,
    ),
    **dict.fromkeys(
        ("ExplVR_BigEndNoMeta", "ExplVR_LitEndNoMeta", "UN_sequence", "empty_charset_LEI",
         "meta_missing_tsyntax", "nested_priv_SQ", "no_meta_group_length", "priv_SQ", "reportsi",
         "reportsi_with_empty_number_tags", "rtplan", "rtplan_truncated", "rtstruct", "test-SR",
         "waveform_ecg"), NO_PIXELS,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "path", sorted((Path(DATA_ROOT) / "test_files").glob("*.dcm")), ids=lambda path: path.stem
)
def test_every_file_that_comes_with_pydicom_is_read_or_refused_clearly(path):
    expected = OF_PYDICOM.get(path.stem)
    if path.stem.startswith("SC_"):
        expected = COLOUR
    if isinstance(expected, tuple):
        assert read(path).shape == expected
    elif expected:
        with pytest.raises(InputError, match=expected):
            read(path)
    else:
        pytest.fail(f"{path.name} is not in the table")


@pytest.mark.parametrize(
    "path", sorted((Path(DATA_ROOT) / "charset_files").glob("*.dcm")), ids=lambda path: path.stem
)
def test_names_in_any_character_set_are_no_obstacle(path):
    if path.stem.startswith(("chrJapMulti", "chrKorean", "chrSQ")):
        with pytest.raises(InputError, match=NO_PIXELS):
            read(path)
    else:
        assert read(path).shape == (32, 32)


def test_a_description_is_read_in_its_character_set(series, tmp_path, ramp):
    def describe(dataset, _):
        dataset.SpecificCharacterSet = ["", "ISO 2022 IR 87"]
        dataset.SeriesDescription = "山田^太郎"

    edit(series, describe)
    # as in the example of DICOM PS3.5 H.3.1: bytes of ASCII alone, between escapes
    stated = b"\x1b$B;3ED\x1b(B^\x1b$BB@O:\x1b(B"
    assert all(stated in path.read_bytes() for path in series.iterdir())
    write_series(Volume(ramp, unit="mm"), tmp_path / "other", seed=2)
    assert "山田^太郎 series 1" in [volume.name for volume in read_all(tmp_path)]
    for path in series.iterdir():
        # of a set that nobody knows the escapes are no reason to leave a slice out
        path.write_bytes(path.read_bytes().replace(b"ISO 2022 IR 87", b"ISO 2022 IR 99"))
    assert read(series).shape == ramp.shape


DISCS = Path(DATA_ROOT) / "test_files" / "dicomdirtests"


@pytest.mark.parametrize("path", sorted(DISCS.glob("DICOMDIR*")), ids=lambda path: path.name)
def test_every_directory_of_a_disc_that_comes_with_pydicom_gives_its_series(path):
    volumes = read_all(path)
    # of 31 images two are localisers
    planes = [plane for volume in volumes for plane in volume.array().reshape(-1, 16, 16)]
    assert len(planes) == 29
    assert any("2 files skipped (localiser)" in note for note in volumes[0].notes)


def test_images_of_a_disc_are_read_alone_or_refused_clearly():
    for path in (path for path in sorted(DISCS.rglob("*")) if path.is_file()):
        if "TINY_ALPHA" in path.parts:
            with pytest.raises(InputError, match=r"no pixels|cannot be read"):
                read(path)
        elif path.parent != DISCS:
            assert read(path).shape == (16, 16)


def test_a_multi_frame_file_in_both_byte_orders_is_the_same():
    first, second = (read(get_testdata_file(f"{n}.dcm", download=False)) for n in
                     ("rtdose", "rtdose_rle"))  # fmt: skip
    np.testing.assert_array_equal(first.data, second.data)
    assert first.spacing == second.spacing == (5.0, 10.0, 10.0)


def test_nothing_of_the_patient_enters_volume_results_records_or_logs(
    series, patient, tmp_path, caplog, capfd
):
    """The headers name a person; nothing that is read, written or said does."""
    from hushpore.base.events import result_of
    from hushpore.io.results import write_image
    from hushpore.jobs import start

    def name(dataset, _):
        for keyword, value in patient.items():
            setattr(dataset, keyword, value)
        # a damaged number, so that there is something to warn of
        dataset.PatientWeight, dataset.SliceThickness = "12", 3

    edit(series, name)
    first = sorted(series.iterdir())[0]
    (tmp_path / "cut.dcm").write_bytes(first.read_bytes()[:-200])
    with caplog.at_level(logging.DEBUG):
        volume = read(series)
        with pytest.raises(InputError) as refused:
            read(tmp_path / "cut.dcm")
        result = result_of(start("patches", volume, {"patch_size": 4}))
        out = tmp_path / "out"
        out.mkdir()
        write_image(out / "scan.tif", volume, provenance=result.provenance)
        write_image(out / "chunks.zarr", volume, provenance=result.provenance)
        write_series(volume, out / "series", seed=1)
    said = " ".join([repr(volume), repr(result.provenance), caplog.text, str(refused.value)])
    said += "".join(capfd.readouterr())
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    for value in patient.values():
        assert value not in said
        assert value.encode() not in written


def test_reports_and_colour_images_are_refused_with_the_reason():
    for name, words in (
        ("test-SR.dcm", "no pixels"),
        ("SC_rgb_rle.dcm", "colour image"),
        ("MR_truncated.dcm", "damaged or incomplete"),
    ):
        with pytest.raises(InputError, match=words):
            read(get_testdata_file(name, download=False))


def test_no_word_of_pydicom_reaches_the_terminal(capfd, caplog):
    with caplog.at_level(logging.DEBUG):
        read(get_testdata_file("J2K_pixelrep_mismatch.dcm", download=False))
        with pytest.raises(InputError):
            read(get_testdata_file("MR_truncated.dcm", download=False))
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_compression_without_decoder_names_the_package(monkeypatch, data_folder):
    from pydicom.pixels.decoders.base import Decoder

    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    assert read(data_folder / "dicom" / "rle").shape == (12, 48, 64)
    monkeypatch.setattr(Decoder, "is_available", property(lambda self: False))
    with pytest.raises(MissingPackageError, match=r"RLE.*pip install python-gdcm"):
        read(data_folder / "dicom" / "rle")


@pytest.fixture
def series(tmp_path, ramp):
    return write_series(Volume(ramp, spacing=(3, 1, 1), unit="mm"), tmp_path / "s", seed=1)


def edit(folder, change):
    for index, path in enumerate(sorted(folder.iterdir())):
        dataset = pydicom.dcmread(path)
        change(dataset, index)
        dataset.save_as(path)
    return folder


def test_integers_stay_integers_where_nothing_is_rescaled(series, ramp):
    volume = read(series)
    assert volume.dtype == np.int16
    np.testing.assert_array_equal(volume.data, ramp)


def test_an_inverted_image_without_hu_is_turned_over(series, ramp):
    def invert(dataset, _):
        dataset.PhotometricInterpretation = "MONOCHROME1"
        dataset.Modality = "DX"
        del dataset.RescaleType, dataset.RescaleSlope, dataset.RescaleIntercept

    volume = read(edit(series, invert))
    np.testing.assert_array_equal(volume.data, -1 - ramp)  # int16 turned over: -1 - v
    assert any("were inverted" in note for note in volume.notes)


@pytest.mark.parametrize(
    ("slopes", "limit", "value", "note"),
    [
        ([1, 1, 1, 1, 1], None, -2000, None),
        ([1, 1, 1, 1, 1], -2000, -2000, None),
        ([1, 1, 1, 1, 1], -1900, -2000, "(-2000 to -1900); only -2000"),
        ([1, 1, 1, 1, 2], None, None, "have 2 padding values (-4000 to -2000)"),
    ],
)
def test_what_slices_are_filled_in_with_is_one_value_or_said(series, slopes, limit, value, note):
    def fill(dataset, index):
        dataset.RescaleSlope, dataset.RescaleIntercept = slopes[index], 0
        dataset.add_new("PixelPaddingValue", "SS", -2000)
        if limit is not None:
            dataset.add_new("PixelPaddingRangeLimit", "SS", limit)

    volume = read(edit(series, fill))
    assert volume.metadata.get("padding_value") == value
    told = [each for each in volume.notes if "padding" in each]
    assert len(told) == (note is not None)
    assert all(note in each for each in told)


def test_what_is_said_of_values_is_turned_over_with_them(series, ramp):
    def invert(dataset, _):
        dataset.PhotometricInterpretation = "MONOCHROME1"
        dataset.Modality = "DX"
        del dataset.RescaleType
        dataset.RescaleSlope, dataset.RescaleIntercept = 2, 100
        dataset.WindowCenter, dataset.WindowWidth = 300, 100
        dataset.add_new("PixelPaddingValue", "SS", 40)

    volume = read(edit(series, invert))
    # stored values of 16 bits with sign are turned over to -1 - v; then slope and intercept
    np.testing.assert_array_equal(volume.data, 2 * (-1 - ramp) + 100)
    assert volume.metadata["padding_value"] == 2 * (-1 - 40) + 100
    # 250 is stored as 75, 350 as 125
    assert volume.metadata["contrast_limits"] == [2 * (-1 - 125) + 100, 2 * (-1 - 75) + 100]


def test_a_damaged_series_does_not_stop_a_good_one(series, tmp_path, ramp):
    bad = write_series(Volume(ramp, spacing=(3, 1, 1), unit="mm"), tmp_path / "bad", seed=2)
    for path in bad.iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    volumes = read_all(tmp_path)
    assert len(volumes) == 1
    assert any("could not be read" in note and "damaged" in note for note in volumes[0].notes)
    with pytest.raises(InputError, match="damaged or incomplete"):
        read(bad)


def test_windows_of_several_values_give_contrast_limits(series):
    def window(dataset, _):
        dataset.WindowCenter, dataset.WindowWidth = [50, 300], [400, 2000]

    metadata = read(edit(series, window)).metadata
    assert metadata["contrast_limits"] == [-150.0, 250.0]
    assert metadata["windows"] == [[-150.0, 250.0], [-700.0, 1300.0]]


def test_a_window_in_functional_groups_is_found(data_folder, tmp_path):
    dataset = pydicom.dcmread(data_folder / "dicom" / "enhanced" / "enh.dcm")
    item = Dataset()
    item.WindowCenter, item.WindowWidth = 10, 20
    dataset.SharedFunctionalGroupsSequence[0].FrameVOILUTSequence = Sequence([item])
    dataset.save_as(tmp_path / "e.dcm")
    assert read(tmp_path / "e.dcm").metadata["contrast_limits"] == [0.0, 20.0]


def test_frames_in_any_order_are_sorted_by_position(data_folder, tmp_path, truth):
    dataset = pydicom.dcmread(data_folder / "dicom" / "enhanced" / "enh.dcm")
    frames = dataset.pixel_array[::-1].copy()
    groups = dataset.PerFrameFunctionalGroupsSequence
    dataset.PerFrameFunctionalGroupsSequence = Sequence(list(groups)[::-1])
    dataset.PixelData = frames.tobytes()
    dataset.save_as(tmp_path / "e.dcm")
    np.testing.assert_allclose(read(tmp_path / "e.dcm").data, truth, atol=0.51)


def test_the_spacing_of_rows_is_y_and_of_columns_x(series):
    def stretch(dataset, _):
        dataset.PixelSpacing = [0.7, 0.5]

    assert read(edit(series, stretch)).spacing == (3.0, 0.7, 0.5)


def test_a_header_of_impossible_size_is_refused_before_memory_is_taken(series):
    def grow(dataset, _):
        dataset.Rows = dataset.Columns = 65535
        dataset.NumberOfFrames = 65535

    with pytest.raises(InputError, match="impossible image size"):
        read(edit(series, grow))


def test_flipped_bits_give_an_image_or_a_clear_error_and_nothing_else(series):
    rng = np.random.default_rng(0)
    path = sorted(series.iterdir())[0]
    content = np.frombuffer(path.read_bytes(), np.uint8)
    for _ in range(150):
        broken = content.copy()
        broken[rng.integers(132, len(broken) - 80, 3)] ^= rng.integers(1, 255, 3, dtype=np.uint8)
        path.write_bytes(broken.tobytes())
        try:
            read_all(path)
        except HushporeError:
            continue
