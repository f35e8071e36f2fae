from __future__ import annotations

import pytest

from hushpore.figures.drawing import PAPER, add_plots, draw_noise_match, new_figure, svg

MATCH = {
    "share": 0.9, "image_lost": 0.1, "noise_left": 0.01, "frequencies": [0.1, 0.3],
    "noise": [1.5, 0.5], "flat": [1.4, 0.5], "edges": [2.5, 0.5],
}  # fmt: skip


def test_the_spectra_are_drawn_over_frequency() -> None:
    figure = new_figure(4, 3)
    (axes,) = add_plots(figure, 1)
    draw_noise_match(axes, MATCH, PAPER)
    lines = {line.get_label(): line for line in axes.lines}
    for label, name in (("noise", "noise"), ("flat regions", "flat"), ("edges", "edges")):
        assert list(lines[label].get_xdata()) == pytest.approx([0.1, 0.3])
        assert list(lines[label].get_ydata()) == pytest.approx(MATCH[name])
    assert "<svg" in svg(figure)
