"""HDF5 as h5py writes it: any program's, NeXus, Data Exchange."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

import hushpore
from hushpore.base.errors import HushporeError, InputError, MissingPackageError
from hushpore.io import describe, kind_of, read, read_all

h5py = pytest.importorskip("h5py")


@pytest.mark.parametrize("dtype", ["?", "u1", ">u2", "<i2", "f4", "f8"])
@pytest.mark.parametrize("how", [{}, {"chunks": (2, 3, 4), "compression": "gzip"}])
def test_values_are_those_that_h5py_wrote(tmp_path, ramp, dtype, how):
    values = ramp.astype(dtype)
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("volume", data=values, **how)
    assert kind_of(path) == "hdf5"
    volume = read(path)
    np.testing.assert_array_equal(volume.data, values)
    assert volume.dtype == values.dtype.newbyteorder("=")
    assert (volume.name, volume.axes) == ("scan", "zyx")
    assert "no voxel size" in volume.notes[0]


@pytest.mark.parametrize(
    "key",
    [3, -1, (2, slice(1, 4)), slice(4, 0, -2), (..., 5), (slice(None), 2), (slice(9, 2),),
     (1, slice(None, None, -1), slice(6, None, -3))],
)  # fmt: skip
@pytest.mark.parametrize("chunks", [None, (2, 3, 4)])
def test_a_part_is_that_of_the_array(tmp_path, ramp, key, chunks):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file.create_dataset("volume", data=ramp, chunks=chunks)
    (volume,) = read_all(tmp_path / "scan.h5", lazy=True)
    np.testing.assert_array_equal(volume.data[key], ramp[key])


def test_slices_one_by_one_decode_each_layer_of_chunks_once(tmp_path, ramp, monkeypatch):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file.create_dataset("volume", data=ramp, chunks=(2, 6, 7))
    (volume,) = read_all(tmp_path / "scan.h5", lazy=True)
    opened = []
    original = h5py.File.__init__

    def counted(self, *args, **options):
        opened.append(args)
        original(self, *args, **options)

    monkeypatch.setattr(h5py.File, "__init__", counted)
    for z in range(5):
        np.testing.assert_array_equal(volume.data[z], ramp[z])
    assert len([args for args in opened if args[0] == tmp_path / "scan.h5"]) == 3


@pytest.mark.parametrize(
    ("attributes", "spacing", "unit"),
    [
        ({"element_size_um": [2, 0.7, 0.5]}, (2, 0.7, 0.5), "um"),
        ({"element_size_um": 5.0}, (5, 5, 5), "um"),
        ({"voxel_size": [2, 0.7, 0.5], "unit": "mm"}, (2, 0.7, 0.5), "mm"),
        ({"pixel_size": 1.3, "pixel_size_units": "micron"}, (1.3, 1.3, 1.3), "um"),
        ({"pixel_size": 1.3}, (1, 1, 1), "pixel"),
        ({"voxel_size": [0, 1, 1], "unit": "mm"}, (1, 1, 1), "pixel"),
    ],
)
def test_the_voxel_size_is_that_of_the_attributes(tmp_path, ramp, attributes, spacing, unit):
    for holder in ("volume", "/"):
        with h5py.File(tmp_path / "scan.h5", "w") as file:
            file.create_dataset("volume", data=ramp)
            file[holder].attrs.update(attributes)
        volume = read(tmp_path / "scan.h5")
        assert (volume.spacing, volume.unit) == (spacing, unit)


def test_axes_of_nexus_give_the_voxel_size(tmp_path, ramp):
    with h5py.File(tmp_path / "scan.nxs", "w") as file:
        data = file.create_group("entry/data")
        data.attrs.update({"NX_class": "NXdata", "signal": "data", "axes": ["z", "y", "x"]})
        data["data"] = ramp
        for name, length, step in (("z", 5, 0.002), ("y", 6, 0.0007), ("x", 7, 0.0005)):
            data[name] = 3 + step * np.arange(length)
            data[name].attrs["units"] = "mm"
    volume = read(tmp_path / "scan.nxs")
    assert volume.spacing == pytest.approx((0.002, 0.0007, 0.0005))
    assert volume.unit == "mm"


def test_all_images_are_series_and_that_of_data_exchange_comes_first(tmp_path, ramp, rng):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["filtered/large"] = rng.random((9, 9, 9))
        file["exchange/data"] = ramp
        file["exchange/data_white"] = ramp
        file["series"] = rng.random((2, 3, 8, 9))
        file["table"] = rng.random((100, 3))
        file["names"] = np.array([b"a", b"b"])
        file["exchange/link"] = h5py.ExternalLink("/etc/passwd", "/x")
    volumes = describe(tmp_path / "scan.h5")
    assert [volume.name for volume in volumes] == ["exchange/data", "filtered/large", "series"]
    assert [volume.axes for volume in volumes] == ["zyx", "zyx", "tzyx"]
    assert "Left out: /exchange/data_white (flat or dark field)." in volumes[0].notes
    assert hushpore.read(tmp_path / "scan.h5", series="exchange").shape == (5, 6, 7)


def test_axes_of_length_one_are_dropped_and_labels_name_the_others(tmp_path, rng):
    values = rng.random((1, 3, 5, 6, 7, 1)).astype("f4")
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        data = file.create_dataset("volume", data=values, chunks=(1, 1, 2, 6, 7, 1))
        for axis, label in enumerate("tczyxs"):
            data.dims[axis].label = label
    volume = read(tmp_path / "scan.h5")
    assert volume.axes == "czyx"
    np.testing.assert_array_equal(volume.data, values[0, ..., 0])


def named_by_labels(data, names):
    for axis, name in enumerate(names):
        data.dims[axis].label = name


def named_by_tags(data, names):
    data.attrs["axistags"] = json.dumps({"axes": [{"key": name} for name in names]})


def named_by_nexus(data, names):
    data.parent.attrs.update({"signal": "data", "axes": list(names)})


def named_by_scales(data, names):
    for axis, name in enumerate(names):
        scale = data.parent.create_dataset(name, data=3 + 0.5 * np.arange(data.shape[axis]))
        scale.attrs["units"] = "um"
        scale.make_scale()
        data.dims[axis].attach_scale(scale)


def named_by_a_word(data, names):
    data.attrs["axes"] = names


@pytest.mark.parametrize("chunks", [None, (2, 3, 4, 2)])
@pytest.mark.parametrize("names", ["zyxc", "xyzc", "tyzx", "czyx"])
@pytest.mark.parametrize(
    "name", [named_by_labels, named_by_tags, named_by_nexus, named_by_scales, named_by_a_word]
)
def test_axes_have_the_names_that_the_file_gives(tmp_path, rng, name, names, chunks):
    stored = rng.random((5, 6, 7, 2)).astype("f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        name(file.create_dataset("entry/data", data=stored, chunks=chunks), names)
    volume = describe(tmp_path / "a.h5")[-1]
    axes = "".join(sorted(names, key="tczyx".index))
    truth = stored.transpose([names.index(axis) for axis in axes])
    assert volume.axes == axes
    np.testing.assert_array_equal(volume.data[...], truth)
    for key in [1, (slice(None), 2), (0, slice(None, None, -2), slice(1, 4)), (..., -1)]:
        np.testing.assert_array_equal(volume.data[key], truth[key])
    np.testing.assert_array_equal(read(tmp_path / "a.h5").data, truth)
    if name is named_by_scales:
        assert (volume.spacing, volume.unit) == ((0.5, 0.5, 0.5), "um")


def test_a_voxel_size_follows_its_axes(tmp_path, rng):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("data", data=rng.random((7, 6, 5)))
        data.attrs.update({"axes": "xyz", "element_size_um": [0.5, 0.7, 2.0]})
    volume = read(tmp_path / "a.h5")
    assert (volume.shape, volume.spacing) == ((5, 6, 7), (2, 0.7, 0.5))


@pytest.mark.parametrize(
    ("shape", "dtype", "axes"),
    [
        ((20, 30, 2), "f4", "cyx"), ((20, 30, 3), "f4", "cyx"), ((5, 20, 30, 2), "u1", "czyx"),
        ((5, 20, 30, 4), "f8", "czyx"), ((2, 5, 20, 30, 2), "f4", "tczyx"),
        ((20, 9, 3), "f4", "zyx"), ((2, 3, 20, 30), "u1", "tzyx"),
    ],
)  # fmt: skip
def test_a_few_values_for_each_pixel_are_channels(tmp_path, rng, shape, dtype, axes):
    stored = (100 * rng.random(shape)).astype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data"] = stored
    volume = read(tmp_path / "a.h5")
    assert volume.axes == axes
    truth = np.moveaxis(stored, -1, axes.index("c")) if "c" in axes else stored
    np.testing.assert_array_equal(volume.data, truth)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [((20, 30, 3), {}), ((5, 20, 30, 4), {}), ((3, 20, 30), {"IMAGE_SUBCLASS": "IMAGE_TRUECOLOR"})],
)
def test_colour_pictures_are_refused_and_left_out(tmp_path, ramp, shape, attributes):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["picture"] = np.ones(shape, np.uint8)
        file["picture"].attrs.update(attributes)
    with pytest.raises(InputError, match=r"/picture \(a colour picture; grey values are needed\)"):
        read(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["scan"] = ramp
    np.testing.assert_array_equal(read(tmp_path / "a.h5").data, ramp)


def imaris(path, values, extent, unit="um", padded=(8, 8, 8), **more):
    """A file as Imaris writes it: padded to whole chunks, with its lengths as single letters."""

    def letters(value):
        return np.array([letter.encode("latin-1") for letter in str(value)], "S1")

    stored = np.zeros(padded, values.dtype)
    stored[tuple(map(slice, values.shape))] = values
    with h5py.File(path, "w") as file:
        for level in (0, 1):
            group = file.create_group(f"DataSet/ResolutionLevel {level}/TimePoint 0/Channel 0")
            kept = stored[:: level + 1]
            group.create_dataset("Data", data=kept, chunks=(2, 4, 4), compression="gzip")
            for axis, n in zip("ZYX", values[:: level + 1].shape, strict=True):
                group.attrs[f"ImageSize{axis}"] = letters(more.get(axis, n))
        image = file.create_group("DataSetInfo/Image")
        for axis, length in enumerate(extent):
            image.attrs[f"ExtMin{axis}"] = letters(-1)
            image.attrs[f"ExtMax{axis}"] = letters(length - 1)
        image.attrs["Unit"] = letters(unit)
        file.create_dataset("Thumbnail/Data", data=np.zeros((256, 1024), "u1"))
    return path


@pytest.mark.parametrize(("unit", "known"), [("um", "um"), ("mm", "mm"), ("ells", None)])
def test_an_image_of_imaris_has_its_size_without_padding(tmp_path, ramp, unit, known):
    (volume,) = describe(imaris(tmp_path / "a.ims", ramp, (3.5, 4.2, 10), unit))
    np.testing.assert_array_equal(volume.data[...], ramp)
    np.testing.assert_array_equal(volume.data[-1], ramp[-1])
    np.testing.assert_array_equal(read(tmp_path / "a.ims").data, ramp)
    if known:
        assert (volume.unit, volume.notes) == (known, [])
        assert volume.spacing == pytest.approx((2, 0.7, 0.5))
    else:
        assert "2 x 0.7 x 0.5 in the unknown unit 'ells'" in volume.notes[0]


def test_an_image_of_imaris_that_is_larger_than_its_data_is_refused(tmp_path, ramp):
    with pytest.raises(InputError, match="damaged"):
        read(imaris(tmp_path / "a.ims", ramp, (3, 3, 3), X=9))


@pytest.mark.parametrize("order", ["<", ">"])
def test_values_of_bigdataviewer_have_no_sign(tmp_path, rng, order):
    values = rng.integers(0, 65536, (4, 6, 7)).astype("u2")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["t00000/s00/0/cells"] = values.astype("i2").astype(f"{order}i2")
        file["t00000/s00/1/cells"] = values[::2].astype("i2")
        file["s00/resolutions"] = np.ones((2, 3))
    (volume,) = read_all(tmp_path / "a.h5")
    assert volume.dtype == np.uint16
    np.testing.assert_array_equal(volume.data, values)


@pytest.mark.parametrize("name", ["exchange/theta", "exchange/rotation_angle", "theta"])
def test_projections_are_refused_in_words(tmp_path, ramp, name):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["exchange/data"] = ramp
        file[name] = np.linspace(0, 180, 5)
    with pytest.raises(InputError, match=r"projections .* are no slices\. Reconstruct them first"):
        read(tmp_path / "scan.h5")


def test_values_in_other_files_are_left_out_unless_they_lie_beside(tmp_path, ramp):
    folder = tmp_path / "scan"
    folder.mkdir()
    for place in (folder, tmp_path):
        with h5py.File(place / "part.h5", "w") as file:
            file["data"] = ramp
    for name, part in (("good.h5", "part.h5"), ("bad.h5", str(tmp_path / "part.h5"))):
        layout = h5py.VirtualLayout(ramp.shape, ramp.dtype)
        layout[...] = h5py.VirtualSource(part, "data", ramp.shape)
        with h5py.File(folder / name, "w") as file:
            file.create_virtual_dataset("data", layout)
    np.testing.assert_array_equal(read(folder / "good.h5").data, ramp)
    with pytest.raises(InputError, match="its values lie in other files"):
        read(folder / "bad.h5")


def test_a_data_set_without_values_is_said(tmp_path):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file.create_dataset("volume", (4, 9, 9), "u2", chunks=(1, 9, 9))
    assert any("No values were ever written" in note for note in read(tmp_path / "scan.h5").notes)


def test_a_few_bytes_that_state_a_large_image_are_refused(tmp_path):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file.create_dataset("volume", (40_000, 9_000, 9_000), "f8", chunks=(1, 9_000, 9_000))
    with pytest.raises(HushporeError, match="to fill the memory"):
        describe(tmp_path / "scan.h5")


def test_a_file_without_an_image_says_what_is_needed(tmp_path):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["table"] = np.zeros((100, 3))
    with pytest.raises(InputError, match="expected a data set of numbers with 2 to 5 axes"):
        read(tmp_path / "scan.h5")


def test_damaged_files_give_an_image_or_a_clear_error(tmp_path, ramp, rng):
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("volume", data=ramp, chunks=(2, 3, 4), compression="gzip")
        file["volume"].attrs["element_size_um"] = [2, 0.7, 0.5]
    content = path.read_bytes()
    for number in range(150):
        broken = bytearray(content)
        for at in rng.integers(8, len(content), 3):
            broken[at] ^= int(rng.integers(1, 255))
        path.write_bytes(bytes(broken)[: None if number % 3 else rng.integers(9, len(content))])
        try:
            read(path)
        except HushporeError:
            continue


def test_without_h5py_the_command_that_installs_it_is_given(tmp_path, ramp, monkeypatch):
    with h5py.File(tmp_path / "scan.h5", "w") as file:
        file["volume"] = ramp
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[formats\]'"):
        read(tmp_path / "scan.h5")


def test_half_a_file_is_refused_without_the_words_of_the_library(tmp_path, ramp):
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file["volume"] = ramp
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == (
        "scan.h5 is damaged or incomplete and cannot be read as HDF5. Copy or export it again."
    )


def test_a_compression_that_is_not_installed_names_its_package(tmp_path, ramp):
    values = ramp.astype("<u2")
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk(values.shape)
        # a number that no compression has
        how.set_filter(31_999, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple(values.shape)
        stored = h5py.h5d.create(file.id, b"volume", h5py.h5t.STD_U16LE, space, how)
        stored.write_direct_chunk((0, 0, 0), values.tobytes(), 0)
    with pytest.raises(InputError, match=r"by a method that h5py lacks.*pip install hdf5plugin"):
        read(path)
