import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tifffile
from scipy import ndimage

import hushpore
from hushpore.base.errors import InputError, MemoryLimitError, OutputError
from hushpore.base.events import Note, Progress, Timing
from hushpore.base.volume import Volume
from hushpore.io import read, read_all
from hushpore.io.dicom import write_series
from hushpore.io.results import write_image
from hushpore.runs.convert import converting
from hushpore.runs.scan_recipe import ScanRecipe

pytest.importorskip("zarr")
pydicom = pytest.importorskip("pydicom")


@pytest.fixture
def scan():
    values = np.random.default_rng(0).integers(-1000, 3000, (20, 300, 270)).astype(np.int16)
    return Volume(values, spacing=(0.5, 0.25, 0.25), unit="mm", name="scan", origin=(1, 2, 3))


@pytest.mark.parametrize("kind", ["dicom", "tiff", "npy", "array"])
def test_values_spacing_and_unit_are_those_of_the_scan(tmp_path, scan, kind):
    path = tmp_path / "scan"
    if kind == "dicom":
        write_series(scan, path)
    elif kind == "tiff":
        path = write_image(tmp_path / "scan.tif", scan)
    elif kind == "npy":
        path = tmp_path / "scan.npy"
        np.save(path, scan.data)
    given = scan if kind == "array" else path
    expected = scan if kind == "array" else read(path)
    done = hushpore.convert(given, tmp_path / "a.ome.zarr")
    back = read(done.path)
    np.testing.assert_array_equal(back.data, expected.data)
    assert back.dtype == expected.dtype
    assert (back.spacing, back.unit, back.axes) == (expected.spacing, expected.unit, "zyx")
    assert back.origin == pytest.approx(expected.origin)
    assert done.levels == ((20, 300, 270), (10 if kind == "npy" else 20, 150, 135))
    assert "20 x 300 x 270" in done.summary


@pytest.mark.parametrize("inverted", [False, True])
def test_what_a_scan_is_filled_in_with_is_known_afterwards(tmp_path, inverted):
    # most of the rim is of the sample, and what is filled in lies between its grey values
    rng = np.random.default_rng(0)
    void = ndimage.gaussian_filter(rng.normal(size=(20, 96, 96)), 2) > 0.06
    grey = ndimage.gaussian_filter(np.where(void, -900.0, 1200.0), 0.6)
    outside = np.hypot(*(np.indices((96, 96)) - 47.5)) > 52
    shown = np.where(outside, -1, grey.round()).astype(np.int16)
    # 16 bits with sign are turned over to -1 - v
    stored = -1 - shown if inverted else shown
    folder = write_series(Volume(stored, spacing=(1, 1, 1), unit="mm"), tmp_path / "scan")
    for path in folder.iterdir():
        dataset = pydicom.dcmread(path)
        dataset.add_new("PixelPaddingValue", "SS", 0 if inverted else -1)
        if inverted:
            dataset.PhotometricInterpretation, dataset.Modality = "MONOCHROME1", "DX"
            del dataset.RescaleType
        else:
            # no float32
            dataset.RescaleSlope, dataset.RescaleIntercept = 0.1, 0.3
        dataset.save_as(path)
    truth = np.mean(shown[:, ~outside] < 150)
    scan = read(folder)
    hushpore.convert(folder, tmp_path / "scan.ome.zarr")
    write_image(tmp_path / "scan.tif", scan)
    for volume in (scan, read(tmp_path / "scan.ome.zarr"), read(tmp_path / "scan.tif")):
        result = hushpore.segment_pores(volume)
        assert result.provenance["result"]["padding_value"] == (-1 if inverted else 0.3 - 0.1)
        assert result.porosity == pytest.approx(truth, abs=0.01)
        # labels are filled in with nothing
        assert "padding_value" not in result.labels_volume.metadata


def test_it_tells_how_far_it_is_and_where_the_time_went(tmp_path, scan):
    write_series(scan, tmp_path / "scan")
    events = []
    hushpore.convert(tmp_path / "scan", tmp_path / "a.zarr", on_event=events.append)
    shares = [event.fraction for event in events if isinstance(event, Progress)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    timing = [event for event in events if isinstance(event, Timing)][-1]
    assert {"reading", "writing", "coarser levels"} <= set(timing.stages)
    assert timing.stages["reading"].nbytes == scan.nbytes


def test_cancelled_at_any_moment_it_leaves_nothing_behind(tmp_path, scan):
    path = write_image(tmp_path / "scan.tif", scan)
    count = len(list(converting(path, tmp_path / "a.zarr")))
    for steps in range(count):
        job = converting(path, tmp_path / "b.zarr")
        for _ in range(steps + 1):
            next(job)
        job.close()
        assert sorted(item.name for item in tmp_path.iterdir()) == ["a.zarr", "scan.tif"]


@pytest.mark.long
def test_killed_it_goes_on_from_the_blocks_that_are_written(tmp_path):
    values = np.random.default_rng(0).integers(0, 9, (400, 80, 90)).astype(np.uint8)
    path = tmp_path / "scan.tif"
    tifffile.imwrite(path, values, photometric="minisblack")
    code = (
        "import sys, time, hushpore\n"
        "from hushpore.base.events import Progress\n"
        "def slow(event):\n"
        "    if isinstance(event, Progress) and event.done >= 140:\n"
        "        print('there', flush=True); time.sleep(60)\n"
        f"hushpore.convert({str(path)!r}, {str(tmp_path / 'a.zarr')!r}, on_event=slow)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    assert not (tmp_path / "a.zarr").exists()
    done = hushpore.convert(path, tmp_path / "a.zarr")
    assert done.resumed == 2
    assert "2 blocks from an earlier run" in done.summary
    np.testing.assert_array_equal(read(tmp_path / "a.zarr").data, values)


def test_a_scan_that_has_changed_is_begun_anew(tmp_path, scan, monkeypatch):
    from hushpore.base.errors import DeviceError
    from hushpore.runs import convert

    path = write_image(tmp_path / "scan.tif", scan)

    def broken(*_):
        raise DeviceError("gone")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(convert, "write_blocks", broken)
        with pytest.raises(DeviceError):
            hushpore.convert(path, tmp_path / "a.zarr")
    time.sleep(0.01)
    changed = scan.replace(scan.data + 1)
    write_image(path, changed, overwrite=True)
    hushpore.convert(path, tmp_path / "a.zarr")
    np.testing.assert_array_equal(read(tmp_path / "a.zarr").data, changed.data)


def test_of_several_stacks_the_largest_or_the_one_that_is_named(tmp_path, scan):
    (tmp_path / "scan").mkdir()
    write_series(scan, tmp_path / "scan" / "large")
    write_series(scan.replace(scan.data[:4], name="small"), tmp_path / "scan" / "small")
    names = [volume.name for volume in read_all(tmp_path / "scan", lazy=True)]
    notes = []
    hushpore.convert(tmp_path / "scan", tmp_path / "a.zarr", on_event=notes.append)
    assert read(tmp_path / "a.zarr").shape == scan.shape
    assert any("largest of 2" in note.message for note in notes if isinstance(note, Note))
    small = next(number for number, name in enumerate(names, 1) if "small" in name.lower())
    hushpore.convert(tmp_path / "scan", tmp_path / "b.zarr", series=small)
    assert read(tmp_path / "b.zarr").shape == (4, 300, 270)


def test_what_is_asked_for_beside_reading_holds_as_for_other_commands(tmp_path, scan):
    drying = Volume(np.stack([scan.data[:, :40, :50], -scan.data[:, :40, :50]]), axes="tzyx")
    path = write_image(tmp_path / "drying.tif", drying)
    hushpore.convert(path, tmp_path / "a.zarr", at=["t=1"], voxel_size="2,1,1um")
    back = read(tmp_path / "a.zarr")
    np.testing.assert_array_equal(back.data, drying.data[1])
    assert (back.axes, back.spacing, back.unit) == ("zyx", (2, 1, 1), "um")
    write_series(scan, tmp_path / "gap")
    sorted((tmp_path / "gap").iterdir())[7].unlink()
    hushpore.convert(tmp_path / "gap", tmp_path / "b.zarr", resample=True)
    expected = ScanRecipe(str(tmp_path / "gap"), resample=True).read()
    np.testing.assert_array_equal(read(tmp_path / "b.zarr").data, expected.data)
    assert expected.shape == scan.shape
    with pytest.raises(InputError, match="Give an axis and a number"):
        hushpore.convert(path, tmp_path / "c.zarr", at=["t"])
    with pytest.raises(InputError, match="does not exist"):
        hushpore.convert(scan, tmp_path / "c.zarr", at=["t=0"])


def test_it_refuses_what_cannot_work(tmp_path, scan):
    path = write_image(tmp_path / "scan.tif", scan)
    with pytest.raises(OutputError, match=r"\.zarr"):
        hushpore.convert(path, tmp_path / "a.tif")
    with pytest.raises(MemoryLimitError, match="two slices of 162 kB"):
        hushpore.convert(path, tmp_path / "a.zarr", memory_budget=0.0001)
    with pytest.raises(InputError, match="above 0"):
        hushpore.convert(path, tmp_path / "a.zarr", memory_budget=-1)
    hushpore.convert(path, tmp_path / "a.zarr")
    with pytest.raises(OutputError, match="already exists"):
        hushpore.convert(path, tmp_path / "a.zarr")
    hushpore.convert(path, tmp_path / "a.zarr", overwrite=True)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.zarr", "scan.tif"]
