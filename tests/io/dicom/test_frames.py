"""Multi-frame files and run-length encoding, as other programs write them."""

from __future__ import annotations

import struct
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import RLELossless

from hushpore.base.errors import InputError
from hushpore.io import read

sys.path.insert(0, str(Path(__file__).parent))
written_series = import_module("written_series")
AXIAL, SCAN = written_series.AXIAL, written_series.SCAN
dataset, order_of = written_series.dataset, written_series.order_of


def test_frames_without_a_thickness_have_the_size_of_their_pixels(tmp_path):
    made = dataset(SCAN, 0, NumberOfFrames=24, SliceThickness=None)
    made.save_as(tmp_path / "one.dcm", enforce_file_format=True)
    volume = read(tmp_path / "one.dcm")
    assert volume.spacing == (0.3, 0.3, 0.3)
    assert "was set to the pixel size, 0.3 mm" in volume.notes[0]


@pytest.mark.parametrize("frames", [0, "0", ""])
@pytest.mark.parametrize("count", [1, 6])
def test_a_file_of_no_frames_is_one_image(tmp_path, frames, count):
    for k in range(count):
        made = dataset(SCAN[k], k, ImagePositionPatient=[0, 0, 0.4 * k])
        made.ImageOrientationPatient = AXIAL
        made.NumberOfFrames = frames
        made.save_as(tmp_path / f"{k}.dcm", enforce_file_format=True)
    volume = read(tmp_path)
    np.testing.assert_array_equal(np.squeeze(volume.data), np.squeeze(SCAN[:count]))
    said = any("NumberOfFrames is 0; the file was read as one image" in n for n in volume.notes)
    assert said == (frames != "")


def test_a_compressed_file_of_no_frames_is_one_image(tmp_path):
    made = dataset(SCAN[3], 3)
    made.compress(RLELossless)
    made.NumberOfFrames = 0
    made.save_as(tmp_path / "one.dcm", enforce_file_format=True)
    np.testing.assert_array_equal(np.squeeze(read(tmp_path).data), SCAN[3])


def groups(**tags):
    """Return functional groups: sequences of one item, given as dicts."""
    made = Dataset()
    for name, known in tags.items():
        item = Dataset()
        for tag, value in known.items():
            setattr(item, tag, value)
        setattr(made, name, [item])
    return made


def measures(**known):
    return groups(PixelMeasuresSequence={"PixelSpacing": [0.2, 0.2], **known})


@pytest.mark.parametrize(
    ("tags", "step", "words"),
    [
        ({"SpacingBetweenSlices": 0.5}, 0.5, "from SpacingBetweenSlices"),
        ({"SharedFunctionalGroupsSequence": [measures(SpacingBetweenSlices=0.5)]}, 0.5,
         "from SpacingBetweenSlices"),
        ({"PerFrameFunctionalGroupsSequence": [measures(SpacingBetweenSlices=0.5)] * 24}, 0.5,
         "from SpacingBetweenSlices"),
        ({"SharedFunctionalGroupsSequence": [measures(SliceThickness=0.7)]}, 0.7,
         "from SliceThickness, which may differ"),
        ({"SharedFunctionalGroupsSequence": [measures(SliceThickness=0)]}, 0.2,
         "was set to the pixel size, 0.2 mm"),
        ({"ImagePositionPatient": [0, 0, 5], "ImageOrientationPatient": AXIAL,
          "PixelSpacing": [0.2, 0.2]}, 0.2, "was set to the pixel size, 0.2 mm"),
    ],
)  # fmt: skip
def test_frames_have_the_distance_of_their_groups(tmp_path, tags, step, words):
    nested = "SharedFunctionalGroupsSequence" in tags or "PerFrameFunctionalGroupsSequence" in tags
    own = {"PixelSpacing": None} if nested else {"PixelSpacing": [0.2, 0.2]}
    made = dataset(SCAN, 0, NumberOfFrames=24, **{"SliceThickness": None, **own, **tags})
    made.save_as(tmp_path / "one.dcm", enforce_file_format=True)
    volume = read(tmp_path / "one.dcm")
    assert volume.spacing == (step, 0.2, 0.2)
    assert words in volume.notes[0]
    np.testing.assert_array_equal(volume.data, SCAN)


@pytest.mark.parametrize("decimals", [1, 3])
def test_frames_with_rounded_positions(tmp_path, decimals):
    shared = groups(
        PixelMeasuresSequence={"PixelSpacing": [0.2, 0.2]},
        PlaneOrientationSequence={"ImageOrientationPatient": AXIAL},
    )
    frames = [
        groups(PlanePositionSequence={"ImagePositionPatient": [0, 0, f"{0.0375 * i:.{decimals}f}"]})
        for i in range(24)
    ]
    made = dataset(
        SCAN, 0, NumberOfFrames=24, PixelSpacing=None, SharedFunctionalGroupsSequence=[shared],
        PerFrameFunctionalGroupsSequence=frames,
    )  # fmt: skip
    made.save_as(tmp_path / "one.dcm", enforce_file_format=True)
    volume = read(tmp_path / "one.dcm")
    assert order_of(volume) == list(range(24))
    assert volume.spacing[0] == pytest.approx(0.0375, rel=0.05)


def write_runs(path, pixels, n_rows, fill):
    """Write 8-bit pixels with runs for some of their rows, and fill bytes after them."""
    runs = b"".join(bytes([7]) + row.tobytes() for row in pixels[:n_rows])
    frame = struct.pack("<16L", 1, 64, *[0] * 14) + runs + fill
    made = dataset(
        pixels, 0, RLELossless, BitsAllocated=8, BitsStored=8, HighBit=7,
        PixelData=encapsulate([frame]),
    )  # fmt: skip
    made["PixelData"].is_undefined_length = True
    made.save_as(path, enforce_file_format=True)


@pytest.mark.parametrize("fill", [b"\0", b"\x80", b"\x20", b"\xff", b"\0\0\0"])
def test_fill_bytes_after_the_last_run_are_no_pixels(tmp_path, fill):
    pixels = np.arange(56, dtype=np.uint8).reshape(7, 8)
    write_runs(tmp_path / "rle.dcm", pixels, len(pixels), fill)
    np.testing.assert_array_equal(read(tmp_path / "rle.dcm").data, pixels)


def test_runs_that_end_too_early_are_told(tmp_path):
    pixels = np.arange(56, dtype=np.uint8).reshape(7, 8)
    write_runs(tmp_path / "rle.dcm", pixels, len(pixels) - 1, b"\xff")
    with pytest.raises(InputError, match="damaged or incomplete"):
        read(tmp_path / "rle.dcm")


def run_lengths(row):
    """Encode a row as runs of DICOM PS3.5 annex G: repeats of three and more, and literals."""
    runs, literal, at_byte = b"", b"", 0
    while at_byte < len(row):
        size = 1
        while size < 128 and row[at_byte : at_byte + size + 1] == row[at_byte : at_byte + 1] * (
            size + 1
        ):
            size += 1
        if size >= 3:
            runs += (bytes([len(literal) - 1]) + literal if literal else b"") + bytes(
                [257 - size, row[at_byte]]
            )
            literal = b""
        else:
            literal += row[at_byte : at_byte + size]
        at_byte += size
    return runs + (bytes([len(literal) - 1]) + literal if literal else b"")


@pytest.mark.parametrize("fill", [b"", b"\0", b"\x20", b"\xff", b"\x80\x80\x80", b"\x05"])
@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("shape", [(1, 7, 9), (3, 5, 11)])
def test_fill_bytes_after_every_segment_of_every_frame(tmp_path, rng, bits, shape, fill):
    pixels = rng.integers(0, 2**bits, shape).astype(f">u{bits // 8}")
    pixels[:, 2, 1:6] = 7
    frames = []
    for plane in pixels:
        by_byte = plane.view(np.uint8).reshape(*plane.shape, -1)
        segments = [
            b"".join(run_lengths(bytes(row)) for row in by_byte[..., k]) + fill
            for k in range(bits // 8)
        ]
        starts = 64 + np.cumsum([0, *map(len, segments[:-1])])
        head = struct.pack("<16L", len(segments), *starts, *[0] * (15 - len(segments)))
        frames.append(head + b"".join(segments))
    made = dataset(
        pixels, 0, RLELossless, BitsAllocated=bits, BitsStored=bits, HighBit=bits - 1,
        NumberOfFrames=shape[0], PixelData=encapsulate(frames),
    )  # fmt: skip
    made["PixelData"].is_undefined_length = True
    made.save_as(tmp_path / "rle.dcm", enforce_file_format=True)
    np.testing.assert_array_equal(read(tmp_path / "rle.dcm").array().reshape(shape), pixels)
