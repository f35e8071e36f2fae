import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel

import hushpore
from hushpore import Volume
from hushpore.io.results import write_results
from hushpore.runs.result_folder import write_result
from hushpore.viewer.layers.layer_files import SavedLayer
from hushpore.viewer.layers.reader import read_layers
from hushpore.viewer.layers.result_folder import labels_from_result
from hushpore.viewer.layers.visibility import show_new_scans
from hushpore.viewer.layers.voxel_size import set_voxel_size
from hushpore.viewer.results.pore_layer import result_of, tables_of, thickness_layers


@pytest.fixture
def folder(tmp_path, made_of_cubes):
    result = made_of_cubes([2, 3, 5])
    grey = result.volume.replace(result.labels.astype(np.float32), name="denoised")
    return write_results(
        tmp_path / "berea",
        images={"denoised": grey, "labels": result.labels_volume},
        tables={"pores": result.pores, "throats": result.throats},
        provenance={"jobs": [{"job": "denoise"}, result.provenance]},
    )


def layers(found):
    from napari.layers import Layer

    return {keywords["name"]: Layer.create(data, keywords, kind) for data, keywords, kind in found}


def test_a_result_folder_opens_with_the_numbers_of_its_pores(folder, made_of_cubes):
    result = made_of_cubes([2, 3, 5])
    found = layers(read_layers(str(folder)))
    tables = tables_of(found["berea · pores"])
    pd.testing.assert_frame_equal(tables.pores, result.pores, check_dtype=False)
    pd.testing.assert_frame_equal(tables.throats, result.throats, check_dtype=False)
    np.testing.assert_allclose(tables.profile, result.porosity_profile)
    assert tables.totals["specific_surface"] == 0.75
    assert tables.unit == "um"
    np.testing.assert_array_equal(found["berea · pores"].data, result.labels)
    assert tables_of(found["denoised"]) is None


def test_so_does_its_file_of_labels(folder):
    (layer,) = layers(read_layers(str(folder / "labels.tif"))).values()
    assert len(tables_of(layer).pores) == 3


def test_pores_of_any_result_folder_merge_on_as_in_the_result_itself(tmp_path, made_of_cubes):
    made = made_of_cubes([2, 3, 5]).labels > 0
    made[:, 3:6] |= np.roll(made, 3, axis=1)[:, 3:6]
    result = hushpore.segment_pores(Volume(made, spacing=2, unit="um"), local_thickness="void")
    folder = write_result(tmp_path / "written by the library", [result], result.volume)
    layer = layers(read_layers(str(folder)))["written by the library · pores"]
    again = result_of(layer)
    for height in (0.0, 5.0):
        merged = result.remerge(height)
        np.testing.assert_array_equal(again.remerge(height).labels, merged.labels)
        assert again.remerge(height).headline == merged.headline
    # and nothing is lost on the way to another folder
    copy = SavedLayer.of(layer).write(tmp_path / "copy")
    for table in ("pores.csv", "throats.csv", "totals.csv", "thickness.csv", "profile.csv"):
        assert (copy / table).read_bytes() == (folder / table).read_bytes()


def test_a_local_thickness_comes_back_as_it_was_shown(tmp_path, made_of_cubes):
    void = made_of_cubes([2, 3, 5]).labels > 0
    found = hushpore.segment_pores(Volume(void, spacing=2, unit="um"), local_thickness="both")
    folder = write_result(tmp_path / "berea", [found], found.volume)
    opened = layers(read_layers(str(folder)))
    assert list(opened) == [
        "berea · pores",
        "berea · thickness (solid)",
        "berea · thickness (pores)",
    ]
    for made, again in zip(thickness_layers(found), [*opened.values()][::-1], strict=False):
        data, keywords, _ = made
        np.testing.assert_array_equal(again.data, data)
        assert not again.visible
        np.testing.assert_allclose(again.contrast_limits, keywords["contrast_limits"], rtol=1e-6)
        np.testing.assert_array_equal(again.colormap.low_color, [0, 0, 0, 0])
    # opened by itself it is to be seen
    (alone,) = layers(read_layers(str(folder / "void_thickness.tif"))).values()
    assert alone.visible
    viewer = ViewerModel()
    viewer.add_layer(alone)
    show_new_scans(viewer, [alone])
    assert alone.colorbar.visible
    set_voxel_size(viewer, alone, "4 um")
    assert alone.data.max() == 2 * found.thickness["void"].diameter.max()


def test_porosity_by_slice_is_not_guessed_where_air_was_left_out(tmp_path, made_of_cubes):
    result = made_of_cubes([2, 3])
    result.provenance["result"]["sample_voxels"] -= 1
    folder = write_results(
        tmp_path / "core",
        images={"labels": result.labels_volume},
        tables={"pores": result.pores},
        provenance={"jobs": [result.provenance]},
    )
    (layer,) = layers(read_layers(str(folder))).values()
    assert tables_of(layer).profile is None
    assert tables_of(layer).throats is None


@pytest.mark.parametrize("missing", ["result.json", "pores.csv"])
def test_labels_without_a_result_beside_them_are_an_image(folder, missing):
    (folder / missing).unlink()
    volume = Volume(np.zeros((4, 4), int), name="labels", source=str(folder / "labels.tif"))
    assert labels_from_result(volume) is None


def test_a_result_whose_record_is_damaged_keeps_its_tables(folder):
    (folder / "result.json").write_text("{")
    found = layers(read_layers(str(folder)))
    assert len(tables_of(found["berea · pores"]).pores) == 3
