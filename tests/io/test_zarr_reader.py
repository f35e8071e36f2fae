from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushpore.base.errors import InputError, MissingPackageError, OutputError
from hushpore.base.volume import Volume
from hushpore.io import is_on_disk, kind_of, read, read_all
from hushpore.io.results import check_target, write_image
from hushpore.io.zarr import write_zarr
from hushpore.io.zarr_reader import open_zarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


zarr = pytest.importorskip("zarr")


@given(
    axes=st.sampled_from(["yx", "zyx", "tzyx", "czyx", "tczyx"]),
    dtype=st.sampled_from(["bool", "uint8", "int16", ">u2", "int32", "float32", "float64"]),
    unit=st.sampled_from(["mm", "um", "nm", "m", "cm", "pixel"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_type_axes_and_geometry_survive_a_round_trip(
    tmp_path_factory, axes, dtype, unit, seed
):
    rng = np.random.default_rng(seed)
    n_spatial = min(3, len(axes))
    volume = Volume(
        rng.integers(0, 2, rng.integers(1, 5, len(axes))).astype(dtype),
        spacing=tuple(rng.uniform(0.01, 9, n_spatial)),
        origin=tuple(rng.uniform(-9, 9, n_spatial)),
        unit=unit,
        axes=axes,
        name="a",
    )
    path = write_zarr(tmp_path_factory.mktemp("zarr") / "a.ome.zarr", volume)
    assert kind_of(path) == "zarr"
    back = read(path)
    np.testing.assert_array_equal(back.data, volume.data)
    assert back.dtype == volume.dtype.newbyteorder("=")
    # most of these voxels are larger than those of any scan, which is said
    notes = [note for note in back.notes if "is unusual: voxels of scans have" not in note]
    assert (back.axes, back.spacing, back.unit, back.origin, notes) == (
        axes, volume.spacing, unit, volume.origin, [],
    )  # fmt: skip


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_an_image_of_another_program_is_read_with_its_scale_and_unit(tmp_path, ramp, version):
    path = tmp_path / "scan.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=2 if version == "0.4" else 3)
    group.create_array("full", data=ramp[None, None])
    group.create_array("half", data=ramp[None, None, ::2, ::2, ::2])
    units = ["second", None, "micrometer", "micrometer", "millimeter"]
    image = {
        "axes": [
            {"name": name, **({"unit": unit} if unit else {})}
            for name, unit in zip("tczyx", units, strict=True)
        ],
        "datasets": [
            {
                "path": "full",
                "coordinateTransformations": [
                    {"type": "scale", "scale": [1, 1, 2, 0.5, 0.001]},
                    {"type": "translation", "translation": [0, 0, 4, 0, 0]},
                ],
            },
            {"path": "half"},
        ],
        "coordinateTransformations": [{"type": "scale", "scale": [0.1, 1, 2, 1, 1]}],
    }
    inner = {"version": version, "multiscales": [image]}
    group.attrs.update(inner if version == "0.4" else {"ome": inner})
    volume = read(path)
    np.testing.assert_array_equal(volume.data, ramp)
    assert (volume.axes, volume.unit) == ("zyx", "mm")
    assert volume.spacing == pytest.approx((0.004, 0.0005, 0.001))
    assert volume.origin == pytest.approx((0.008, 0, 0))


def test_several_images_in_one_folder_are_several_volumes(tmp_path, ramp):
    zarr.open_group(str(tmp_path), mode="w", zarr_format=3)
    for name in "01":
        write_zarr(tmp_path / name, Volume(ramp, name=f"image {name}"))
    assert [volume.name for volume in read_all(tmp_path)] == ["image 0", "image 1"]


def test_images_come_by_their_numbers_and_none_has_the_name_of_another(tmp_path, ramp):
    zarr.open_group(str(tmp_path), mode="w", zarr_format=3)
    for number in range(11):
        write_zarr(tmp_path / str(number), Volume(ramp + number, name="scan"))
    volumes = read_all(tmp_path, lazy=True)
    assert [volume.data[0, 0, 0] - ramp[0, 0, 0] for volume in volumes] == list(range(11))
    assert read(tmp_path, series=volumes[10].name).data[0, 0, 0] == ramp[0, 0, 0] + 10


def test_a_group_without_an_image_says_what_is_in_it(tmp_path, ramp):
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=3)
    group.create_array("left", data=ramp)
    group.create_array("right", data=ramp)
    with pytest.raises(InputError, match=r"inside it; it contains left, right\."):
        read(tmp_path / "a.zarr")


def test_a_bare_array_is_read_without_a_voxel_size(tmp_path, ramp):
    zarr.create_array(str(tmp_path / "a.zarr"), data=ramp)
    volume = read(tmp_path / "a.zarr")
    np.testing.assert_array_equal(volume.data, ramp)
    assert volume.unit == "pixel"


def test_a_stack_left_on_disk_is_read_where_it_is_indexed(tmp_path, ramp):
    path = write_zarr(tmp_path / "a.zarr", Volume(np.stack([ramp, ramp + 1]), axes="tzyx"))
    (volume,) = read_all(path, lazy=True)
    assert is_on_disk(volume)
    np.testing.assert_array_equal(volume.data[1, ..., 2], (ramp + 1)[..., 2])
    np.testing.assert_array_equal(volume.data[-1], ramp + 1)


def test_damage_is_told(tmp_path, ramp):
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp))
    (path / "0" / "c" / "0" / "0" / "0").write_bytes(b"not a chunk")
    with pytest.raises(InputError, match="damaged"):
        read(path)
    (path / "0" / "zarr.json").write_text("{}")
    with pytest.raises(InputError, match="damaged"):
        read(path)
    group = {"zarr_format": 3, "node_type": "group", "attributes": {"other": 1}}
    (path / "zarr.json").write_text(json.dumps(group))
    with pytest.raises(InputError, match=r"without an OME image|damaged"):
        read(path)


def test_an_index_of_shards_that_is_compressed_is_refused(tmp_path, ramp):
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp))
    known = json.loads((path / "0" / "zarr.json").read_text())
    shards = known["codecs"][0]["configuration"]
    shards["index_codecs"].append(
        {
            "name": "blosc",
            "configuration": {
                "typesize": 8,
                "cname": "zstd",
                "clevel": 5,
                "shuffle": "noshuffle",
                "blocksize": 0,
            },
        }
    )
    (path / "0" / "zarr.json").write_text(json.dumps(known))
    with pytest.raises(InputError, match=r"codec 'blosc'.*Supported codecs: bytes, crc32c, endian"):
        read(path).data[:]


def test_only_an_image_written_here_is_replaced(tmp_path, ramp):
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp))
    with pytest.raises(OutputError, match="already exists"):
        write_zarr(path, Volume(ramp))
    write_zarr(path, Volume(ramp[:2]), overwrite=True)
    assert read(path).shape == (2, 6, 7)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").touch()
    with pytest.raises(OutputError, match="not replaced"):
        write_zarr(tmp_path / "mine", Volume(ramp), overwrite=True)


def test_the_name_of_an_image_decides_its_format(tmp_path, ramp):
    volume = Volume(ramp, spacing=(2, 1, 1), unit="um")
    path = write_image(tmp_path / "a.ome.zarr", volume)
    assert kind_of(path) == "zarr"
    with pytest.raises(OutputError, match="already exists"):
        check_target(path, suffixes=(".zarr",))
    write_image(path, volume, provenance={"job": "denoise"}, overwrite=True)
    assert (tmp_path / "a.ome.json").is_file()
    (tmp_path / "b.zarr").mkdir()
    (tmp_path / "b.zarr" / "mine").touch()
    with pytest.raises(OutputError, match="not replaced"):
        write_image(tmp_path / "b.zarr", volume, overwrite=True)


def test_without_zarr_the_command_that_installs_it_is_given(tmp_path, ramp, monkeypatch):
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp))
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\[zarr\]'"):
        read(path)


@pytest.fixture
def stack(rng):
    """Wider than a level may be in the end, and anisotropic: z is as coarse as every fourth x."""
    values = rng.normal(0, 100, (10, 300, 521)).astype(np.float32)
    return Volume(values, spacing=(2, 0.5, 0.5), origin=(4, 5, 6), unit="mm", name="scan")


def test_a_pyramid_halves_the_finest_axes_and_keeps_its_place(tmp_path, stack):
    (volume,) = read_all(write_zarr(tmp_path / "a.zarr", stack), lazy=True)
    levels = volume.data.levels
    assert [level.shape for level in levels] == [(10, 300, 521), (10, 150, 260), (10, 75, 130)]
    assert volume.data is levels[0]
    means = stack.data[:, :, :520].reshape(10, 150, 2, 260, 2).mean(axis=(2, 4))
    np.testing.assert_allclose(levels[1][...], means, atol=1e-3)
    attributes = json.loads((tmp_path / "a.zarr" / "zarr.json").read_text())["attributes"]
    steps = attributes["ome"]["multiscales"][0]["datasets"][2]["coordinateTransformations"]
    assert [step["scale"] for step in steps if "scale" in step] == [[2, 2, 2]]
    # the middle of the first four pixels
    assert [step["translation"] for step in steps if "translation" in step] == [[4, 5.75, 6.75]]


def test_labels_keep_names_that_no_folder_can_have(tmp_path, ramp):
    labels = Volume(np.ones(ramp.shape, np.int32))
    names = [
        "..", ".", "__x", "zarr.json", "ZARR.json", "a/b", "a:b", "a\\b", "A", "a", "a/c", "é",
        "x" * 300, "\U00020000" * 200, "labels", " ",
    ]  # fmt: skip
    path = write_zarr(tmp_path / "a.zarr", Volume(ramp), labels=dict.fromkeys(names, labels))
    assert [each.name for each in read_all(path)[1:]] == names
    folders = [each.name for each in (path / "labels").iterdir() if each.is_dir()]
    assert len({folder.casefold() for folder in folders}) == len(names)
    assert not any(
        set(folder) & set('/\\:*?"<>|') or folder.endswith((".", " ")) for folder in folders
    )
    unnamed = write_zarr(tmp_path / "b.zarr", Volume(ramp), labels={"": labels})
    assert read_all(unnamed)[1].name == "labels"


def test_labels_beside_an_image_are_read_as_labels(tmp_path, stack):
    labels = (stack.data > 0).astype(np.int32) * 7
    path = write_zarr(
        tmp_path / "a.zarr",
        stack,
        labels={"pores": stack.replace(labels), "mask": stack.replace(labels > 0)},
    )
    image, pores, mask = read_all(path)
    assert (image.name, pores.name, mask.name) == ("scan", "pores", "mask")
    assert (image.holds_labels, pores.holds_labels) == (False, True)
    # also where the image that they are of is not looked at
    assert read(path / "labels" / "pores").holds_labels
    np.testing.assert_array_equal(pores.data, labels)
    np.testing.assert_array_equal(mask.data, labels > 0)
    assert (pores.spacing, pores.origin, pores.unit) == (stack.spacing, stack.origin, "mm")
    # labels have no mean: a coarse level holds no number that is not a label
    (_, coarse, _) = read_all(path, lazy=True)
    assert set(np.unique(coarse.data.levels[-1][...])) == {0, 7}
    with pytest.raises(InputError, match="do not match"):
        write_zarr(tmp_path / "b.zarr", stack, labels={"bad": stack})


@pytest.mark.needs("ome_zarr")
def test_the_ome_zarr_library_finds_image_pyramid_and_labels(tmp_path, stack):
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    labels = stack.replace((stack.data > 0).astype(np.int32))
    path = write_zarr(tmp_path / "a.zarr", stack, labels={"pores": labels})
    nodes = list(Reader(parse_url(path))())
    image, found = nodes[0], [node for node in nodes if "pores" in str(node.zarr)]
    assert [level.shape for level in image.data] == [(10, 300, 521), (10, 150, 260), (10, 75, 130)]
    np.testing.assert_array_equal(np.asarray(image.data[0]), stack.data)
    assert [axis["name"] for axis in image.metadata["axes"]] == ["z", "y", "x"]
    np.testing.assert_array_equal(np.asarray(found[0].data[0]), labels.data)


def test_a_pass_over_slices_decodes_each_chunk_once(tmp_path, stack, monkeypatch):
    (volume,) = read_all(write_zarr(tmp_path / "a.zarr", stack), lazy=True)
    seen = []
    original = type(volume.data)._read
    monkeypatch.setattr(
        type(volume.data), "_read", lambda self, keys: seen.append(keys) or original(self, keys)
    )
    for k in range(10):
        np.testing.assert_array_equal(volume.data[k], stack.data[k])
        # a halo of one slice, as of a filter
        around = slice(max(0, k - 1), k + 2)
        np.testing.assert_array_equal(volume.data[around], stack.data[around])
    assert len(seen) == 1


@given(key=st.tuples(*[st.slices(n) | st.integers(-n, n - 1) for n in (10, 6, 7)]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_index_gives_what_it_gives_of_an_array(tmp_path_factory, key):
    values = np.arange(10 * 6 * 7).reshape(10, 6, 7)
    path = tmp_path_factory.mktemp("zarr") / "a.zarr"
    zarr.create_array(str(path), data=values, chunks=(4, 3, 7))
    (volume,) = read_all(path, lazy=True)
    try:
        expected = values[key]
        zarr.open(str(path))[key]
    except (IndexError, NotImplementedError):
        return  # Zarr goes forward only
    for _ in range(2):
        np.testing.assert_array_equal(volume.data[key], expected)


def test_a_stack_on_disk_can_be_sent_to_a_worker(tmp_path, stack):
    (volume,) = read_all(write_zarr(tmp_path / "a.zarr", stack), lazy=True)
    np.testing.assert_array_equal(volume.data[3], stack.data[3])
    sent = pickle.dumps(volume.data)
    assert len(sent) < 100_000
    there = pickle.loads(sent)
    np.testing.assert_array_equal(there[3], stack.data[3])
    assert [level.shape for level in there.levels] == [level.shape for level in volume.data.levels]


codecs = pytest.importorskip("zarr.codecs")

SHAPE = (21, 30, 34)

V2, V3 = {"zarr_format": 2}, {"zarr_format": 3}
SHARDED = {**V3, "chunks": (4, 8, 8), "shards": (8, 16, 32)}

#: Ways to store an array.
STORED: dict[str, dict[str, Any]] = {
    "shards": SHARDED,
    "shards of Zstandard within Blosc": {
        **SHARDED,
        "compressors": (codecs.BloscCodec(cname="zstd"),),
    },
    "shards with the index at their beginning": {
        **V3,
        "chunks": (8, 16, 32),
        "serializer": codecs.ShardingCodec(
            chunk_shape=(4, 8, 8),
            codecs=[codecs.BytesCodec(), codecs.GzipCodec()],
            index_codecs=[codecs.BytesCodec()],
            index_location="start",
        ),
        "compressors": None,
    },
    "plain values": {**V3, "chunks": (5, 7, 9), "compressors": None},
    "checksums": {
        **V3,
        "chunks": (5, 7, 9),
        "compressors": (codecs.GzipCodec(), codecs.Crc32cCodec()),
    },
    "big endian": {**V3, "chunks": (5, 7, 9), "serializer": codecs.BytesCodec(endian="big")},
    "version 2, big endian": {**V2, "chunks": (5, 7, 9), "dtype": ">i2"},
    "version 2, of another order": {**V2, "chunks": (5, 7, 9), "order": "F"},
    "transposed": {**V3, "chunks": (5, 7, 9), "filters": (codecs.TransposeCodec(order=(2, 1, 0)),)},
}


def stored(folder: Path, how: dict[str, Any]) -> Any:
    """Write an array in some way, of which the chunks in the middle are missing."""
    values = np.arange(np.prod(SHAPE), dtype=np.int16).reshape(SHAPE)
    options = {"shape": SHAPE, "dtype": "i2", "fill_value": 7, **how}
    array = zarr.create_array(str(folder / "scan.zarr"), **options)
    array[:8] = values[:8]
    array[16:, 16:] = values[16:, 16:]
    return array


REGIONS: list[Any] = [
    np.s_[...],
    np.s_[3:19, 5:28, 2:],
    np.s_[9:11],
    np.s_[20, :, 33],
    np.s_[-3:, 4, 8:17],
    np.s_[::3, 1:20:2],
    np.s_[4:4],
]


@pytest.mark.parametrize("name", STORED)
def test_any_region_is_read_as_zarr_reads_it(tmp_path: Path, name: str) -> None:
    expected = np.asarray(stored(tmp_path, STORED[name])[...])
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    for region in REGIONS:
        np.testing.assert_array_equal(stack[region], expected[region])
    room = np.empty(SHAPE, np.int16)
    assert list(stack.read_into(room))[-1] == SHAPE[0]
    np.testing.assert_array_equal(room, expected)
    # as a worker of a cluster gets it
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(stack))[3:9], expected[3:9])
    with pytest.raises(IndexError):
        stack[99]


def test_axes_of_length_one_are_left_out(tmp_path: Path) -> None:
    values = np.arange(2 * 5 * 6 * 7, dtype=np.uint8).reshape(1, 2, 5, 6, 7)
    group = zarr.open_group(str(tmp_path / "scan.zarr"), mode="w", zarr_format=2)
    group.create_array("0", data=values, chunks=(1, 1, 2, 4, 4))
    group.attrs["multiscales"] = [{"version": "0.4", "datasets": [{"path": "0"}]}]
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    assert stack.shape == (2, 5, 6, 7)
    np.testing.assert_array_equal(stack[...], values[0])
    np.testing.assert_array_equal(stack[1, 2:4, :, 3], values[0, 1, 2:4, :, 3])
    room = np.empty(stack.shape, np.uint8)
    list(stack.read_into(room))
    np.testing.assert_array_equal(room, values[0])


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def with_another_index(content: bytes) -> bytes:
    return content[:-20] + bytes([content[-20] ^ 1]) + content[-19:]


@pytest.mark.parametrize("damage", [cut, with_another_index])
def test_damaged_shards_are_told(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    stored(tmp_path, SHARDED)
    file = tmp_path / "scan.zarr" / "c" / "0" / "0" / "0"
    file.write_bytes(damage(file.read_bytes()))
    stack = open_zarr(tmp_path / "scan.zarr")[0].data
    with pytest.raises(InputError, match="is damaged"):
        stack[...]


def test_an_emptied_shard_counts_as_not_stored(tmp_path: Path) -> None:
    stored(tmp_path, SHARDED)
    before = open_zarr(tmp_path / "scan.zarr")[0].notes
    (tmp_path / "scan.zarr" / "c" / "0" / "0" / "0").write_bytes(b"")
    after = open_zarr(tmp_path / "scan.zarr")[0].notes
    assert [note.split()[0] for note in (before[-1], after[-1])] == ["6", "7"]
