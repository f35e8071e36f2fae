"""Files that ask for too much are refused before they get it; the user can allow it."""

from __future__ import annotations

import os
import sys
import tracemalloc
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import tifffile

import hushpore
from hushpore.base.errors import HushporeError, InputError, NotTrustedError
from hushpore.io import describe, read
from hushpore.io.guards import LARGEST_RATIO, MOST_PARTS, MOST_SMALL_PARTS, SMALL, InputLimits

pytest.importorskip("zarr")
sys.path.insert(0, str(Path(__file__).parent))
attacks = import_module("attack_files")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="some are pipes and links")

#: Less than what any of them expands to.
MOST_MEMORY = 40_000_000


@pytest.mark.parametrize("name", attacks.FILES)
def test_no_file_takes_what_its_bytes_do_not_hold(tmp_path, monkeypatch, name):
    """To say what is in it decodes nothing; to read it is refused, or does no harm."""
    monkeypatch.setattr(attacks, "LARGE", 1 << 26)
    (tmp_path / "in").mkdir()
    path = attacks.FILES[name](tmp_path / "in")
    tracemalloc.start()
    try:
        for look in (describe, read):
            try:
                found = look(path)
            except HushporeError:
                continue
            if look is read:
                np.asarray(found.data)
    except HushporeError:
        pass
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most < MOST_MEMORY
    assert not (tmp_path / "RAN").exists()


def test_a_file_outside_the_folder_is_not_read_by_any_way(tmp_path):
    for name in attacks.FILES:
        if "outside" in name or "another file" in name:
            folder = tmp_path / str(len(list(tmp_path.iterdir())))
            folder.mkdir()
            with pytest.raises(InputError):
                read(attacks.FILES[name](folder))


def test_what_is_compressed_as_no_scan_is_is_read_where_the_user_trusts_it(tmp_path):
    blank = np.zeros((2, 4096, 4096), np.uint16)
    tifffile.imwrite(tmp_path / "blank.tif", blank, compression="zstd")
    assert blank.nbytes > LARGEST_RATIO * (tmp_path / "blank.tif").stat().st_size + SMALL
    with pytest.raises(NotTrustedError, match="trust=True"):
        describe(tmp_path / "blank.tif")
    assert describe(tmp_path / "blank.tif", trust=True)[0].shape == blank.shape
    # the consent was for that file
    with pytest.raises(NotTrustedError):
        hushpore.read(tmp_path / "blank.tif")


@pytest.mark.parametrize("axis", [0, 1])
def test_a_small_blank_image_needs_no_consent(tmp_path, axis):
    shape = [1000, 1000]
    shape[axis] = 2000
    tifffile.imwrite(tmp_path / "a.tif", np.zeros(shape, np.uint16), compression="zstd")
    assert hushpore.read(tmp_path / "a.tif").array().max() == 0


def test_more_parts_than_bytes_are_damage_and_very_many_need_consent():
    with pytest.raises(InputError, match="can hold"):
        InputLimits("a.dcm", 600, True).require_few(601, "frames")
    many = InputLimits("a.dcm", 10 * MOST_PARTS * 1024, False)
    many.require_few(MOST_PARTS, "frames")
    with pytest.raises(NotTrustedError):
        many.require_few(MOST_PARTS + 1, "frames")
    InputLimits("a.dcm", many.stored, True).require_few(MOST_PARTS + 1, "frames")
    # and of parts that are smaller than any image fewer are very many
    with pytest.raises(NotTrustedError):
        InputLimits("a.tif", 100 * MOST_SMALL_PARTS, False).require_few(
            MOST_SMALL_PARTS + 1, "pages"
        )


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_is_shortened_meanwhile_is_told_and_ends_nothing(tmp_path, order):
    values = np.asarray(np.arange(8 * 64 * 64, dtype=">u2").reshape(8, 64, 64), order=order)
    np.save(tmp_path / "a.npy", values)
    (volume,) = describe(tmp_path / "a.npy")
    assert (np.asarray(volume.data[2:4]) == values[2:4]).all()
    (again,) = describe(tmp_path / "a.npy")
    os.truncate(tmp_path / "a.npy", 10_000)
    with pytest.raises(InputError, match="ends before"):
        np.asarray(again.data[6])


def test_what_an_ome_tiff_names_beside_it_is_read(tmp_path):
    """Two files, each with half of the slices, as OME-TIFF allows."""
    halves = {}
    for number in range(2):
        entries = "".join(
            f'<TiffData FirstZ="{z}" IFD="0" PlaneCount="1"><UUID FileName="{z}.ome.tif">urn:uuid:'
            f"{z}{z}{z}{z}{z}{z}{z}{z}-0000-4000-8000-000000000000</UUID></TiffData>"
            for z in range(2)
        )
        n = number
        told = (
            '<?xml version="1.0" encoding="UTF-8"?><OME xmlns="http://www.openmicroscopy.org/'
            f'Schemas/OME/2016-06" UUID="urn:uuid:{str(n) * 8}-0000-4000-8000-000000000000">'
            '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" '
            f'SizeX="8" SizeY="6" SizeZ="2" SizeC="1" SizeT="1">{entries}</Pixels></Image></OME>'
        )
        halves[n] = np.full((6, 8), n + 1, np.uint8)
        tifffile.imwrite(tmp_path / f"{n}.ome.tif", halves[n], description=told, metadata=None)
    found = describe(tmp_path / "0.ome.tif")[0]
    assert found.shape == (2, 6, 8)
    assert np.asarray(found.data)[:, 0, 0].tolist() == [1, 2]
    assert Path(found.source) == tmp_path / "0.ome.tif"


@pytest.mark.parametrize("codec", ["base64", "json2", "pickle", "vlen-bytes"])
def test_a_codec_that_is_not_on_the_list_is_refused_when_it_is_opened(tmp_path, codec):
    path = attacks.zarr2(tmp_path, bytes(4096), None, filters=[{"id": codec}])
    with pytest.raises(InputError):
        describe(path)


def test_codecs_on_the_list_are_read(tmp_path):
    zarr = pytest.importorskip("zarr")
    numcodecs = pytest.importorskip("numcodecs")
    values = np.arange(16**3, dtype=np.uint16).reshape(16, 16, 16)
    for number, codec in enumerate(
        (numcodecs.Blosc("lz4"), numcodecs.Zstd(), numcodecs.GZip(), numcodecs.Zlib(),
         numcodecs.LZ4(), numcodecs.BZ2(), numcodecs.LZMA())
    ):  # fmt: skip
        path = tmp_path / f"{number}.zarr"
        array = zarr.create_array(
            path, shape=values.shape, chunks=(8, 16, 16), dtype="u2", zarr_format=2,
            compressors=codec, filters=[numcodecs.Delta("u2")],
        )  # fmt: skip
        array[:] = values
        np.testing.assert_array_equal(hushpore.read(path).array(), values)
