"""Independent readers on every series: dcm2niix, and SimpleITK's series reader where it is right.

Each disagreement is named, with its reason.
"""

import subprocess

import numpy as np
import pytest

from hushpore.base.volume import Volume
from hushpore.io import read, read_all
from hushpore.io.dicom import write_series

SERIES = [
    "descending", "duplicate_z", "enhanced", "missing_slice", "monochrome1", "no_ipp_anon",
    "noext_shuffled", "oblique", "per_slice_slope", "regular", "rle", "two_series", "uneven",
    "unsigned",
]  # fmt: skip


def converted(folder, out):
    """What dcm2niix makes of a folder: values (z, y, x) as in the file, spacing, one a series."""
    dcm2niix = pytest.importorskip("dcm2niix")
    nibabel = pytest.importorskip("nibabel")
    command = [dcm2niix.bin, "-o", out, "-f", "%s_%j", "-z", "n", "-b", "n", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    found = []
    # beside an uneven series it writes a resampled one with this ending
    for path in sorted(out.glob("*.nii")):
        if "_Eq" not in path.name:
            image = nibabel.load(path)
            # rows are turned over, because NIfTI counts them upwards
            values = np.asarray(image.dataobj).transpose(2, 1, 0)[:, ::-1]
            found.append((values, image.header.get_zooms()[::-1]))
    return found


@pytest.mark.parametrize("case", SERIES)
def test_dcm2niix_agrees_on_pixels_order_and_spacing(data_folder, tmp_path, case):
    theirs = converted(data_folder / "dicom" / case, tmp_path)
    ours = read_all(data_folder / "dicom" / case)
    assert len(theirs) == len(ours)
    for volume in ours:
        # series have no order in dcm2niix: the one whose values are nearest is meant
        values, spacing = min(theirs, key=lambda t: distance(t[0], volume))
        place = slice(None)
        if case == "duplicate_z":
            # dcm2niix keeps both images of a position, we keep the first
            place = [k for k in range(13) if k != duplicate(values)]
        if case == "uneven":
            # dcm2niix states the first gap and resamples in a second file, we state the median
            assert (spacing[0], volume.spacing[0]) == (2.0, 3.5)
            spacing = (3.5, *spacing[1:])
        np.testing.assert_allclose(volume.data, values[place], atol=1e-3)
        assert volume.spacing == pytest.approx(spacing)


def distance(values, volume):
    same = values.shape == volume.shape
    return np.abs(values - volume.data).max() if same else np.inf


def duplicate(values):
    """Return which slice is the second of its position: the odd one out among the neighbours."""
    steps = np.abs(np.diff(values.astype(float), axis=0)).mean(axis=(1, 2))
    return int(np.argmin(steps)) + 1


def test_dcm2niix_agrees_on_a_real_scan(data_folder, tmp_path):
    ((values, spacing),) = converted(data_folder / "philips" / "S2010", tmp_path)
    volume = read(data_folder / "philips" / "S2010")
    np.testing.assert_array_equal(volume.data, values)
    assert volume.spacing == pytest.approx(spacing)


def test_dcm2niix_agrees_on_the_tilt_of_the_gantry(tmp_path, ramp):
    import pydicom

    folder = write_series(Volume(ramp, spacing=(2, 1, 1), unit="mm"), tmp_path / "s", seed=1)
    for k, path in enumerate(sorted(folder.iterdir())):
        dataset = pydicom.dcmread(path)
        dataset.GantryDetectorTilt = 20
        dataset.ImagePositionPatient = [0, round(2 * k * np.tan(np.radians(20)), 6), 2 * k]
        dataset.save_as(path)
    dcm2niix = pytest.importorskip("dcm2niix")
    (tmp_path / "out").mkdir()
    command = [dcm2niix.bin, "-o", tmp_path / "out", "-z", "n", "-b", "n", str(folder)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "ilt" in said
    assert "Gantry tilt 20.0 degrees" in " ".join(read(folder).notes)


# where SimpleITK's series reader is not right, and why
WRONG = {
    "duplicate_z": "stacks both images of a position and takes 0.5 mm as the spacing",
    "enhanced": "does not read multi-frame files as a series",
    "missing_slice": "takes the mean distance, 2.2 mm, as the spacing",
    "monochrome1": "turns the values over, HU below -2000 and all; the tag concerns display only",
    "no_ipp_anon": "leaves the order to the file names and takes 1 mm as the spacing",
    "uneven": "takes the mean distance, 2.82 mm, as the spacing",
    "two_series": "reads one series at a time",
}


@pytest.mark.needs("SimpleITK")
@pytest.mark.parametrize("case", [case for case in SERIES if case not in WRONG])
def test_simpleitk_agrees_where_it_is_right(data_folder, case):
    import SimpleITK

    reader = SimpleITK.ImageSeriesReader()
    reader.SetFileNames(reader.GetGDCMSeriesFileNames(str(data_folder / "dicom" / case)))
    image = reader.Execute()
    volume = read(data_folder / "dicom" / case)
    # SimpleITK rounds rescaled values to the type of the first slice
    tolerance = 1.0 if case == "per_slice_slope" else 1e-3
    np.testing.assert_allclose(volume.data, SimpleITK.GetArrayFromImage(image), atol=tolerance)
    assert volume.spacing == pytest.approx(image.GetSpacing()[::-1])
