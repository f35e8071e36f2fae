from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest

from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.io import describe, kind_of, read

nibabel = pytest.importorskip("nibabel")


def nifti_file(path, values, spacing=(2, 0.7, 0.5), unit="mm", slope=None):
    image = nibabel.Nifti1Image(values.T, np.diag([*spacing[::-1], 1]))
    image.header.set_xyzt_units(unit)
    if slope is not None:
        image.header.set_slope_inter(slope, -1024)
    nibabel.save(image, path)
    return path


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i2", "f4"])
def test_values_spacing_and_unit_are_those_that_nibabel_wrote(tmp_path, ramp, name, dtype):
    values = np.abs(ramp).astype(dtype)
    path = nifti_file(tmp_path / name, values)
    assert kind_of(path) == "nifti"
    volume = read(path)
    np.testing.assert_array_equal(volume.data, values)
    assert volume.dtype == values.dtype.newbyteorder("=")
    assert (volume.axes, volume.unit, volume.name) == ("zyx", "mm", "a")
    assert volume.spacing == (2, 0.7, 0.5)


@pytest.mark.parametrize(("stored", "name"), [("a.nii", "b.nii.gz"), ("a.nii.gz", "b.nii")])
@pytest.mark.parametrize("slope", [None, 2])
@pytest.mark.parametrize("version", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_a_file_of_the_other_extension_is_read_by_its_content(
    tmp_path, ramp, stored, name, slope, version
):
    image = version(ramp.T, np.diag([0.5, 0.7, 2, 1]))
    image.header.set_xyzt_units("mm")
    image.header.set_slope_inter(slope, slope and 0)
    nibabel.save(image, tmp_path / stored)
    volume = read((tmp_path / stored).rename(tmp_path / name))
    np.testing.assert_array_equal(volume.data, ramp * (slope or 1))
    assert (volume.spacing, volume.unit, volume.name) == ((2, 0.7, 0.5), "mm", "b")


@pytest.mark.needs("SimpleITK")
def test_simpleitk_and_hushpore_read_the_same(tmp_path, ramp):
    import SimpleITK

    image = SimpleITK.GetImageFromArray(ramp)
    image.SetSpacing((0.5, 0.75, 2.0))
    SimpleITK.WriteImage(image, str(tmp_path / "itk.nii.gz"))
    by_nibabel = nifti_file(tmp_path / "nibabel.nii", ramp, (2, 0.75, 0.5))
    for path in (tmp_path / "itk.nii.gz", by_nibabel):
        volume, other = read(path), SimpleITK.ReadImage(str(path))
        np.testing.assert_array_equal(volume.data, ramp)
        np.testing.assert_array_equal(SimpleITK.GetArrayFromImage(other), ramp)
        assert (volume.spacing, volume.unit) == (other.GetSpacing()[::-1], "mm")


def test_slope_and_intercept_are_applied(tmp_path, ramp):
    path = nifti_file(tmp_path / "a.nii", ramp)
    content = bytearray(path.read_bytes())
    content[112:120] = np.array([2, -1024], "<f4").tobytes()
    path.write_bytes(content)
    volume = read(path)
    assert volume.dtype == np.float32
    np.testing.assert_array_equal(volume.data, ramp * 2.0 - 1024)


def test_time_comes_first(tmp_path, ramp):
    values = np.stack([ramp, ramp + 1, ramp + 2, ramp + 3])
    image = nibabel.Nifti1Image(values.T, np.eye(4))
    nibabel.save(image, tmp_path / "a.nii")
    volume = read(tmp_path / "a.nii")
    assert volume.axes == "tzyx"
    np.testing.assert_array_equal(volume.data, values)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_a_nifti_file_that_was_cut_is_told(tmp_path, ramp, name):
    path = nifti_file(tmp_path / name, ramp)
    content = path.read_bytes()
    path.write_bytes(content[: int(0.8 * len(content))])
    with pytest.raises(InputError):
        read(path)


def test_flipped_bits_of_nifti_give_an_image_or_a_clear_error(tmp_path, ramp, rng):
    path = nifti_file(tmp_path / "a.nii", ramp)
    content = np.frombuffer(path.read_bytes(), np.uint8)
    for _ in range(150):
        broken = content.copy()
        broken[rng.integers(0, 352, 3)] ^= rng.integers(1, 255, 3, dtype=np.uint8)
        path.write_bytes(broken.tobytes())
        try:
            read(path)
        except HushporeError:
            continue


def test_without_nibabel_the_command_that_installs_it_is_given(tmp_path, ramp, monkeypatch):
    path = nifti_file(tmp_path / "a.nii", ramp)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[nifti\]'"):
        read(path)


nrrd = pytest.importorskip("nrrd")

DIRECTIONS = np.diag([0.5, 0.7, 2.0])


def nrrd_file(path, values, **header):
    nrrd.write(str(path), values, header, index_order="C")
    return path


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
@pytest.mark.parametrize("name", ["a.nrrd", "a.nhdr"])
@pytest.mark.parametrize("dtype", ["u1", "<i2", ">u2", "i4", "f4", "f8"])
def test_values_and_voxel_size_are_those_that_pynrrd_wrote(tmp_path, ramp, encoding, name, dtype):
    values = np.abs(ramp).astype(dtype)
    path = nrrd_file(
        tmp_path / name, values, encoding=encoding, space="left-posterior-superior",
        **{"space directions": DIRECTIONS, "space origin": [1.0, 2, 3], "space units": ["um"] * 3},
    )  # fmt: skip
    assert kind_of(path) == "nrrd"
    volume = read(path)
    np.testing.assert_array_equal(volume.data, values)
    np.testing.assert_array_equal(volume.data, nrrd.read(str(path), index_order="C")[0])
    assert volume.dtype == values.dtype.newbyteorder("=")
    assert (volume.spacing, volume.unit, volume.origin) == ((2, 0.7, 0.5), "um", (3, 2, 1))
    assert volume.notes == []


def test_spacings_without_a_unit_are_millimetres_and_said(tmp_path, ramp):
    volume = read(nrrd_file(tmp_path / "a.nrrd", ramp, spacings=[0.5, 0.7, 2.0]))
    assert (volume.spacing, volume.unit) == ((2, 0.7, 0.5), "mm")
    assert volume.notes == ["The header gives no unit; millimetres are assumed, as in 3D Slicer."]


def test_without_a_voxel_size_it_is_unknown(tmp_path, ramp):
    volume = read(nrrd_file(tmp_path / "a.nrrd", ramp))
    assert volume.unit == "pixel"
    assert "no voxel size" in volume.notes[0]


def test_an_oblique_volume_has_the_lengths_of_its_directions(tmp_path, ramp):
    turn = np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1.0]])
    header = {"space": "left-posterior-superior", "space directions": (DIRECTIONS @ turn)}
    volume = read(nrrd_file(tmp_path / "a.nrrd", ramp, **header))
    assert volume.spacing == pytest.approx((2, 0.7, 0.5))
    assert "oblique" in volume.notes[0]


def test_information_decodes_nothing(tmp_path, ramp, monkeypatch):
    path = nrrd_file(tmp_path / "a.nrrd", ramp, encoding="gzip")

    def refuse(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr("hushpore.io.raw._inflate", refuse)
    assert describe(path)[0].shape == (5, 6, 7)


def test_several_values_a_voxel_are_refused(tmp_path, rng):
    values = rng.random((5, 6, 7, 3)).astype("f4")
    path = nrrd_file(tmp_path / "a.nrrd", values, kinds=["vector", "domain", "domain", "domain"])
    with pytest.raises(InputError, match="3 values a voxel"):
        read(path)


@pytest.mark.parametrize("encoding", ["bzip2", "txt"])
def test_other_encodings_are_refused_in_words(tmp_path, ramp, encoding):
    path = tmp_path / "a.nrrd"
    kind = {"txt": "ASCII"}.get(encoding, encoding)
    nrrd_file(path, ramp, encoding=kind)
    with pytest.raises(InputError, match="raw and gzip are read"):
        read(path)


@pytest.mark.parametrize("name", ["../secret.raw", "/etc/passwd", "LIST", "slice%03d.raw 1 5 1"])
def test_a_header_that_leads_elsewhere_is_refused(tmp_path, ramp, name):
    (tmp_path / "scan").mkdir()
    path = nrrd_file(tmp_path / "scan" / "a.nhdr", ramp, encoding="raw")
    text = path.read_bytes().replace(b"a.raw", name.encode())
    path.write_bytes(text)
    (tmp_path / "secret.raw").write_bytes(ramp.tobytes())
    with pytest.raises(InputError):
        read(path)


@pytest.mark.parametrize("field", ["data file", "datafile"])
@pytest.mark.parametrize("files", ["LIST\ns0.raw\ns1.raw", "LIST 2\ns 0.raw\ns 1.raw"])
def test_an_nrrd_header_with_a_list_of_files_is_refused_as_such(tmp_path, ramp, field, files):
    path = nrrd_file(tmp_path / "a.nhdr", ramp, encoding="raw")
    text = path.read_text()
    path.write_text(text[: text.index("data file")] + f"{field}: {files}\n")
    with pytest.raises(InputError, match="its data must be one file in the same folder"):
        read(path)


def test_an_nrrd_file_that_was_cut_is_told(tmp_path, ramp):
    for encoding in ("raw", "gzip"):
        path = nrrd_file(tmp_path / f"{encoding}.nrrd", ramp, encoding=encoding)
        path.write_bytes(path.read_bytes()[:-40])
        with pytest.raises(InputError, match="incomplete"):
            read(path)


def test_a_compressed_data_file_with_a_header_of_its_own_is_refused(tmp_path, ramp):
    path = nrrd_file(tmp_path / "a.nhdr", ramp, encoding="gzip")
    (data,) = (each for each in tmp_path.iterdir() if each != path)
    np.testing.assert_array_equal(read(path).data, ramp)
    # as a NIfTI file has
    data.write_bytes(gzip.compress(bytes(352) + ramp.tobytes()))
    with pytest.raises(InputError, match="more compressed data than its header describes"):
        read(path)


@pytest.mark.parametrize(
    ("skip", "front", "encoding"),
    [("byte skip: 9", b"123456789", "raw"), ("byte skip: -1", b"any header", "raw"),
     ("line skip: 2", b"a line\nanother\n", "raw"), ("line skip: 2", b"a\n\n", "gzip")],
)  # fmt: skip
def test_lines_and_bytes_before_the_values_are_skipped(tmp_path, ramp, skip, front, encoding):
    path = skipped(tmp_path, ramp, skip, front, encoding)
    np.testing.assert_array_equal(read(path).data, ramp)
    np.testing.assert_array_equal(nrrd.read(str(path), index_order="C")[0], ramp)


@pytest.mark.parametrize(
    ("skip", "words"),
    [("byte skip: -1", "-1, which is allowed for the encoding raw only"),
     ("byte skip: 9", "9, which cannot be read"), ("line skip: -2", "found -2 and 0")],
)  # fmt: skip
def test_a_skip_that_the_definition_forbids_is_refused(tmp_path, ramp, skip, words):
    with pytest.raises(InputError, match=words):
        read(skipped(tmp_path, ramp, skip, b"", "gzip"))


def skipped(folder, values, skip, front, encoding):
    """Write a volume with something before its values."""
    content = gzip.compress(values.tobytes()) if encoding == "gzip" else values.tobytes()
    (folder / "a.dat").write_bytes(front + content)
    sizes = " ".join(map(str, reversed(values.shape)))
    (folder / "a.nhdr").write_text(
        f"NRRD0004\ntype: int16\ndimension: 3\nendian: little\nencoding: {encoding}\n"
        f"sizes: {sizes}\n{skip}\ndata file: a.dat\n"
    )
    return folder / "a.nhdr"


def test_flipped_bits_of_nrrd_give_an_image_or_a_clear_error(tmp_path, ramp, rng):
    path = nrrd_file(tmp_path / "a.nrrd", ramp, spacings=[0.5, 0.7, 2.0])
    content = np.frombuffer(path.read_bytes(), np.uint8)
    for _ in range(150):
        broken = content.copy()
        broken[rng.integers(0, 250, 3)] ^= rng.integers(1, 255, 3, dtype=np.uint8)
        path.write_bytes(broken.tobytes())
        try:
            read(path)
        except HushporeError:
            continue


def test_without_pynrrd_the_command_that_installs_it_is_given(tmp_path, ramp, monkeypatch):
    path = nrrd_file(tmp_path / "a.nrrd", ramp)
    monkeypatch.setitem(sys.modules, "nrrd", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[formats\]'"):
        read(path)


@pytest.mark.needs("SimpleITK")
def test_simpleitk_writes_what_is_read(tmp_path, ramp):
    import SimpleITK

    image = SimpleITK.GetImageFromArray(ramp)
    image.SetSpacing((0.5, 0.7, 2.0))
    image.SetOrigin((1, 2, 3))
    for compressed in (False, True):
        SimpleITK.WriteImage(image, str(tmp_path / "a.nrrd"), compressed)
        volume = read(tmp_path / "a.nrrd")
        np.testing.assert_array_equal(volume.data, ramp)
        assert (volume.spacing, volume.origin) == ((2, 0.7, 0.5), (3, 2, 1))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((3, 1, 5, 6, 7), "czyx"), ((3, 2, 5, 6, 7), "ctzyx"), ((1, 2, 5, 6, 7), "tzyx")],
)
def test_components_of_a_voxel_are_channels_and_no_times(tmp_path, rng, shape, axes):
    values = rng.integers(0, 99, shape).astype("i2")
    nibabel = pytest.importorskip("nibabel")
    nibabel.save(nibabel.Nifti1Image(values.T, np.eye(4)), tmp_path / "a.nii")
    volume = read(tmp_path / "a.nii")
    assert volume.axes == axes
    np.testing.assert_array_equal(volume.data, values.squeeze())


def nrrd_by_hand(path, values, lines, sizes, encoding="utf-8"):
    head = f"NRRD0005\ntype: short\ndimension: {len(sizes)}\nendian: little\nencoding: raw\n"
    head += f"sizes: {' '.join(map(str, sizes))}\n{lines}\n\n"
    path.write_bytes(head.encode(encoding) + values.astype("<i2").tobytes())
    return read(path)


ALONG_AXES = "(0.5,0,0) (0,0.7,0) (0,0,2)"


@pytest.mark.parametrize(
    "lines",
    [
        f"space: LPS\nkinds: list domain domain domain\nspace directions: none {ALONG_AXES}",
        f"space: LPS\nspace directions: none {ALONG_AXES}",
        "kinds: stub space space space\nspacings: nan 0.5 0.7 2",
    ],
)
def test_an_axis_that_is_not_spatial_is_not_taken_for_x(tmp_path, ramp, lines):
    volume = nrrd_by_hand(tmp_path / "a.nrrd", ramp, lines, [1, 7, 6, 5])
    assert (volume.axes, volume.spacing, volume.unit) == ("zyx", (2, 0.7, 0.5), "mm")
    np.testing.assert_array_equal(volume.data, ramp)


def test_an_axis_that_is_not_spatial_has_several_values_a_voxel(tmp_path, ramp):
    lines = f"space: LPS\nspace directions: none {ALONG_AXES}"
    with pytest.raises(InputError, match="7 values a voxel"):
        nrrd_by_hand(tmp_path / "a.nrrd", ramp, lines, [7, 6, 5, 1])


@pytest.mark.parametrize(
    ("lines", "sizes", "axes", "spacing"),
    [
        ("kinds: domain domain time\nspacings: 0.5 0.7 3", [7, 6, 5], "tyx", (0.7, 0.5)),
        ("kinds: space space space list", [7, 3, 2, 5], "tzyx", (1, 1, 1)),
        ("", [7, 3, 2, 5], "tzyx", (1, 1, 1)),
    ],
)
def test_an_axis_behind_the_spatial_ones_is_time(tmp_path, ramp, lines, sizes, axes, spacing):
    lines = lines or "content: a"
    volume = nrrd_by_hand(tmp_path / "a.nrrd", ramp, lines, sizes)
    assert (volume.axes, volume.spacing) == (axes, spacing)
    np.testing.assert_array_equal(volume.data, ramp.reshape(sizes[::-1]))


@pytest.mark.parametrize(("sign", "encoding"), [("µ", "utf-8"), ("µ", "latin-1"), ("μ", "utf-8")])
@pytest.mark.parametrize(
    "field", ["spacings: 0.5 0.7 2\nunits: {0} {0} {0}",
              "space dimension: 3\nspace directions: (0.5,0,0) (0,0.7,0) (0,0,2)\n"
              "space units: {0} {0} {0}"],
)  # fmt: skip
def test_the_sign_of_micro_is_read_in_any_encoding(tmp_path, ramp, sign, encoding, field):
    lines = field.format(f'"{sign}m"')
    volume = nrrd_by_hand(tmp_path / "a.nrrd", ramp, lines, [7, 6, 5], encoding)
    assert (volume.spacing, volume.unit, volume.notes) == ((2, 0.7, 0.5), "um", [])
    np.testing.assert_array_equal(volume.data, ramp)
