"""Orientations of pores in plots."""

from __future__ import annotations

import numpy as np
import pytest

from hushpore.figures.drawing import PAPER, new_figure
from hushpore.figures.size_plots import (
    azimuth_table,
    draw_inclination,
    draw_rose,
    inclination_table,
)


def directions(count: int = 100_000) -> np.ndarray:
    """Return unit vectors that prefer no direction, half of them missing."""
    axes = np.random.default_rng(0).normal(size=(count, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    axes[::2] = np.nan
    return axes


def test_random_axes_have_even_azimuths_and_the_random_inclinations() -> None:
    np.testing.assert_allclose(azimuth_table(directions())["share"], 1 / 18, atol=0.005)
    table = inclination_table(directions())
    np.testing.assert_allclose(table["share"], table["random"], atol=0.005)
    assert table["random"].sum() == pytest.approx(1)


@pytest.mark.parametrize(("degrees", "sector"), [(5, 0), (95, 9), (179.9999, 17), (185, 0)])
def test_either_sense_of_an_axis_is_in_one_sector(degrees: float, sector: int) -> None:
    y, x = np.sin(np.radians(degrees)), np.cos(np.radians(degrees))
    for axes in ([[y, x]], [[0.0, -y, -x]]):
        assert azimuth_table(np.array(axes))["share"][sector] == 1


def test_axes_along_z_have_an_inclination_and_no_azimuth() -> None:
    up = np.array([[1.0, 0.0, 0.0]])
    assert azimuth_table(up)["share"].sum() == 0
    assert inclination_table(-up)["share"][0] == 1


def test_a_rose_is_drawn_in_both_senses_and_none_without_pores() -> None:
    axes = new_figure(3, 3).add_subplot(projection="polar")
    draw_rose(axes, azimuth_table(np.array([[0.0, 1.0]])), PAPER[0])
    heights = [bar.get_height() for bar in axes.patches]
    assert sorted(heights)[-2:] == [100, 100]
    assert len(heights) == 36
    draw_rose(axes, azimuth_table(np.zeros((0, 3))), PAPER[0])
    draw_inclination(new_figure(3, 3).add_subplot(), inclination_table(np.zeros((0, 3))), PAPER)
