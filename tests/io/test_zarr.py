from __future__ import annotations

import numpy as np
import pytest
from skimage.measure import block_reduce

from hushpore.base.errors import MemoryLimitError
from hushpore.base.volume import Volume
from hushpore.io import read, read_all
from hushpore.io.zarr import ZarrImage, reduced, write_zarr

zarr = pytest.importorskip("zarr")


def created(path, volume, are_labels=False, **more):
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    return ZarrImage.create(group, volume, "scan", are_labels=are_labels, **more)


@pytest.fixture
def volume(rng):
    values = rng.integers(0, 4000, (70, 600, 530)).astype(np.uint16)
    return Volume(values, spacing=(2, 1, 1), unit="um", name="scan")


def test_blocks_cover_each_level_exactly_once(tmp_path, volume):
    image = created(tmp_path / "a.zarr", volume)
    assert [level.shape for level in image.levels] == [
        (70, 600, 530), (70, 300, 265), (35, 150, 132)
    ]  # fmt: skip
    for number, level in enumerate(image.levels):
        count = np.zeros(level.shape, int)
        for block in image.blocks(number):
            count[block] += 1
        assert (count == 1).all()


def test_blocks_written_in_any_order_make_the_same_image(tmp_path, volume, rng):
    image = created(tmp_path / "a.zarr", volume)
    opened = ZarrImage.open(tmp_path / "a.zarr")
    for number in range(len(image.levels)):
        blocks = list(opened.blocks(number))
        for place in rng.permutation(len(blocks)):
            block = blocks[place]
            assert not image.is_written(block, number)
            if number:
                opened.reduce(number, block)
            else:
                opened.levels[0][block] = volume.data[block]
            assert image.is_written(block, number)
    write_zarr(tmp_path / "b.zarr", volume)
    ours, theirs = (read_all(tmp_path / name, lazy=True)[0] for name in ("a.zarr", "b.zarr"))
    for a, b in zip(ours.data.levels, theirs.data.levels, strict=True):
        np.testing.assert_array_equal(a[...], b[...])


def test_what_is_known_of_an_image_is_written_at_once(tmp_path, monkeypatch):
    written = []
    plain = zarr.Group.update_attributes
    monkeypatch.setattr(
        zarr.Group, "update_attributes", lambda *given: written.append(given) or plain(*given)
    )
    monkeypatch.setattr(zarr.core.attributes.Attributes, "__setitem__", None)
    volume = Volume(np.zeros((2, 8, 8), np.uint8))
    created(tmp_path / "a.zarr", volume)
    assert [sorted(known) for _, known in written] == [["hushpore", "ome"]]


def test_a_block_is_one_file_also_where_it_is_all_zero(tmp_path):
    volume = Volume(np.zeros((2, 10, 520, 30), np.float32), axes="tzyx")
    image = created(tmp_path / "a.zarr", volume)
    blocks = list(image.blocks())
    assert len(blocks) == 4
    image.levels[0][blocks[1]] = 0
    assert [image.is_written(block) for block in blocks] == [False, True, False, False]
    files = [file for file in (tmp_path / "a.zarr" / "0" / "c").rglob("*") if file.is_file()]
    assert len(files) == 1
    # what a machine leaves that lost its power
    files[0].write_bytes(b"")
    assert not image.is_written(blocks[1])


def test_a_level_holds_means_of_grey_values_and_numbers_of_labels(rng):
    grey = rng.integers(0, 60000, (6, 8, 10)).astype(np.uint16)
    expected = np.rint(block_reduce(grey.astype(float), (2, 1, 2), np.mean))
    np.testing.assert_array_equal(reduced(grey, (2, 1, 2), False), expected)
    exact = rng.normal(size=(4, 4)).astype(np.float64)
    np.testing.assert_allclose(reduced(exact, (2, 2), False), block_reduce(exact, (2, 2), np.mean))
    np.testing.assert_array_equal(reduced(grey, (2, 2, 1), True), grey[::2, ::2])


def test_blocks_become_smaller_where_memory_is_short(tmp_path, volume):
    plenty, short = (
        created(tmp_path / f"{memory}.zarr", volume, memory=memory) for memory in (1e9, 8e6)
    )
    assert plenty.levels[0].shards == (64, 512, 512)
    assert plenty.depth == 64
    assert short.depth * 600 * 530 * 2 <= 4e6
    assert np.prod(short.levels[0].shards) * 2 <= 1e6
    with pytest.raises(MemoryLimitError, match="two slices of 636 kB each"):
        created(tmp_path / "c.zarr", volume, memory=1e6)


def test_it_says_whether_it_holds_labels_and_what_was_noted(tmp_path):
    volume = Volume(np.ones((2, 3, 4), np.int32), metadata={"labels": True}, notes=["Odd."])
    back = read(write_zarr(tmp_path / "a.zarr", volume))
    assert back.metadata == {"labels": True}
    assert back.notes == ["Odd."]
    assert ZarrImage.open(tmp_path / "a.zarr").are_labels


@pytest.mark.parametrize("padding", [-2000, 0, 0.1])
def test_it_says_what_it_is_filled_in_with(tmp_path, padding):
    values = np.ones((2, 3, 4), np.float32)
    path = write_zarr(tmp_path / "a.zarr", Volume(values, metadata={"padding_value": padding}))
    assert read(path).metadata == {"padding_value": padding}
    group = zarr.open_group(str(path))
    group.attrs["hushpore"] = {**group.attrs["hushpore"], "padding_value": ["none"]}
    assert read(path).metadata == {}
