import numpy as np
import pytest
import tifffile

from hushpore.viewer.layers.reading import MIN_NUMBERED, grouped, is_slice


@pytest.fixture
def slices(tmp_path, rng):
    paths = [tmp_path / f"scan2_{number:04d}.tif" for number in range(12)]
    for number, path in enumerate(paths):
        tifffile.imwrite(path, np.full((8, 10), number, np.uint8))
    return [str(path) for path in paths]


def test_a_numbered_file_among_its_like_is_a_slice(slices, tmp_path):
    assert all(is_slice(None, path) for path in slices)
    for name in ("overview.tif", "other_1.tif"):
        tifffile.imwrite(tmp_path / name, np.zeros((8, 10), np.uint8))
        assert not is_slice(None, str(tmp_path / name))
    assert not is_slice(None, str(tmp_path))
    (tmp_path / "scan2_0012.tif").write_text("no image")
    assert not is_slice(None, str(tmp_path / "scan2_0012.tif"))


def test_files_are_one_stack_where_they_are_many_and_named_alike(slices, tmp_path):
    other = str(tmp_path / "before.tif")
    tifffile.imwrite(other, np.zeros((8, 10), np.uint8))
    assert grouped([*slices, other]) == [slices, [other]]
    few = slices[: MIN_NUMBERED - 1]
    assert grouped(few) == [[path] for path in few]


@pytest.mark.parametrize("count", [12, 3])
def test_numbered_tiff_slices_that_are_dropped_one_by_one_are_one_layer(
    qtbot, make_napari_viewer, slices, count
):
    viewer = make_napari_viewer()
    viewer.open(slices[:count], stack=False, plugin="hushpore")
    layers = 1 if count == 12 else count
    qtbot.waitUntil(lambda: len(viewer.layers) == layers, timeout=10_000)
    qtbot.wait(100)
    shapes = {layer.data.shape for layer in viewer.layers}
    assert shapes == {(12, 8, 10) if count == 12 else (8, 10)}
