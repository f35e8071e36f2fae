import numpy as np
import pandas as pd
import pytest
from napari.layers import Image, Labels, Layer, Vectors

import hushpore
from hushpore.figures.drawing import LABEL_COLOURS, _coloured
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.results.pore_layer import (
    features_of,
    name_in_words,
    path_layers,
    pore_layer,
    summary_lines,
    tables_of,
    update_pore_layer,
)


def layer_of(result):
    return Layer.create(*pore_layer(result, "scan · pores"))


def test_the_table_goes_where_napari_looks_for_it():
    table = pd.DataFrame({"label": [1, 5], "volume": [2.0, 3.0]})
    layer = Labels(np.array([[0, 1], [5, 5]]), features=features_of(table))
    assert list(layer.features.columns) == ["index", "volume"]
    assert "volume: 3" in layer.get_status((1, 1))["value"]
    assert "label" in table


def test_the_pore_under_the_mouse_is_told_in_the_words_of_the_table(made_of_cubes):
    result = made_of_cubes([2, 3, 5])
    layer = layer_of(result)
    name_in_words(layer)
    inside = np.argwhere(result.labels == 2)[0]
    said = layer.get_status(inside)["value"]
    assert said.startswith("2; number of voxels: 27, ")
    assert "equivalent diameter (µm): " in said
    assert "_" not in said
    assert layer.get_status(np.argwhere(result.labels == 0)[0])["value"] == "0"


def test_a_layer_gives_back_the_numbers_of_its_result(made_of_cubes):
    result = made_of_cubes([2, 3, 5])
    tables = tables_of(layer_of(result))
    pd.testing.assert_frame_equal(tables.pores, result.pores)
    pd.testing.assert_frame_equal(tables.throats, result.throats)
    np.testing.assert_array_equal(tables.profile, result.porosity_profile)
    assert tables.totals == result.provenance["result"]
    assert (tables.unit, tables.n_spatial) == ("um", 3)


def test_another_result_of_the_same_volume_replaces_all_numbers(made_of_cubes):
    layer, merged = layer_of(made_of_cubes([2, 3, 5])), made_of_cubes([4, 4])
    update_pore_layer(layer, merged)
    tables = tables_of(layer)
    pd.testing.assert_frame_equal(tables.pores, merged.pores)
    assert len(tables.throats) == 1
    assert tables.totals["count"] == 2
    assert layer.metadata[METADATA_KEY]["source"] == ""
    assert layer.data is merged.labels


@pytest.mark.parametrize(
    "layer",
    [
        Image(np.zeros((4, 4))),
        Labels(np.zeros((4, 4), int)),
        Labels(np.zeros((4, 4), int), features={"index": [1], "area": [2.0]}),
        Labels(
            np.zeros((4, 4), int),
            features={"index": [1], "num_voxels": [2]},
            metadata={METADATA_KEY: {"preview": "labels"}},
        ),
    ],
)
def test_other_layers_have_no_tables_of_pores(layer):
    assert tables_of(layer) is None


def test_the_summary_says_porosity_counts_and_sizes_with_their_units(made_of_cubes):
    result = made_of_cubes([2, 3, 5])
    lines = summary_lines(tables_of(layer_of(result)))
    mean = result.pores["equivalent_diameter"].mean()
    median = result.pores["equivalent_diameter"].median()
    porosity = 100 * result.provenance["result"]["porosity"]
    assert lines == [
        f"Porosity {porosity:.1f} % (open 25.0 %, closed 5.0 %) · specific surface 0.75 µm⁻¹",
        f"3 pores, 2 throats · diameter: mean {mean:.4g} µm, median {median:.4g} µm",
    ]


def test_the_summary_of_a_part_says_how_much_it_is(made_of_cubes):
    tables = tables_of(layer_of(made_of_cubes([2, 3, 5])))
    line = summary_lines(tables, np.array([True, False, True]))[-1]
    assert line.startswith("Shown: 2 pores, 83 % of pore volume · diameter: mean")


def test_breakthrough_paths_are_lines_through_the_pores():
    void = np.zeros((30, 30, 30), bool)
    void[:, 8:16, 8:16] = void[10:20, 4:20, 4:20] = True
    scan = hushpore.Volume(void, spacing=0.5, unit="um", name="tube")
    assert path_layers(hushpore.segment_pores(scan, exterior="keep")) == []
    found = hushpore.segment_pores(scan, exterior="keep", report_form="rock")
    (made,) = path_layers(found)
    layer = Layer.create(*made)
    assert isinstance(layer, Vectors)
    starts, ahead = layer.data[:, 0], layer.data[:, 1]
    assert set(layer.features["axis"]) == {"z"}
    assert starts[0, 0] == -0.5
    assert starts[-1, 0] + ahead[-1, 0] == 29.5
    np.testing.assert_allclose(starts[:-1] + ahead[:-1], starts[1:], atol=1e-5)
    assert (found.labels[tuple(starts[1:].round().astype(int).T)] > 0).all()
    assert tuple(layer.scale) == (0.5, 0.5, 0.5)
    assert not layer.visible


def test_the_colours_of_reports_are_those_of_the_screen(layer):
    numbers = np.arange(3 * len(LABEL_COLOURS), dtype=np.int32)
    seen = _coloured(numbers[None])[0]
    np.testing.assert_allclose(seen[:, :3], layer.colormap.map(numbers)[:, :3], atol=0.003)
    assert seen[0, 3] == 0
    assert seen[1:, 3] == pytest.approx(layer.opacity)
