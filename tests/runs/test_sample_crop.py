"""Crop to the sample, and to the cylinder inside it."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.io import describe, is_on_disk
from hushpore.io.output_target import PROVENANCE
from hushpore.io.parts import binned, cropped
from hushpore.io.results import write_image
from hushpore.runs.sample_crop import crop_to, find_cylinder, sample_box
from hushpore.runs.scan_recipe import ScanRecipe


def core(shape=(40, 120, 150), centre=(62.0, 71.0), radius=40.0, ends=(0, 40), dtype=np.uint16):
    """Return a round core with pores in air, and where its sample is."""
    rng = np.random.default_rng(3)
    z, y, x = np.indices(shape)
    away = np.hypot(y - centre[0], x - centre[1])
    sample = (away <= radius) & (z >= ends[0]) & (z < ends[1])
    void = np.zeros(shape, bool)
    for at in rng.uniform((4, 35, 45), (36, 88, 98), (60, 3)):
        void |= (z - at[0]) ** 2 + (y - at[1]) ** 2 + (x - at[2]) ** 2 <= 9
    values = np.where(sample & ~void, 160.0, 40.0) + rng.normal(0, 4, shape)
    return values.round().astype(dtype), sample, void & sample


def bounds(mask):
    return [(int(at.min()), int(at.max()) + 1) for at in np.nonzero(mask)]


def box_of(text):
    return [tuple(map(int, part.split(":"))) for part in text.split(",")]


@pytest.mark.parametrize("ends", [(0, 40), (9, 33)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_the_box_holds_the_sample_with_a_narrow_margin(ends, dtype):
    values, sample, _ = core(ends=ends, dtype=dtype)
    for (low, high), (first, end) in zip(
        box_of(sample_box(Volume(values))), bounds(sample), strict=True
    ):
        assert first - 4 <= low <= first
        assert end <= high <= end + 4


def test_a_box_in_two_dimensions():
    values, sample, _ = core()
    (_, *expected), found = bounds(sample), box_of(sample_box(Volume(values[20])))
    assert np.abs(np.subtract(found, expected)).max() <= 4


def test_a_large_sample_is_found_in_every_voxel_of_a_lazy_scan(tmp_path):
    # steps of a thumbnail are several voxels here
    values, sample, _ = core((20, 500, 640), (261.0, 350.0), 170.0, (0, 20))
    path = write_image(tmp_path / "a.zarr", Volume(values, spacing=5, unit="um"))
    (scan,) = describe(path)
    part = crop_to(scan, "sample")
    assert is_on_disk(part)
    ranges = [
        (round(start / 5), round(start / 5) + n)
        for start, n in zip(part.origin, part.shape, strict=True)
    ]
    for (low, high), (first, end) in zip(ranges, bounds(sample), strict=True):
        assert first - 12 <= low <= first
        assert end <= high <= end + 12


def test_without_air_the_scan_stays_whole_and_says_so():
    values = core()[0][:, 40:85, 50:95]
    part = crop_to(Volume(values), "sample")
    assert part.shape == values.shape
    assert "nothing was cropped" in part.notes[-1]


def test_noise_in_the_air_does_not_widen_the_box():
    values, sample, _ = core()
    values[3:6, 3:6, 140:143] = 160
    found = box_of(sample_box(Volume(values)))
    assert np.abs(np.subtract(found, bounds(sample))).max() <= 4


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.float32])
def test_the_cylinder_lies_inside_the_sample(dtype):
    values, sample, void = core(ends=(9, 33), dtype=dtype)
    part = crop_to(Volume(values, spacing=2, unit="um"), "cylinder")
    inside = np.asarray(part.data) != part.metadata["padding_value"]
    where = tuple(
        slice(round(start / 2), round(start / 2) + n)
        for start, n in zip(part.origin, part.shape, strict=True)
    )
    assert sample[where][inside].all()
    assert inside.sum() > 0.8 * sample.sum()
    np.testing.assert_array_equal(np.asarray(part.data)[inside], values[where][inside])
    # the same circle in all slices
    assert (inside == inside[0]).all()
    found = hushpore.segment_pores(part.replace(np.asarray(part.data)))
    assert any("Padding around the scan" in note.message for note in found.remarks)
    truth = void[where][inside].mean()
    assert found.provenance["result"]["porosity"] == pytest.approx(truth, abs=0.002)


def test_the_fill_value_is_that_of_the_file_or_one_that_is_free():
    values, _, _ = core(dtype=np.int16)
    whole = np.where(values < 100, 0, values - 100).astype(np.uint8)
    assert crop_to(Volume(whole), "cylinder").metadata["padding_value"] > whole.max()
    scaled = Volume(Scaled(values, 2.0, -1000.0), metadata={"padding_value": -3000.0})
    part = crop_to(scaled, "cylinder")
    assert part.data[0, 0, 0] == -3000
    assert isinstance(part.data, Scaled)
    stretched = np.clip((values.astype(int) - 40) * 3, 0, 255).astype(np.uint8)
    with pytest.raises(InputError, match=r"uses all values of uint8.*Crop to a box"):
        crop_to(Volume(stretched), "cylinder")


def test_no_cylinder_fits_into_three_voxels():
    values = np.arange(36, dtype=np.uint8).reshape(4, 3, 3)
    with pytest.raises(InputError, match="No upright cylinder fits"):
        crop_to(Volume(values), "cylinder")


def test_pores_of_the_cropped_sample_are_those_of_the_cropped_array(tmp_path):
    values, *_ = core()
    scan = Volume(values, spacing=5, unit="um", name="core")
    path = write_image(tmp_path / "core.tif", scan)
    for crop in ("sample", "cylinder"):
        out = tmp_path / crop
        words = ["pores", path, "-o", out, "--crop", crop, "--threshold", 100]
        done = CliRunner().invoke(command, [*map(str, words)])
        assert done.exit_code == 0, done.output
        record = json.loads((out / "result.json").read_text())
        assert record["source"]["crop"] == crop
        part = crop_to(scan, crop)
        expected = hushpore.segment_pores(part.replace(np.asarray(part.data)), threshold=100)
        found = hushpore.read(out / "labels.tif")
        np.testing.assert_array_equal(found.data, expected.labels)
        words = ["rerun", out, "-o", tmp_path / f"{crop} again"]
        done = CliRunner().invoke(command, [*map(str, words)])
        assert "bit for bit" in done.output, done.output
    words = ["batch", path, "-o", tmp_path / "batch", "--no-denoise", "--crop", "sample"]
    done = CliRunner().invoke(command, [*map(str, words)])
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "batch" / "core" / "result.json").read_text())
    assert tuple(record["jobs"][-1]["input"]["shape"]) == crop_to(scan, "sample").shape


def test_the_part_is_that_of_a_series_and_of_its_bins(tmp_path):
    values, *_ = core()
    path = tmp_path / "core.npy"
    np.save(path, values)
    recipe = ScanRecipe(str(path), crop="cylinder", bin="2")
    part, fill = recipe.read(), recipe.describe().metadata["padding_value"]
    assert (np.asarray(part.data) == fill).any(axis=0).mean() == pytest.approx(0.25, abs=0.06)
    series = Volume(np.stack([values, values]), axes="tzyx")
    box = sample_box(Volume(values))
    np.testing.assert_array_equal(crop_to(series, "sample").data, cropped(series, box).data)


@pytest.mark.parametrize(
    "flags",
    [
        ("--crop", "4:30,20:64,16:70", "--bin", "1,2,2"),
        ("--crop", "sample"),
        ("--crop", "cylinder"),
    ],
)
def test_a_mask_of_the_whole_scan_is_cropped_and_binned_with_it(tmp_path, flags):
    values, sample, _ = core()
    scan, whole, part = tmp_path / "core.npy", tmp_path / "mask.npy", tmp_path / "part.npy"
    np.save(scan, values)
    mask = sample.copy()
    mask[:, :, :40] = False
    np.save(whole, mask.astype(np.uint8))
    crop = flags[1]
    boxes = {"sample": sample_box, "cylinder": lambda scan: find_cylinder(scan).box}
    box = boxes[crop](Volume(values)) if crop in boxes else crop
    cut = cropped(Volume(mask.astype(np.uint8)).as_labels(mask.astype(np.uint8), "mask"), box)
    np.save(part, (binned(cut, flags[3]) if len(flags) > 2 else cut).array())
    made = {}
    for name, file in (("whole", whole), ("part", part)):
        folder = tmp_path / name
        args = ["pores", str(scan), "-o", str(folder), "--sample-mask", str(file), *flags]
        done = CliRunner().invoke(command, args)
        assert done.exit_code == 0, done.output
        made[name] = json.loads((folder / PROVENANCE).read_text())
    one, two = (made[name]["jobs"][-1] if "jobs" in made[name] else made[name] for name in made)
    assert one["result"]["porosity"] == two["result"]["porosity"] > 0
    assert made["whole"]["fingerprints"] == made["part"]["fingerprints"]
    assert "mask.npy" in one["settings"]["sample_mask"]
    again = CliRunner().invoke(
        command, ["rerun", str(tmp_path / "whole"), "-o", str(tmp_path / "again")]
    )
    assert again.exit_code == 0, again.output
    assert "Identical" in again.output
