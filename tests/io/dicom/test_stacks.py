"""Series as scanners and converters write them: rounded, shared or missing positions."""

from __future__ import annotations

import math
import struct
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from hushpore.io import read, read_all

sys.path.insert(0, str(Path(__file__).parent))
written_series = import_module("written_series")
AXIAL, SCAN = written_series.AXIAL, written_series.SCAN
at, dataset, series = written_series.at, written_series.dataset, written_series.series
order_of = written_series.order_of


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


def tilted(place, angle, decimals):
    """Return tags of a slice at a distance along an oblique normal, or of a tilted gantry."""
    c, s = math.cos(angle), math.sin(angle)
    texts = [f"{each:.{decimals}f}" for each in (-5, 3 - place * s, 1 + place * c)]
    return {
        "ImagePositionPatient": texts,
        "ImageOrientationPatient": [1, 0, 0, 0, round(c, 6), round(s, 6)],
    }


@pytest.mark.parametrize("decimals", [1, 2, 3])
@pytest.mark.parametrize("angle", [0.4, -1.1])
def test_rounded_positions_of_oblique_slices(tmp_path, decimals, angle):
    volume = read(series(tmp_path / "a", lambda i: tilted(0.375 * i, angle, decimals)))
    assert volume.spacing[0] == pytest.approx(0.375, rel=0.01)
    np.testing.assert_array_equal(volume.data, SCAN)
    assert not any("uneven" in note or "missing" in note for note in volume.notes)


def test_rounded_positions_of_a_tilted_gantry(tmp_path):
    shift = math.tan(math.radians(15))

    def tags(i):
        places = ["0", f"{-7 - 0.625 * i * shift:.1f}", f"{3 + 0.625 * i:.1f}"]
        return {"ImagePositionPatient": places, "ImageOrientationPatient": AXIAL}

    volume = read(series(tmp_path / "a", tags))
    assert volume.spacing[0] == pytest.approx(0.625, rel=0.01)
    assert ["rounded to 0.1 mm" in volume.notes[0], "Gantry tilt 15" in volume.notes[1]] == [1, 1]


@pytest.mark.parametrize(("step", "decimals"), [(0.0154, 2), (1.5, 0), (0.625, 1), (0.03, 1)])
def test_a_slice_is_missing_among_rounded_positions(tmp_path, step, decimals):
    kept = [*range(11), *range(12, 25)]

    def tags(i):
        return at(f"{7 + kept[i] * step:.{decimals}f}", InstanceNumber=kept[i] + 1)

    volume = read(series(tmp_path / "a", tags))
    assert volume.spacing[0] == pytest.approx(step, rel=0.02)
    assert order_of(volume) == list(range(24))
    assert volume.notes[1].startswith("Slice 12 is missing")
    np.testing.assert_allclose(np.diff(volume.metadata["slice_positions"])[[0, 10, 11]] / step,
                               [1, 2, 1], rtol=0.02)  # fmt: skip


@pytest.mark.parametrize(("step", "decimals"), [(0.004, 2), (-0.7, 0), (0.05, 1)])
@pytest.mark.parametrize("backwards", [False, True])
def test_slices_that_rounding_moved_to_one_position_are_kept(tmp_path, step, decimals, backwards):
    def tags(i):
        return at(f"{7 + i * step:.{decimals}f}", InstanceNumber=24 - i if backwards else i + 1)

    volume = read(series(tmp_path / "a", tags))
    assert order_of(volume) == list(range(24))[:: 1 if step > 0 else -1]
    assert volume.spacing[0] == pytest.approx(abs(step), rel=0.05)


def test_rounded_positions_without_numbers(tmp_path):
    volume = read(series(tmp_path / "a", lambda i: at(round(1.5 * i), InstanceNumber=None)))
    assert volume.spacing[0] == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(
    ("numbers", "how"),
    [(lambda i: None, "file name"), (lambda i: 1, "file name"), (lambda i: 10 * i, "Instance"),
     (lambda i: 30 - i, "Instance")],
)  # fmt: skip
def test_a_shared_position_is_none_whatever_the_numbers_are(tmp_path, numbers, how):
    volume = read(series(tmp_path / "a", lambda i: at(0, InstanceNumber=numbers(i))))
    assert order_of(volume) == list(range(24))[:: -1 if numbers(0) == 30 else 1]
    assert f"ordered by {how}" in volume.notes[1]


@pytest.mark.parametrize("located", [True, False])
def test_two_acquisitions_without_positions_are_two_volumes(tmp_path, located):
    def tags(i):
        own = {"SliceLocation": 0.4 * (i % 12)} if located else {"InstanceNumber": i % 12 + 1}
        return at(0, **own)

    first, second = read_all(series(tmp_path / "a", tags))
    assert (order_of(first), order_of(second)) == ([*range(12)], [*range(12, 24)])
    assert "occurs 2 times; the series was read as 2 volumes" in first.notes[1]


def test_two_echoes_at_each_position_are_two_volumes(tmp_path):
    first, second = read_all(series(tmp_path / "a", lambda i: at(0.4 * (i // 2))))
    assert (order_of(first), order_of(second)) == ([*range(0, 24, 2)], [*range(1, 24, 2)])


def test_an_image_of_another_size_at_the_shared_position_is_alone(tmp_path):
    folder = series(tmp_path / "a", lambda i: at(0))
    preview = dataset(np.zeros((9, 9), np.uint16), 24, **at(0))
    preview.save_as(folder / "z.dcm", enforce_file_format=True)
    assert [volume.shape for volume in read_all(folder)] == [(24, 6, 7), (9, 9)]


@pytest.mark.parametrize(
    ("place", "step", "words"),
    [
        (lambda i: f"{1.5 * i:.0f}", 1.5, "fitted because it is coarsely rounded"),
        (lambda i: f"{0.0154 * i:.2f}", 0.0154, "fitted because it is coarsely rounded"),
        (lambda i: 5 - 0.25 * (i + (i > 10)), 0.25, "Slice 12 is missing"),
        (lambda i: 0.25 * i + 2 * (i > 10), 0.25, "Slices 12, 13, 14"),
    ],
)
def test_slice_locations_that_are_rounded_or_have_a_gap(tmp_path, place, step, words):
    volume = read(series(tmp_path / "a", lambda i: {"SliceLocation": place(i)}))
    assert order_of(volume) == list(range(24))
    assert volume.spacing[0] == pytest.approx(step, rel=0.01)
    assert words in " ".join(volume.notes)


def test_numbers_that_do_not_follow_the_slice_locations_are_not_used(tmp_path):
    def tags(i):
        return {"SliceLocation": 0.25 * i, "InstanceNumber": 5 * i % 24 + 1}

    volume = read(series(tmp_path / "a", tags))
    assert order_of(volume) == list(range(24))
    assert "ordered by SliceLocation" in volume.notes[0]


@pytest.mark.parametrize(
    "own",
    [
        lambda i: at(f"{1.5 * i:.0f}"),
        lambda i: at(0),
        lambda i: at(0.4 * i, InstanceNumber=1),
        lambda i: {"InstanceNumber": 1, "SeriesNumber": i + 1},
        lambda i: at(0.4 * i, SeriesDescription=f"slice {i}"),
    ],
)
def test_slices_with_a_series_each_are_joined_by_whatever_numbers_them(tmp_path, own):
    (volume,) = read_all(
        series(tmp_path / "a", lambda i: own(i) | {"SeriesInstanceUID": f"1.2.{i}"})
    )
    assert order_of(volume) == list(range(24))
    assert "24 equal and evenly spaced series of one slice each" in volume.notes[0]


def test_two_stacks_with_a_series_for_each_slice_are_two_stacks(tmp_path):
    def tags(i):
        own = {"SeriesInstanceUID": f"1.2.{i}", "SeriesDescription": "ab"[i // 12]}
        return at(0.4 * (i % 12), InstanceNumber=i % 12 + 1, **own)

    first, second = read_all(series(tmp_path / "a", tags))
    assert (order_of(first), order_of(second)) == ([*range(12)], [*range(12, 24)])


def with_spacing(folder, written, kind=b"DS"):
    """Write four slices with the bytes of their PixelSpacing replaced."""
    series(folder, lambda i: at(0.4 * i, PixelSpacing=["0.143", "0.143"]), SCAN[:4])
    written += b" " * (len(written) % 2)
    size = struct.pack("<L" if kind == b"UT" else "<H", len(written))
    for path in folder.iterdir():
        head, tail = path.read_bytes().split(b"DS\x0c\x000.143\\0.143 ")
        path.write_bytes(head + kind + b"\0\0" * (kind == b"UT") + size + written + tail)
    return folder


@pytest.mark.parametrize(
    ("written", "kind", "size"),
    [
        (b"0.143\\0.2", b"UT", (0.143, 0.2)),
        (b"0.143\\0.143", b"LT", (0.143, 0.143)),
        (b"1.43E-1\\.2", b"DS", (0.143, 0.2)),
        (b"0.143, 0.2", b"DS", (0.143, 0.2)),
        (b"[0,143; 0,2]", b"DS", (0.143, 0.2)),
        (b"0.143\\", b"DS", (0.143, 0.143)),
        (b"0,143,0,2", b"DS", None),
        (b"143um\\143um", b"DS", None),
        (b"0.1\\0.2\\0.3", b"DS", None),
        (b"1e400\\1", b"DS", None),
    ],
)
def test_a_pixel_spacing_is_two_numbers_however_they_are_joined(tmp_path, written, kind, size):
    volume = read(with_spacing(tmp_path / "a", written, kind))
    if size is None:
        assert volume.unit == "pixel"
        assert "because the header gives a pixel spacing that is not" in volume.notes[0]
    else:
        assert (volume.spacing, volume.notes) == ((0.4, *size), [])


def test_a_slice_without_a_pixel_spacing_stays_in_its_stack(tmp_path):
    volume = read(
        series(tmp_path / "a", lambda i: at(0.4 * i, PixelSpacing=None if i == 0 else [0.3, 0.3]))
    )
    assert order_of(volume) == list(range(24))
    assert volume.spacing == (0.4, 0.3, 0.3)
    assert volume.notes[0].startswith("1 slice without a readable pixel spacing (s000.dcm)")
