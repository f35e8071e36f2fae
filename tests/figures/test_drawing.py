"""What plots have in common: titles, distributions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hushpore.figures.drawing import (
    PAPER,
    add_plots,
    add_title,
    draw_rev,
    draw_rising,
    draw_sizes,
    edges_of,
    frame,
    new_figure,
    png,
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
