import numpy as np
import pydicom
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hushpore.base.errors import InputError, OutputError
from hushpore.base.volume import Volume
from hushpore.io import read
from hushpore.io.dicom import write_series


@pytest.fixture
def volume(ramp):
    return Volume(ramp, spacing=(2.0, 0.7, 0.5), unit="mm", origin=(5.0, -1.0, 3.0), name="ramp")


def test_values_and_geometry_survive_a_round_trip(volume, tmp_path):
    back = read(write_series(volume, tmp_path / "s"))
    np.testing.assert_array_equal(back.data, volume.data)
    assert (back.spacing, back.unit, back.origin) == (volume.spacing, "mm", volume.origin)
    assert back.notes == []


@given(
    values=arrays.arrays(
        st.sampled_from([np.bool_, np.uint8, np.int16, np.uint16, np.int32, np.float32]),
        arrays.array_shapes(min_dims=3, max_dims=3, max_side=4),
    ),
    spacing=st.tuples(*[st.floats(1e-3, 1e3)] * 3),
)
@example(values=np.full((2, 2, 2), 1e-38, np.float32), spacing=(1.0, 1.0, 1.0))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_values_come_back_within_a_step_of_their_range(tmp_path_factory, values, spacing):
    folder = tmp_path_factory.mktemp("series") / "s"
    if values.dtype.kind == "f":
        values = np.nan_to_num(values, posinf=1e6, neginf=-1e6).clip(-1e6, 1e6)
    back = read(write_series(Volume(values, spacing=spacing, unit="mm"), folder))
    low, high = float(values.min()), float(values.max())
    exact = values.dtype.kind in "bui" and high - low <= 65535
    step = 0 if exact else (high - low) / 65535
    original = values.astype(float).reshape(back.shape)
    np.testing.assert_allclose(back.data.astype(float), original, rtol=1e-6, atol=0.51 * step)
    assert back.spacing == pytest.approx(spacing[-back.n_spatial :], rel=1e-9)


def test_the_same_seed_gives_the_same_bytes_and_none_gives_new_identifiers(volume, tmp_path):
    folders = [write_series(volume, tmp_path / name, seed=seed) for name, seed in
               (("a", 7), ("b", 7), ("c", None), ("d", None))]  # fmt: skip
    a, b, c, d = ([path.read_bytes() for path in sorted(f.iterdir())] for f in folders)
    assert a == b
    assert c != d


def test_a_name_is_one_line_of_what_a_description_may_hold(volume, tmp_path):
    named = volume.replace(volume.data, name="C:\\scans\\" + 70 * "a" + "\n\x1b")
    folder = write_series(named, tmp_path / "a")
    described = pydicom.dcmread(folder / "slice_0001.dcm").SeriesDescription
    assert described == "C:_scans_" + 54 * "a" + "…"
    write_series(named.replace(volume.data, name="\x1b"), folder, overwrite=True)
    assert pydicom.dcmread(folder / "slice_0001.dcm").SeriesDescription == "_x1b"


def test_pydicom_finds_nothing_to_warn_of(volume, tmp_path):
    for path in write_series(volume, tmp_path / "s").iterdir():
        dataset = pydicom.dcmread(path)  # warnings are errors in the tests
        assert dataset.SOPClassUID == "1.2.840.10008.5.1.4.1.1.2"
        assert dataset.file_meta.MediaStorageSOPInstanceUID == dataset.SOPInstanceUID
        for name in ("PatientName", "PatientID", "PatientBirthDate", "StudyDate", "KVP"):
            assert name in dataset
            assert not dataset[name].value


def test_other_units_of_length_become_millimetres(ramp, tmp_path):
    volume = Volume(ramp, spacing=(50, 20, 20), unit="um", origin=(100, 0, 0))
    back = read(write_series(volume, tmp_path / "s"))
    assert back.spacing == pytest.approx((0.05, 0.02, 0.02))
    assert back.origin == pytest.approx((0.1, 0, 0))


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        (Volume(np.zeros((4, 5)), unit="mm"), "axes zyx"),
        (Volume(np.zeros((2, 4, 5))), "unit of length"),
        (Volume(np.full((2, 4, 5), np.nan), unit="mm"), "NaN"),
    ],
)
def test_what_dicom_cannot_hold_is_refused(tmp_path, volume, words):
    with pytest.raises(InputError, match=words):
        write_series(volume, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_anything_in_it_is_kept_unless_overwriting_its_own_series(volume, tmp_path):
    folder = write_series(volume, tmp_path / "s")
    with pytest.raises(OutputError, match="already exists"):
        write_series(volume, folder)
    smaller = volume.replace(volume.data[:2])
    write_series(smaller, folder, overwrite=True)
    assert len(list(folder.iterdir())) == 2
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"notes\.txt"):
        write_series(volume, folder, overwrite=True)
    assert len(list(folder.iterdir())) == 3
