from __future__ import annotations

import re
import uuid

import numpy as np
import pytest
import tifffile

from hushpore.base.errors import InputError
from hushpore.io import read, read_all

SCAN = np.arange(24 * 6 * 7, dtype=np.uint16).reshape(24, 6, 7)
NAMES = [f"s{i}.ome.tif" for i in range(4)]


def write(folder, names, uuids=None):
    """Write the scan in equal parts, each with the metadata of all of them."""
    uuids = uuids or [f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}" for name in names]
    count = 24 // len(names)
    planes = "".join(
        f'<TiffData FirstZ="{i * count + k}" FirstC="0" FirstT="0" IFD="{k}" PlaneCount="1">'
        f'<UUID FileName="{name}">{own}</UUID></TiffData>'
        for i, (name, own) in enumerate(zip(names, uuids, strict=True))
        for k in range(count)
    )
    sizes = "".join(f' PhysicalSize{axis}="{2 + (axis == "Z")}"' for axis in "XYZ")
    for i, (name, own) in enumerate(zip(names, uuids, strict=True)):
        xml = (
            f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="{own}">'
            '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" '
            f'SizeX="7" SizeY="6" SizeZ="24" SizeC="1" SizeT="1"{sizes}>{planes}</Pixels>'
            "</Image></OME>"
        )
        with tifffile.TiffWriter(folder / name) as file:
            for k in range(count):
                described = xml if k == 0 else None
                file.write(
                    SCAN[i * count + k], description=described, metadata=None, contiguous=False
                )
    return folder


@pytest.mark.parametrize("count", [2, 4, 24])
@pytest.mark.parametrize("opened", ["first", "last", "folder"])
def test_a_whole_set_is_one_volume(tmp_path, count, opened):
    names = [f"s{i:02d}.ome.tif" for i in range(count)]
    write(tmp_path, names)
    path = {"first": tmp_path / names[0], "last": tmp_path / names[-1], "folder": tmp_path}[opened]
    (volume,) = read_all(path)
    np.testing.assert_array_equal(volume.data, SCAN)
    assert (volume.spacing, volume.unit) == ((3, 2, 2), "um")


@pytest.mark.parametrize("missing", [1, 3])
@pytest.mark.parametrize("opened", [0, 2])
def test_a_missing_file_is_named(tmp_path, missing, opened):
    (write(tmp_path, NAMES) / NAMES[missing]).unlink()
    words = f"{NAMES[opened]} is one file of 4, and {NAMES[missing]} is not beside it"
    with pytest.raises(InputError, match=re.escape(words)):
        read(tmp_path / NAMES[opened])


def test_renamed_files_are_asked_for_by_their_names(tmp_path):
    write(tmp_path, NAMES)
    for i, name in enumerate(NAMES):
        (tmp_path / name).rename(tmp_path / f"renamed{i}.ome.tif")
    with pytest.raises(InputError, match=r"renamed2.* refers to s0.* with their original names"):
        read(tmp_path / "renamed2.ome.tif")


def test_one_file_may_have_another_name(tmp_path):
    write(tmp_path, ["a.ome.tif"])
    (tmp_path / "a.ome.tif").rename(tmp_path / "b.ome.tif")
    np.testing.assert_array_equal(read(tmp_path / "b.ome.tif").data, SCAN)


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.95])
def test_a_damaged_file_is_named_and_not_the_opened_one(tmp_path, share):
    damaged = write(tmp_path, NAMES) / NAMES[2]
    content = damaged.read_bytes()
    damaged.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match=r"s0\.ome\.tif is one file of 4, and s2\.ome\.tif is dam"):
        read(tmp_path / NAMES[0])


@pytest.mark.parametrize("same", ["urn:uuid:1", ""])
def test_files_with_one_uuid_are_refused_instead_of_repeated(tmp_path, same):
    write(tmp_path, NAMES, [same] * 4)
    with pytest.raises(InputError, match="give 4 files the same UUID"):
        read(tmp_path / NAMES[0])


def pages(path, *, palette=False, copies=(), tags=(), big=False):
    """Write 12 pages, with a colour table, smaller copies and further tags for each."""
    planes = np.arange(12 * 40 * 44, dtype=np.uint16).reshape(12, 40, 44)
    colours = {"photometric": "minisblack"}
    if palette:
        planes = planes.astype(np.uint8)
        table = np.tile(np.arange(256, dtype=np.uint16), (3, 1))
        colours = {"photometric": "palette", "colormap": table}
    with tifffile.TiffWriter(path, bigtiff=big) as file:
        for plane in planes:
            file.write(plane, subifds=len(copies), metadata=None, extratags=tags, **colours)
            for step in copies:
                file.write(plane[::step, ::step], subfiletype=1, metadata=None, **colours)
    return planes


_PROFILE = (34675, 7, 3000, bytes(3000), False)  # a colour profile


@pytest.mark.parametrize(
    "layout",
    [
        {"palette": True},
        {"palette": True, "big": True},
        {"copies": (2,)},
        {"copies": (2, 4), "big": True},
        {"copies": (7,)},  # a thumbnail, no level of a pyramid
        {"copies": (2,), "palette": True},
        {"tags": [_PROFILE]},
    ],
)
def test_metadata_of_each_page_are_not_taken_for_missing_slices(tmp_path, layout):
    path = tmp_path / "a.tif"
    planes = pages(path, **layout)
    volume = read(path)
    np.testing.assert_array_equal(volume.data, planes)
    assert not any("missing" in note for note in volume.notes)
    # cut the chain of directories: the first page is lost
    with tifffile.TiffFile(path) as tif:
        second, form = tif.pages[1].offset, tif.tiff
    with path.open("r+b") as file:
        file.seek(form.offsetsize)
        file.write(second.to_bytes(form.offsetsize, "little"))
    cut = read(path)
    assert cut.shape[0] == 11
    assert any("slices may be missing" in note for note in cut.notes)
