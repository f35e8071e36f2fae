from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.backend_bases import MouseButton, MouseEvent
from napari.layers import Layer

import hushpore
from hushpore.runs.result_folder import write_result
from hushpore.viewer.layers.result_folder import labels_from_result
from hushpore.viewer.results.plots import (
    ALONG,
    BY_VOLUME,
    PROFILE,
    REV,
    REV_PORES,
    ROSE,
    SCATTER,
    PlotsWidget,
)
from hushpore.viewer.results.pore_layer import pore_layer


@pytest.fixture
def plots(qtbot, viewer, layer):
    plots = PlotsWidget(viewer)
    qtbot.addWidget(plots)
    yield plots
    plots._let_go()


def choose(plots, kind):
    plots._kind.setCurrentText(kind)


def test_sizes_are_plotted_with_their_unit_by_number_and_by_volume(plots):
    assert plots.axes.get_xlabel() == "equivalent diameter (µm)"
    assert plots.canvas.numbers["share"].max() == pytest.approx(0.25)
    choose(plots, BY_VOLUME)
    assert plots.canvas.numbers["share"].max() == pytest.approx(125 / (8 + 27 + 125 + 64))


def test_only_pores_that_pass_the_filter_are_plotted(plots):
    plots.view.show_only(np.array([True, True, False, False]))
    assert plots.canvas.numbers["share"].max() == pytest.approx(0.5)


def test_the_cumulative_curve_rises_to_all_on_a_logarithmic_axis(plots):
    plots._cumulative.setChecked(True)
    plots._log.setChecked(True)
    assert plots.axes.get_xscale() == "log"
    assert plots.axes.lines[0].get_ydata()[-1] == pytest.approx(100)


def test_porosity_by_slice_marks_the_slice_and_follows_it(plots, viewer, layer, made_of_cubes):
    choose(plots, PROFILE)
    np.testing.assert_allclose(
        plots.axes.lines[0].get_ydata(), 100 * made_of_cubes([2, 3, 5, 4]).porosity_profile
    )
    viewer.dims.set_point(0, 6.0)
    assert plots._mark.get_xdata()[0] == 3
    plots._clicked(SimpleNamespace(xdata=1.2))
    assert viewer.dims.point[0] == 2


def test_an_unknown_profile_is_said(plots, layer):
    known = layer.metadata["hushpore"]
    layer.metadata = {"hushpore": {**known, "porosity_profile": None}}
    plots.view._reread()
    choose(plots, PROFILE)
    assert "No porosity profile" in plots.axes.texts[0].get_text()


def test_porosity_and_pores_of_cubes_are_plotted_with_where_they_settle(plots, layer):
    choose(plots, REV)
    assert "Not measured" in plots.axes.texts[0].get_text()
    known = layer.metadata["hushpore"]
    figures = {"edge": [2.0, 4.0], "porosity": [0.3, 0.3], "density": [5.0, 6.0]}
    ends = {"porosity_low": [0.1, 0.29], "porosity_high": [0.6, 0.31]}
    more = {"density_low": [0.0, 5.0], "density_high": [9.0, 7.0]}
    totals = {**known["provenance"]["result"], "rev_edge_length": 4.0}
    provenance = {**known["provenance"], "result": totals}
    rev = pd.DataFrame({**figures, **ends, **more})
    layer.metadata = {"hushpore": {**known, "rev": rev, "provenance": provenance}}
    plots.view._reread()
    plots.draw()
    mean, settled = plots.axes.lines
    np.testing.assert_allclose(mean.get_ydata(), [30, 30])
    assert settled.get_xdata()[0] == 4.0
    choose(plots, REV_PORES)
    np.testing.assert_allclose(plots.axes.lines[0].get_ydata(), [5, 6])
    assert plots.axes.get_ylabel() == "number density (1/µm³)"
    # pores that were merged anew
    del rev["density"]
    plots.draw()
    assert "Not measured" in plots.axes.texts[0].get_text()


def test_concentrations_along_each_axis_are_plotted_of_a_result_and_of_its_folder(
    plots, viewer, layer, tmp_path
):
    choose(plots, ALONG)
    assert "Not solved" in plots.axes.texts[0].get_text()
    void = np.zeros((6, 8, 8), bool)
    void[:, 2:6, 2:6] = True
    scan = hushpore.Volume(void, spacing=(2, 2, 2), unit="um")
    found = hushpore.segment_pores(scan, transport="diffusion", merge_height=9, device="cpu")
    write_result(tmp_path / "result", [found], found.volume)
    read = hushpore.read(tmp_path / "result" / "labels.tif")
    for data, keywords, kind in (pore_layer(found, "pores"), labels_from_result(read)):
        viewer.layers.selection.active = viewer.add_layer(Layer.create(data, keywords, kind))
        plots.draw()
        (line,) = plots.axes.lines
        assert line.get_label() == "concentration along z"
        np.testing.assert_allclose(line.get_xdata(), 2 * np.arange(6))
        np.testing.assert_allclose(line.get_ydata(), 1 - (np.arange(6) + 0.5) / 6, atol=1e-6)
        assert plots.axes.get_xlabel() == "position (µm)"


def test_a_legend_is_of_the_colour_of_the_axes(plots, layer):
    known = layer.metadata["hushpore"]
    rev = pd.DataFrame(
        {"edge": [1.0], "porosity": [0.5], "porosity_low": [0.4], "porosity_high": [0.6]}
    )
    layer.metadata = {"hushpore": {**known, "rev": rev}}
    plots.view._reread()
    choose(plots, REV)
    title = plots.axes.get_legend().get_title()
    assert title.get_text() == "porosity not settled"
    # black on a dark ground cannot be read
    assert title.get_color() == plots.axes.xaxis.label.get_color()


def test_the_axes_span_the_pores_and_no_more(plots):
    choose(plots, SCATTER)
    sizes = plots.view.tables.pores["equivalent_diameter"]
    assert plots.axes.get_xlim()[0] > 0.8 * sizes.min()
    assert plots.axes.get_xlim()[1] < 1.2 * sizes.max()


def test_a_brush_selects_pores_and_a_selection_marks_points(plots):
    choose(plots, SCATTER)
    sizes = plots.view.tables.pores["equivalent_diameter"]
    press = SimpleNamespace(xdata=sizes[0] - 0.1, ydata=0)
    release = SimpleNamespace(xdata=sizes[1] + 0.1, ydata=1)
    plots._brushed(press, release)
    assert plots.view.selected.tolist() == [True, True, False, False]
    np.testing.assert_allclose(plots._mark.get_xdata(), sizes[:2])
    plots.view.select_labels([4])
    np.testing.assert_allclose(plots._mark.get_xdata(), sizes[3:])


def test_a_plot_is_saved_as_picture_or_numbers(qtbot, plots, tmp_path):
    for name in ("a.png", "a.svg", "a.csv"):
        path = tmp_path / name
        plots.canvas.save(path)
        qtbot.waitUntil(path.exists, timeout=20_000)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    table = pd.read_csv(tmp_path / "a.csv")
    np.testing.assert_allclose(table["share"], plots.canvas.numbers["share"])


def test_it_follows_the_theme_and_survives_without_a_result(plots, viewer, layer):
    viewer.theme = "light"
    assert sum(plots.canvas.figure.get_facecolor()[:3]) > 2.5
    viewer.layers.remove(layer)
    assert plots.view is None
    assert "'Pores'" in plots._nothing.text()
    viewer.dims.set_point(0, 0)


def test_percentiles_fit_and_bins_can_be_chosen(plots):
    legend = [text.get_text() for text in plots.axes.get_legend().get_texts()]
    assert legend[0].startswith("log-normal: median ")
    median = sorted(plots.view.tables.pores["equivalent_diameter"])[1]
    assert legend[2] == f"D50 {median:.3g} µm"
    plots._fit.setChecked(False)
    assert len(plots.axes.lines) == 3
    plots._bins.setValue(2)
    assert plots.canvas.numbers["share"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("width", "pixels"), [("Single column", 1063), ("Double column", 2244)])
def test_a_plot_is_saved_in_the_width_of_columns(
    plots, qtbot, tmp_path, monkeypatch, width, pixels
):
    monkeypatch.setattr("hushpore.viewer.results.plots.ask_for_file", lambda *a: tmp_path / "a.png")
    size = plots.canvas.figure.get_size_inches().tolist()
    plots._width.setCurrentText(width)
    plots._save()
    qtbot.waitUntil((tmp_path / "a.png").exists)
    assert abs(plt.imread(tmp_path / "a.png").shape[1] - pixels) <= 1
    assert plots.canvas.figure.get_size_inches().tolist() == size


def test_the_rose_shows_the_axes_of_the_pores_that_are_shown(plots):
    table = plots.view.tables.pores
    for axis, value in zip("zyx", (0.0, 1.0, 0.0), strict=True):
        table[f"axis_direction_{axis}"] = value
    choose(plots, ROSE)
    assert plots.axes.name == "polar"
    assert plots.canvas.numbers.set_index("angle_from")["share"][90.0] == 1
    choose(plots, BY_VOLUME)
    assert plots.axes.name == "rectilinear"


@pytest.mark.parametrize("kind", ["Size distribution (number)", BY_VOLUME])
def test_a_drag_over_the_size_histogram_selects_its_pores(plots, kind):
    choose(plots, kind)
    sizes = plots.view.tables.pores["equivalent_diameter"].to_numpy()
    middle = float(np.median(sizes))
    figure, axes = plots.canvas.figure, plots.axes
    figure.canvas.draw()
    ends = [axes.transData.transform((x, 1)) for x in (middle, sizes.max() * 1.01)]
    held = {"buttons": [MouseButton.LEFT]}
    for name, (x, y), more in zip(
        ("button_press_event", "motion_notify_event", "button_release_event"),
        (ends[0], ends[1], ends[1]),
        ({}, held, {}),
        strict=True,
    ):
        event = MouseEvent(name, figure.canvas, x, y, MouseButton.LEFT, **more)
        figure.canvas.callbacks.process(name, event)
    np.testing.assert_array_equal(plots.view.selected, sizes >= middle)
    plots._brushed_sizes(middle, middle)
    assert not plots.view.selected.any()
