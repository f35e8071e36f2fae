"""Series as scanners and converters write them: rounded, shared or missing positions."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, RLELossless, generate_uid

from hushpore.base.errors import InputError
from hushpore.io import read, read_all

SCAN = np.arange(24 * 6 * 7, dtype=np.uint16).reshape(24, 6, 7)
AXIAL = [1, 0, 0, 0, 1, 0]


def dataset(pixels, number, syntax=ExplicitVRLittleEndian, **tags):
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    meta.TransferSyntaxUID = syntax
    made = FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    known: dict[str, Any] = {
        "SOPClassUID": CTImageStorage, "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
        "Modality": "CT", "StudyInstanceUID": "1.2.3", "SeriesInstanceUID": "1.2.3.4",
        "InstanceNumber": number + 1, "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2", "PixelRepresentation": 0, "BitsAllocated": 16,
        "BitsStored": 16, "HighBit": 15, "Rows": pixels.shape[-2], "Columns": pixels.shape[-1],
        "PixelSpacing": [0.3, 0.3], "SliceThickness": 0.4,
        "PixelData": pixels.astype("<u2").tobytes(),
    }  # fmt: skip
    for tag, value in (known | tags).items():
        if value is not None:
            setattr(made, tag, value)
    return made


def series(folder, tags, scan=SCAN):
    """Write a slice a file; `tags` gives the elements of each by its number."""
    folder.mkdir(exist_ok=True)
    for i, plane in enumerate(scan):
        made = dataset(plane, i, **tags(i))
        made.save_as(folder / f"s{i:03d}.dcm", enforce_file_format=True)
    return folder


def at(place, **tags):
    return {"ImagePositionPatient": [0, 0, place], "ImageOrientationPatient": AXIAL, **tags}


@pytest.mark.parametrize(
    ("step", "decimals"), [(0.0154, 2), (1.5, 0), (0.625, 1), (0.35, 1), (-0.85, 1), (0.0078, 3)]
)
def test_rounded_positions_are_averaged_over_the_stack(tmp_path, step, decimals):
    folder = series(tmp_path / "a", lambda i: at(f"{7 + i * step:.{decimals}f}"))
    volume = read(folder)
    assert volume.spacing[0] == pytest.approx(abs(step), rel=0.01)
    np.testing.assert_array_equal(volume.data, SCAN if step > 0 else SCAN[::-1])
    (note,) = volume.notes
    assert note.startswith(f"Positions are rounded to {10.0**-decimals:g} mm")
    assert "slice_positions" not in volume.metadata


def test_a_slice_that_is_missing_by_its_number_is_still_missing(tmp_path):
    places = [*range(11), *range(12, 25)]
    tags = [at(place, InstanceNumber=place + 1) for place in places]
    volume = read(series(tmp_path / "a", tags.__getitem__))
    assert volume.spacing[0] == 1
    assert "Slice 12 is missing" in volume.notes[0]


def test_a_position_that_all_slices_share_is_none(tmp_path):
    volume = read(series(tmp_path / "a", lambda i: at(0, SliceLocation=0.4 * i)))
    np.testing.assert_array_equal(volume.data, SCAN)
    assert volume.spacing == (0.4, 0.3, 0.3)
    assert volume.notes[0] == "All 24 slices state the same position, 0 mm; it was not used."


def test_many_images_at_a_position_are_named_shortly(tmp_path):
    volume = read(series(tmp_path / "a", lambda i: at(max(i - 9, 0), InstanceNumber=1)))
    assert len(" ".join(volume.notes)) < 400
    assert "and 7 more" in " ".join(volume.notes)


@pytest.mark.parametrize(
    ("tags", "step", "words"),
    [
        ({"SliceLocation": True}, 0.25, "(0.25 mm) is from SliceLocation"),
        ({"SliceLocation": True, "SpacingBetweenSlices": 0.5}, 0.25, "from SliceLocation"),
        ({"SpacingBetweenSlices": 0.5}, 0.5, "(0.5 mm) is from SpacingBetweenSlices"),
        ({}, 0.4, "(0.4 mm) is from SliceThickness, which may differ from it"),
        ({"SliceThickness": None}, 0.3, "was set to the pixel size, 0.3 mm"),
    ],
)
def test_without_positions_the_distance_says_where_it_is_from(tmp_path, tags, step, words):
    def known(i):
        return tags | ({"SliceLocation": 5 - 0.25 * i} if "SliceLocation" in tags else {})

    volume = read(series(tmp_path / "a", known))
    np.testing.assert_array_equal(volume.data, SCAN)
    assert volume.spacing[0] == pytest.approx(step)
    assert words in volume.notes[0]


def test_frames_without_a_thickness_have_the_size_of_their_pixels(tmp_path):
    made = dataset(SCAN, 0, NumberOfFrames=24, SliceThickness=None)
    made.save_as(tmp_path / "one.dcm", enforce_file_format=True)
    volume = read(tmp_path / "one.dcm")
    assert volume.spacing == (0.3, 0.3, 0.3)
    assert "was set to the pixel size, 0.3 mm" in volume.notes[0]


@pytest.mark.parametrize(
    ("written", "size", "words"),
    [
        (b"0,143\\0,143 ", 0.143, ""),
        (b"0.143       ", 0.143, ""),
        (b"N/A\\N/A     ", None, r"is not a number ('N/A\\N/A')"),
        (b"0.00\\0.00   ", None, "is not two lengths above zero"),
        (b"-0.14\\-0.14 ", None, "is not two lengths above zero"),
    ],
)
def test_a_pixel_spacing_that_is_written_oddly(tmp_path, written, size, words):
    folder = series(tmp_path / "a", lambda i: at(0.4 * i, PixelSpacing=["0.143", "0.143"]))
    for path in folder.iterdir():
        content = path.read_bytes()
        assert content.count(b"0.143\\0.143 ") == 1
        path.write_bytes(content.replace(b"0.143\\0.143 ", written))
    volume = read(folder)
    if size is None:
        assert volume.unit == "pixel"
        assert words in volume.notes[-1]
    else:
        assert volume.spacing == (0.4, size, size)
        assert volume.notes == []


def test_decimal_commas_of_positions_are_read(tmp_path):
    folder = series(tmp_path / "a", lambda i: at(f"{1.25 + 2.5 * i:.3f}"))
    for path in folder.iterdir():
        head, tail = path.read_bytes().split(b"\x20\x00\x32\x00DS", 1)
        # of the element that states the position alone
        path.write_bytes(head + b"\x20\x00\x32\x00DS" + tail[:16].replace(b".", b",") + tail[16:])
    assert read(folder).spacing[0] == 2.5


def test_the_pitch_of_a_detector_is_no_pixel_size(tmp_path):
    folder = series(
        tmp_path / "a", lambda i: at(0.4 * i, PixelSpacing=None, ImagerPixelSpacing=[0.1, 0.1])
    )
    volume = read(folder)
    assert volume.unit == "pixel"
    assert "pitch of the detector (ImagerPixelSpacing, 0.1 mm)" in volume.notes[0]


@pytest.mark.parametrize("positions", [True, False])
def test_slices_with_a_series_each_are_joined_where_they_are_alike(tmp_path, positions):
    def tags(i):
        own = {"SeriesInstanceUID": f"1.2.3.4.{i}"}
        return at(0.4 * i, **own) if positions else own

    (volume,) = read_all(series(tmp_path / "scan", tags))
    np.testing.assert_array_equal(volume.data, SCAN)
    assert (volume.name, volume.spacing) == ("scan", (0.4, 0.3, 0.3))
    assert "24 equal and evenly spaced series of one slice each" in volume.notes[0]


def test_slices_of_other_series_that_lie_anyhow_are_not_joined(tmp_path):
    places = [0, 1, 2, 4, 9, 9, 30, 31]
    tags = [at(place, SeriesInstanceUID=f"1.2.3.4.{i}", InstanceNumber=1)
            for i, place in enumerate(places)]  # fmt: skip
    assert len(read_all(series(tmp_path / "a", tags.__getitem__, SCAN[:8]))) == 8


@pytest.mark.parametrize("fill", [b"\0", b"\x80", b"\x20", b"\xff", b"\0\0\0"])
def test_fill_bytes_after_the_last_run_are_no_pixels(tmp_path, fill):
    pixels = np.arange(56, dtype=np.uint8).reshape(7, 8)
    runs = b"".join(bytes([7]) + row.tobytes() for row in pixels)
    frame = struct.pack("<16L", 1, 64, *[0] * 14) + runs + fill
    made = dataset(
        pixels, 0, RLELossless, BitsAllocated=8, BitsStored=8, HighBit=7,
        PixelData=encapsulate([frame]),
    )  # fmt: skip
    made["PixelData"].is_undefined_length = True
    made.save_as(tmp_path / "rle.dcm", enforce_file_format=True)
    np.testing.assert_array_equal(read(tmp_path / "rle.dcm").data, pixels)


def test_runs_that_end_too_early_are_told(tmp_path):
    pixels = np.arange(56, dtype=np.uint8).reshape(7, 8)
    runs = b"".join(bytes([7]) + row.tobytes() for row in pixels[:-1])
    frame = struct.pack("<16L", 1, 64, *[0] * 14) + runs + b"\xff"
    made = dataset(
        pixels, 0, RLELossless, BitsAllocated=8, BitsStored=8, HighBit=7,
        PixelData=encapsulate([frame]),
    )  # fmt: skip
    made["PixelData"].is_undefined_length = True
    made.save_as(tmp_path / "rle.dcm", enforce_file_format=True)
    with pytest.raises(InputError, match="damaged or incomplete"):
        read(tmp_path / "rle.dcm")
