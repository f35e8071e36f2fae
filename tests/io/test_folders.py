"""What is told of the files of a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import tifffile

from hushpore.io import read, read_all
from hushpore.io.folders import read_beginnings_ahead, stacks_by_name


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_reading_ahead_waits_for_nothing_and_leaves_errors_to_whoever_opens_a_file(
    tmp_path: Path,
) -> None:
    pipe, empty = tmp_path / "pipe", tmp_path / "empty"
    os.mkfifo(pipe)
    empty.touch()

    before = len(os.listdir("/dev/fd"))
    read_beginnings_ahead([pipe, tmp_path / "missing", tmp_path, empty])

    assert len(os.listdir("/dev/fd")) == before


NAMES = {
    "decimal": [f"z{i * 0.5:g}mm" for i in range(12)],
    "decimal of two places": [f"pos{i * 0.25:.2f}" for i in range(12)],
    "negative": [f"z{i - 6}" for i in range(12)],
    "negative decimal": [f"z{(i - 6) * 0.5:g}" for i in range(12)],
    "unpadded": [f"img{i}" for i in range(12)],
    "hyphen": [f"scan-{i}" for i in range(12)],
    "first without a number": ["slice", *(f"slice{i}" for i in range(1, 12))],
    "number that is a point and a number": [f"run1.{i}" for i in range(1, 13)],
    "time of day": [f"s_20260101_{i:02d}5900_{7 * i}" for i in range(12)],
    "number in front": [f"{i}_of_12" for i in range(12)],
    "parts that go on": [f"part{i // 4}_{i:04d}" for i in range(12)],
    "checksum behind": [f"slice{i:03d}_{(i * 7919 + 13) % 1009}" for i in range(12)],
    "temperature in front": [f"T{20 + i % 3}_slice{i}" for i in range(12)],
    "micrometres": [f"pos_{i * 15.4:g}µm" for i in range(12)],
    "decimal comma": [f"z{i * 0.5:g}mm".replace(".", ",") for i in range(12)],
    "decimal comma, padded": [f"z{i * 0.25:.2f}".replace(".", ",") for i in range(12)],
    "exponent": [f"z{i * 0.001:.3e}" for i in range(12)],
    "plus and minus": [f"z{i - 6:+04d}" for i in range(12)],
    "all negative": [f"core_-{12 - i}" for i in range(12)],
    "negative after a date": [f"scan_2026-11-27_{i - 6}" for i in range(12)],
    "dates": [f"2026-{1 + i // 4:02d}-{25 + i % 4}" for i in range(12)],
    "dates and times": [
        f"IMG_202601{28 + i // 4}_{i % 4:02d}{(7 * i) % 60:02d}12" for i in range(12)
    ],
    "voxel size and voltage": [f"core_80kV_15.4um_{i}" for i in range(12)],
    "copies of Windows": ["scan", *(f"scan ({i})" for i in range(1, 12))],
    "letters in capitals": [f"{'Slice' if i % 2 else 'slice'}{i}" for i in range(12)],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_slices_are_in_order_whatever_their_numbers_look_like(tmp_path, names, rng):
    for i in rng.permutation(len(names)):
        tifffile.imwrite(tmp_path / f"{names[i]}.tif", np.full((8, 8), i, np.uint16))
    (volume,) = read_all(tmp_path)
    assert volume.array()[:, 0, 0].tolist() == list(range(len(names)))
    assert not [note for note in volume.notes if "missing" in note or "order" in note]


def test_names_without_numbers_are_in_alphabetical_order_and_said(tmp_path):
    for i, name in enumerate(("bottom", "middle", "top")):
        tifffile.imwrite(tmp_path / f"{name}.tif", np.full((8, 8), i, np.uint16))
    volume = read(tmp_path)
    assert volume.array()[:, 0, 0].tolist() == [0, 1, 2]
    assert "The names of the slices have no numbers" in volume.notes[-1]


@pytest.mark.parametrize("names", [("a_{:03d}", "b_{:03d}"), ("bread1 {}", "bread2 {}"),
                                   ("{}_raw", "{}_bin"), ("s1_{:02d}", "s2_{:02d}"),
                                   ("n{}", "p{}")])  # fmt: skip
def test_two_samples_are_two_stacks(tmp_path, names):
    for name, first in zip(names, (0, 100), strict=True):
        for i in range(24):
            tifffile.imwrite(
                tmp_path / f"{name.format(i)}.tif", np.full((8, 8), first + i, np.uint16)
            )
    volumes = read_all(tmp_path)
    starts = [volume.array()[:, 0, 0].tolist() for volume in volumes]
    assert sorted(starts) == [list(range(24)), list(range(100, 124))]
    assert len({volume.name for volume in volumes}) == 2
    assert "2 image stacks by name" in volumes[0].notes[0]


@pytest.mark.parametrize("name", ["background", "flat_field", "preview_01", "scan_rec_spr"])
def test_a_flat_field_or_preview_is_no_slice_and_is_named(tmp_path, name):
    for i in range(24):
        tifffile.imwrite(tmp_path / f"slice_{i:03d}.tif", np.full((8, 8), i, np.uint16))
    tifffile.imwrite(tmp_path / f"{name}.tif", np.full((8, 8), 1500, np.uint16))
    (volume,) = read_all(tmp_path)
    assert volume.array()[:, 0, 0].tolist() == list(range(24))
    assert volume.notes[0] == f"1 file skipped (name or shape differs from the slices): {name}.tif."


def test_a_thumbnail_of_another_shape_is_no_slice_and_is_named(tmp_path):
    for i in range(9):
        tifffile.imwrite(tmp_path / f"slice_{i:03d}.tif", np.full((8, 8), i, np.uint16))
    tifffile.imwrite(tmp_path / "thumb.tif", np.zeros((3, 4), np.uint8))
    (volume,) = read_all(tmp_path)
    assert volume.shape == (9, 8, 8)
    assert "slices): thumb.tif." in volume.notes[0]


def test_a_channel_number_parts_stacks_however_few_there_are():
    files = [Path(f"z{z:02d}_c{c}.tif") for z in range(10) for c in range(2)]
    stacks = stacks_by_name(files)
    assert [[path.name for path in stack.files][:2] for stack in stacks] == [
        ["z00_c0.tif", "z01_c0.tif"], ["z00_c1.tif", "z01_c1.tif"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("{:03d}.tif", (np.uint8, np.uint16)), ("{:03d}_{}.tif", (np.uint16, np.uint8)),
     ("{1}_{0:03d}.tif", (np.float32, np.uint16))],
)  # fmt: skip
def test_stacks_of_two_types_are_two_stacks(tmp_path, name, kinds):
    """Consecutive or interleaved names; the type tells the stacks apart."""
    for k, kind in enumerate(kinds):
        for i in range(10):
            number = i + 10 * k if "{}" not in name and "{1}" not in name else i
            values = np.full((8, 8), 100 * k + i, kind)
            tifffile.imwrite(tmp_path / name.format(number, "xy"[k]), values)
    volumes = read_all(tmp_path)
    found = {volume.dtype: volume.array()[:, 0, 0].tolist() for volume in volumes}
    assert found == {
        np.dtype(kind): list(range(100 * k, 100 * k + 10)) for k, kind in enumerate(kinds)
    }


@pytest.mark.parametrize("suffix", [".bmp", ".png"])
def test_slices_of_two_formats_are_not_mixed(tmp_path, suffix):
    image = pytest.importorskip("PIL.Image")
    for i in range(10):
        tifffile.imwrite(tmp_path / f"a_{i:03d}.tif", np.full((8, 8), i, np.uint8))
        image.fromarray(np.full((8, 8), 100 + i, np.uint8)).save(tmp_path / f"b_{i:03d}{suffix}")
    volumes = read_all(tmp_path)
    starts = sorted(volume.array()[:, 0, 0].tolist() for volume in volumes)
    assert starts == [list(range(10)), list(range(100, 110))]


def test_pictures_beside_slices_are_named(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for i in range(10):
        tifffile.imwrite(tmp_path / f"a_{i:03d}.tif", np.full((8, 8), i, np.uint16))
        photo = np.zeros((8, 8, 3), np.uint8)
        photo[..., 0] = 200
        image.fromarray(photo).save(tmp_path / f"photo_{i:03d}.png")
    (volume,) = read_all(tmp_path)
    # read side by side, so any of them may be the first
    assert re.search(r"photo_00\d\.png is a colour image", volume.notes[0])
    for i in range(1, 10):
        (tmp_path / f"photo_{i:03d}.png").unlink()
    (volume,) = read_all(tmp_path)
    assert volume.notes[0] == "1 file skipped (format differs from the slices): photo_000.png."
    # as beside the labels or the denoised image of a result
    (tmp_path / "result.json").write_text("{}")
    (volume,) = read_all(tmp_path)
    assert not volume.notes
