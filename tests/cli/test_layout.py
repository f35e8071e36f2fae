"""Flags that describe values where the file does not, and flags that select a part."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import tifffile
from click.testing import CliRunner
from PIL import Image
from skimage.measure import block_reduce

import hushpore
from hushpore.base.volume import Volume
from hushpore.cli.commands import hushpore as command
from hushpore.cli.flags import in_flags
from hushpore.io import read
from hushpore.io.results import write_image
from hushpore.runs.reading import Reading


@pytest.fixture
def scan():
    """A foam of two grey values with four pores."""
    z, y, x = np.indices((12, 24, 26))
    values = np.full(z.shape, 2000, np.uint16)
    for cy in (6, 17):
        for cx in (7, 18):
            values[(z - 6) ** 2 + (y - cy) ** 2 + (x - cx) ** 2 <= 12] = 500
    return values


def run(*words):
    done = CliRunner().invoke(command, [*map(str, words)])
    return done.exit_code, " ".join(done.output.split())


def count_of(folder):
    return len(pd.read_csv(folder / "pores.csv"))


def pores_of(folder):
    return json.loads((folder / "result.json").read_text())["jobs"][-1]


@pytest.mark.parametrize("name", ["pores", "run", "batch", "convert", "align"])
def test_every_command_that_reads_a_scan_has_a_flag_for_each_option_of_reading(name):
    code, said = run(name, "--help")
    assert code == 0
    assert not [opt.flag for opt in Reading.options() if opt.flag not in said]


@pytest.mark.parametrize("order", ["little", "big"])
def test_a_raw_file_is_read_by_the_flags(tmp_path, scan, order):
    path = tmp_path / "scan.dump"
    path.write_bytes(b"header" + scan.astype("<u2" if order == "little" else ">u2").tobytes())
    flags = ["--shape", "12,24,26", "--dtype", "uint16", "--byte-order", order, "--offset", 6]
    words = ["--voxel-size", "5um", "--threshold", 1000]
    code, said = run("pores", path, "-o", tmp_path / "result", *flags, *words)
    assert code == 0, said
    record = json.loads((tmp_path / "result" / "result.json").read_text())
    assert count_of(tmp_path / "result") == 4
    assert record["source"]["shape"] == "12,24,26"
    assert record["source"]["byte_order"] == order
    assert record["jobs"][0]["input"]["spacing"] == [5, 5, 5]
    code, said = run("rerun", tmp_path / "result", "-o", tmp_path / "again")
    assert code == 0, said


@pytest.mark.parametrize("kind", ["raw", "zarr"])
def test_pores_of_a_crop_are_those_of_the_cropped_array(tmp_path, scan, kind):
    if kind == "raw":
        path, words = tmp_path / "scan.raw", ["--shape", "12,24,26"]
        scan.tofile(path)
    else:
        path, words = tmp_path / "scan.zarr", []
        write_image(path, Volume(scan, spacing=5, unit="um"))
    words += ["--voxel-size", "5um"]
    crop = ["--crop", "1:12,:,12:26"]
    code, said = run("pores", path, "-o", tmp_path / "a", *words, *crop, "--threshold", 1000)
    assert code == 0, said
    record = json.loads((tmp_path / "a" / "result.json").read_text())
    assert record["source"]["crop"] == "1:12,:,12:26"
    assert record["jobs"][0]["input"]["shape"] == [11, 24, 14]
    found = read(tmp_path / "a" / "labels.tif")
    array = Volume(scan[1:, :, 12:], spacing=5, unit="um", origin=(5, 0, 60))
    expected = hushpore.segment_pores(array, threshold=1000)
    assert len(expected.pores) == 2
    np.testing.assert_array_equal(found.data, expected.labels)
    table = pd.read_csv(tmp_path / "a" / "pores.csv")
    assert len(table) == 2
    for name in expected.pores.columns.intersection(table.columns):
        assert table[name].tolist() == expected.pores[name].tolist(), name
    code, said = run("rerun", tmp_path / "a", "-o", tmp_path / "again")
    assert code == 0, said
    assert "bit for bit" in said


def test_bins_and_boxes_reach_every_command(tmp_path, scan):
    path = write_image(tmp_path / "scan.tif", Volume(scan, spacing=5, unit="um"))
    part = ["--crop", "0:12,2:24,:", "--bin", "2"]
    code, said = run("info", path, *part)
    assert code == 0, said
    assert "6 x 11 x 13 · 10 x 10 x 10 µm" in said
    code, said = run("convert", path, tmp_path / "a.zarr", *part)
    assert code == 0, said
    small = read(tmp_path / "a.zarr")
    np.testing.assert_array_equal(
        small.data, np.rint(block_reduce(scan[:, 2:].astype(float), (2, 2, 2), np.mean))
    )
    np.testing.assert_allclose(small.origin, (2.5, 12.5, 2.5))
    words = ["-o", tmp_path / "batch", "--no-denoise", "--threshold", 1000]
    code, said = run("batch", path, *words, *part)
    assert code == 0, said
    record = json.loads((tmp_path / "batch" / "scan" / "result.json").read_text())
    assert record["jobs"][-1]["input"]["shape"] == [6, 11, 13]
    code, said = run("pores", path, "-o", tmp_path / "b", "--crop", "0:13,:,:")
    assert code == 1
    assert "--crop 0:13,:,:: expected a range" in said
    assert "12 x 24 x 26 of scan" in said


def test_advice_to_crop_or_bin_names_the_flags():
    pores = command.get_command(None, "pores")
    assert in_flags("Crop it, or bin it 2 x 2 x 2.", pores).endswith("2 (--crop sample, --bin 2).")
    assert in_flags("Crop the volume or bin it, or wait.", pores) == (
        "Crop the volume or bin it (--crop sample, --bin 2), or wait."
    )
    assert in_flags("Close it, or crop or bin the scan.", pores).endswith(
        "crop or bin the scan (--crop sample, --bin 2)."
    )
    assert in_flags("Crop it or allow more memory.", pores) == (
        "Crop it (--crop sample) or allow more memory."
    )
    assert in_flags("Crop the scan to the sample.", pores) == (
        "Crop the scan to the sample (--crop sample)."
    )
    assert in_flags("cropped; crops", pores) == "cropped; crops"


def test_info_shows_what_the_flags_give(tmp_path, scan):
    scan.tofile(tmp_path / "scan.raw")
    code, said = run("info", tmp_path / "scan.raw")
    assert code == 1
    assert "--shape" in said
    code, said = run("info", tmp_path / "scan.raw", "--shape", "12,24,26")
    assert code == 0, said
    assert "scan: 12 x 24 x 26" in said
    assert "uint16 was guessed from the size of the file" in said


def test_a_type_that_is_not_given_is_guessed_and_said(tmp_path, scan):
    scan.tofile(tmp_path / "scan.raw")
    words = ["--threshold", 1000, "--shape", "12,24,26"]
    code, said = run("pores", tmp_path / "scan.raw", "-o", tmp_path / "result", *words)
    assert code == 0, said
    notes = pores_of(tmp_path / "result")["notes"]
    assert "The data type uint16 was guessed from the size of the file." in notes


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--shape", "12,24"], "which is not 288 voxels of 1, 2, 4 or 8 bytes"),
        (["--shape", "12,24,x"], "expected whole numbers along z,y,x"),
        (["--shape", "12,24,26", "--dtype", "word"], "The data type 'word' is unknown"),
        (["--shape", "12,24,26", "--dtype", "float64"], "incomplete"),
        (["--shape", "12,24,26", "--dtype", "uint16", "--offset", "1"], "incomplete"),
    ],
)
def test_flags_that_do_not_fit_are_told(tmp_path, scan, flags, words):
    scan.tofile(tmp_path / "scan.raw")
    code, said = run("pores", tmp_path / "scan.raw", "-o", tmp_path / "result", *flags)
    assert code == 1
    assert words in said


@pytest.mark.parametrize(
    ("ending", "written"),
    [
        (".tif", {"imagej": True, "metadata": {"unit": "um", "axes": "TYX"}}),
        # one channel, as Micro-Manager and Fiji's hyperstacks have it
        (".tif", {"imagej": True, "metadata": {"unit": "um", "axes": "TCYX"}}),
        (
            ".ome.tif",
            {
                "metadata": {
                    "axes": "TYX",
                    **{f"PhysicalSize{axis}": 10.0 for axis in "XY"},
                    **{f"PhysicalSize{axis}Unit": "µm" for axis in "XY"},
                }
            },
        ),
    ],
)
def test_slices_that_are_called_frames_are_read_as_slices(tmp_path, scan, ending, written):
    path = tmp_path / f"frames{ending}"
    values = scan[:, None] if written["metadata"]["axes"] == "TCYX" else scan
    tifffile.imwrite(path, values, resolution=(0.1, 0.1), **written)
    code, said = run("pores", path, "-o", tmp_path / "result")
    assert code == 1
    assert "Choose one with --at t=0. If its images are slices, read it with --axes zyx." in said
    code, said = run("pores", path, "-o", tmp_path / "result", "--axes", "zyx", "--threshold", 1000)
    assert code == 0, said
    made = pores_of(tmp_path / "result")
    assert count_of(tmp_path / "result") == 4
    assert made["input"]["spacing"] == pytest.approx([10, 10, 10])
    assert any("set to the pixel size, 10 µm" in note for note in made["notes"])


@pytest.mark.parametrize(
    ("value", "flags"), [(np.nan, ()), (-np.inf, ()), (np.nan, ("--crop", "0:12,:,:"))]
)
def test_voxels_without_a_value_around_a_reconstruction_are_a_fill_value(
    tmp_path, scan, value, flags
):
    values = scan.astype(np.float32)
    _, y, x = np.indices(values.shape)
    outside = (y - 11.5) ** 2 + (x - 12.5) ** 2 > 10.5**2
    values[outside] = value
    np.save(tmp_path / "scan.npy", values)
    out = tmp_path / "result"
    code, said = run("pores", tmp_path / "scan.npy", "-o", out, "--threshold", 1000, *flags)
    assert code == 0, said
    made = pores_of(out)
    assert count_of(out) == 4
    assert any(
        f"{int(outside.sum()):,} voxels" in note and "have no value" in note
        for note in made["notes"]
    )
    pores = ((scan == 500) & ~outside).sum() / (~outside).sum()
    assert made["result"]["porosity"] == pytest.approx(pores, rel=1e-6)


def test_a_scan_without_any_value_is_refused(tmp_path):
    np.save(tmp_path / "scan.npy", np.full((4, 9, 9), np.nan, np.float32))
    code, said = run("pores", tmp_path / "scan.npy", "-o", tmp_path / "result")
    assert code == 1
    assert "324 NaN or infinite values" in said


def test_a_batch_reads_raw_files_and_folders_of_pictures(tmp_path, scan):
    for name in ("a", "b"):
        scan.tofile(tmp_path / f"{name}.raw")
    flags = ["--shape", "12,24,26", "--dtype", "uint16", "--threshold", 1000, "--no-denoise"]
    code, said = run("batch", tmp_path / "*.raw", "-o", tmp_path / "out", *flags)
    assert code == 0, said
    assert count_of(tmp_path / "out" / "b") == 4
    (tmp_path / "slices").mkdir()
    for number, plane in enumerate(scan):
        image = Image.fromarray((plane // 8).astype(np.uint8))
        image.save(tmp_path / "slices" / f"s_rec{number:04d}.bmp")
    (tmp_path / "slices" / "s_rec.log").write_text(
        "[Acquisition]\nSource Voltage (kV)=80\nFilter=Al 0.5 mm\n"
        "[Reconstruction]\nPixel Size (um)=12.5\n"
    )
    code, said = run(
        "batch", tmp_path / "slices", "-o", tmp_path / "more", "--threshold", 125, "--no-denoise"
    )
    assert code == 0, said
    made = pores_of(tmp_path / "more" / "slices")
    assert count_of(tmp_path / "more" / "slices") == 4
    assert made["input"]["spacing"] == [12.5] * 3
    assert made["input"]["scanner"] == {"voltage_kv": 80, "filter": "Al 0.5 mm"}
    page = (tmp_path / "more" / "slices" / "report.html").read_text(encoding="utf-8")
    assert "voltage 80 kV, filter Al 0.5 mm" in page


@pytest.mark.parametrize("pores_are", ["dark", "bright"])
def test_flatten_is_in_the_record_and_rerun_repeats_it(tmp_path, pores_are):
    z, y, x = np.indices((40, 48, 48))
    pores = (z % 12 - 6) ** 2 + (y % 12 - 6) ** 2 + (x % 12 - 6) ** 2 <= 9
    noise = np.random.default_rng(0).normal(0, 300, z.shape)
    values = 20000.0 - 10000 * pores
    values = values * (1 + 0.004 * x) + noise if pores_are == "dark" else 45000 - values - 100 * x
    path = write_image(
        tmp_path / "scan.tif", Volume(values.astype(np.uint16), spacing=5, unit="um"), provenance={}
    )
    flags = ["--flatten", "--pores-are", pores_are, "--threshold", "otsu"]
    code, said = run("pores", path, "-o", tmp_path / "result", *flags)
    assert code == 0, said
    record = json.loads((tmp_path / "result" / "result.json").read_text())
    assert record["source"]["flatten"] == ("bright" if pores_are == "dark" else "dark")
    assert "Flattened: the grey value of the solid drifted by" in said
    code, said = run("rerun", tmp_path / "result", "-o", tmp_path / "again")
    assert code == 0, said
    code, said = run("convert", path, tmp_path / "flat.ome.zarr", "--flatten")
    assert code == 0, said
    code, said = run("batch", path, "-o", tmp_path / "batch", "--no-denoise", *flags)
    assert code == 0, said
    one, other = (
        pd.read_csv(each)
        for each in (tmp_path / "result" / "totals.csv", tmp_path / "batch" / "scan" / "totals.csv")
    )
    pd.testing.assert_frame_equal(one, other)
