"""What plots have in common: titles, distributions."""

from __future__ import annotations

import io
import sys
import threading

import numpy as np
import pandas as pd
import pytest

from hushpore.base.errors import InputError
from hushpore.base.volume import Volume
from hushpore.figures.drawing import (
    PAPER,
    _coloured,
    add_plots,
    add_title,
    draw_rev,
    draw_rising,
    draw_sizes,
    edges_of,
    frame,
    new_figure,
    png,
    pore_picture,
    round_step,
    size_table,
    svg,
)


@pytest.mark.parametrize("log", [False, True])
def test_a_distribution_is_numpys_histogram_as_shares(log: bool) -> None:
    rng = np.random.default_rng(0)
    sizes, volumes = rng.lognormal(2, 0.6, 500), rng.uniform(1, 9, 500)
    other = rng.lognormal(3, 0.3, 40), np.ones(40)
    table = size_table({"a": (sizes, volumes), "b": other}, log=log, bins=20)
    edges = edges_of(table)
    expected = np.histogram(sizes, edges, weights=volumes)[0] / volumes.sum()
    np.testing.assert_allclose(table["a"], expected)
    np.testing.assert_allclose(table["b"], np.histogram(other[0], edges)[0] / 40)
    np.testing.assert_allclose(table[["a_cumulative", "b_cumulative"]].iloc[-1], 1)
    steps = np.diff(np.log(edges)) if log else np.diff(edges)
    np.testing.assert_allclose(steps, steps[0])


@pytest.mark.parametrize("sizes", [[], [3.0], [0.0, 0.0], [np.inf, 2.0, np.nan]])
@pytest.mark.parametrize("log", [False, True])
def test_few_or_odd_sizes_give_a_distribution_still(sizes: list[float], log: bool) -> None:
    table = size_table({"share": (np.array(sizes), np.ones(len(sizes)))}, log=log)
    assert np.isfinite(table.to_numpy()).all()
    assert (table["to"] > table["from"]).all()


def test_shares_are_drawn_in_per_cent() -> None:
    (axes,) = add_plots(new_figure(3, 3), 1)
    draw_sizes(axes, [0, 1, 2], [0.25, 0.75], PAPER[0], "cost in $", cumulative=True)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0, 25, 100])
    assert axes.lines[0].get_label() == r"cost in \$"
    draw_sizes(axes, [0, 1, 2], [0.25, 0.75], PAPER[0], fill=0.2)
    assert [list(each.get_data().values) for each in axes.patches] == [[25, 75]] * 2
    draw_rising(axes, np.array([3.0, 1.0]), np.array([3.0, 1.0]), PAPER[1], "b")
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[1, 25], [3, 100]])


@pytest.mark.parametrize("words", [1, 30, 90])
def test_a_title_fits_above_the_plots_however_long_it_is(words: int) -> None:
    figure = new_figure(5, 3)
    (axes,) = add_plots(figure, 1)
    frame(axes, "equivalent diameter (µm)", "share (%)")
    add_title(figure, "WIDE words 10 µm wide " * words)
    figure.draw_without_rendering()
    title = figure._suptitle.get_window_extent()
    assert title.x0 >= 0
    assert title.x1 <= figure.bbox.x1
    assert title.y1 <= figure.bbox.y1
    plot = axes.get_tightbbox()
    assert plot.y1 <= title.y0
    assert plot.y0 >= 0
    assert axes.get_window_extent().height > 100
    assert all(line[-1:].isalpha() for line in figure._suptitle.get_text().splitlines())


@pytest.mark.parametrize(
    "name",
    ["W" * 150, "core_" * 40, "Prüfkörper № 7 — Größe β", "first\nsecond\r\nthird\tline",
     r"$\\frac{1}{2}$ 100 % _^{}", "م" * 60, "e\u0301" * 40],
)  # fmt: skip
def test_a_title_with_any_name_of_a_scan_is_whole(name: str) -> None:
    figure = new_figure(5, 3)
    add_plots(figure, 1)
    add_title(figure, f"Porosity 12.3 % of {name}, 183 pores, median diameter 41.5 µm")
    png(figure)
    figure.draw_without_rendering()
    title = figure._suptitle.get_window_extent()
    assert title.x0 >= 0
    assert title.x1 <= figure.bbox.x1
    assert title.y1 <= figure.bbox.y1
    text = figure._suptitle.get_text().replace("\N{NO-BREAK SPACE}", " ").replace("\n", " ")
    assert text.startswith("Porosity 12.3 % of ")
    assert text.endswith("183 pores, median diameter 41.5 µm")


@pytest.mark.parametrize("settled", [None, 3.0])
def test_cubes_of_the_sample_are_drawn_by_their_edge(settled: float | None) -> None:
    table = pd.DataFrame({"edge": [2, 4], "porosity": [0.1, 0.2], "porosity_low": [0.0, 0.1],
                          "porosity_high": [0.3, 0.3]})  # fmt: skip
    (axes,) = add_plots(new_figure(3, 3), 1)
    draw_rev(axes, table, "porosity", "porosity (%)", "µm", settled, PAPER)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [10, 20])
    heading = axes.get_legend().get_title().get_text()
    assert heading == ("porosity not settled" if settled is None else "")
    assert len(axes.lines) == (1 if settled is None else 2)


def test_the_same_figure_gives_the_same_file() -> None:
    def drawn() -> tuple[bytes, str]:
        figure = new_figure(3, 3)
        add_plots(figure, 1)[0].plot([1, 2])
        return png(figure), svg(figure)

    first, second = drawn(), drawn()
    assert first[0] == second[0]
    assert first[1].startswith("<svg")


RNG = np.random.default_rng(0)


def picture(shape, **known):
    before = Volume(RNG.normal(size=shape).astype(np.float32), **known)
    labels = before.replace((before.data > 1).astype(np.int32) * RNG.integers(1, 30, shape))
    return before, labels


def size(png):
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


@pytest.mark.parametrize(
    ("shape", "known"),
    [
        ((40, 50), {}),
        ((9, 40, 50), {"spacing": (5, 0.5, 0.5), "unit": "mm"}),
        ((9, 40, 20), {"spacing": (1, 3, 1), "unit": "um"}),
        ((2, 3, 5, 20, 20), {}),
        ((1, 1), {}),
        ((1, 400, 2), {}),
    ],
)
def test_a_report_is_drawn_for_every_kind_of_volume(shape, known):
    before, labels = picture(shape, **known)
    width, height = size(pore_picture(before, before, labels, [1.0, 2.0, 4.0], title="scan"))
    assert 1500 < width < 2500
    assert 300 < height < 1500


def test_without_a_denoised_volume_the_report_has_one_picture_less():
    before, labels = picture((9, 40, 50))
    with_it = size(pore_picture(before, before, labels, [1.0]))
    without = size(pore_picture(before, None, labels, [1.0]))
    assert without[0] < with_it[0]


@pytest.mark.parametrize("diameters", [[], [3.0], [np.nan, 2.0], np.ones(5000)])
def test_any_number_of_pores_is_drawn(diameters):
    before, labels = picture((40, 50))
    size(pore_picture(before, None, labels, diameters))


def test_a_constant_or_nan_plane_is_drawn():
    flat = Volume(np.full((20, 20), np.nan))
    size(pore_picture(flat, Volume(np.zeros((20, 20))), Volume(np.zeros((20, 20), int)), []))


def test_images_of_different_shape_are_refused():
    with pytest.raises(InputError, match="one shape"):
        pore_picture(
            Volume(np.zeros((5, 6))), None, Volume(np.zeros((5, 7), np.int32)), [], title="x"
        )


def test_drawing_touches_no_global_state_and_works_in_a_thread():
    before, labels = picture((40, 50))
    pyplot = "matplotlib.pyplot" in sys.modules
    drawn = []
    thread = threading.Thread(target=lambda: drawn.append(pore_picture(before, None, labels, [])))
    thread.start()
    thread.join()
    size(drawn[0])
    assert ("matplotlib.pyplot" in sys.modules) == pyplot


def test_the_solid_is_transparent_and_labels_differ_in_colour():
    colours = _coloured(np.array([[0, 1, 2, 3], [0, 4, 5, 6]]))
    assert (colours[:, 0, 3] == 0).all()
    assert len({tuple(c) for c in colours[:, 1:].reshape(-1, 4)}) == 6


@pytest.mark.parametrize(
    ("length", "bar"), [(1, 1), (1.99, 1), (2, 2), (49, 20), (50, 50), (0.0123, 0.01)]
)
def test_scale_bars_haveround_steps(length, bar):
    assert round_step(length) == pytest.approx(bar)


def test_the_same_result_gives_the_same_bytes():
    before, labels = picture((40, 50))
    first, second = (pore_picture(before, None, labels, [1.0, 2.0]) for _ in range(2))
    assert io.BytesIO(first).read() == second
