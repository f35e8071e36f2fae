"""Classes and percentiles of size, against counting and distributions that are known."""

from __future__ import annotations

import numpy as np
import pytest

import hushpore
from hushpore import Volume
from hushpore.pores.forms.tables import class_limits, size_classes, size_statistics


def of_diameters(diameter: np.ndarray) -> dict[str, np.ndarray]:
    return {"equivalent_diameter": diameter, "volume": np.pi / 6 * diameter**3}


@pytest.mark.parametrize(
    ("lowest", "highest", "expected"),
    [
        (0.3, 4, [0.2, 0.5, 1, 2, 5]),
        (1, 1, [1, 2]),
        (0.05, 0.05, [0.05, 0.1]),
        (19, 21, [10, 20, 50]),
        (999, 1001, [500, 1000, 2000]),
    ],
)
def test_limits_hold_the_range(lowest: float, highest: float, expected: list[float]) -> None:
    assert class_limits(lowest, highest).tolist() == expected


def test_every_pore_is_in_one_class() -> None:
    diameter = np.random.default_rng(0).lognormal(0, 1, 500)
    pores = of_diameters(diameter)
    table = size_classes(pores, 1e4)
    for row, (low, high) in enumerate(zip(table["diameter_from"], table["diameter_to"],
                                          strict=True)):  # fmt: skip
        inside = (diameter >= low) & (diameter < high)
        assert table["number"][row] == inside.sum()
        assert table["volume"][row] == pytest.approx(pores["volume"][inside].sum())
    assert table["number"].sum() == 500
    assert table["number_share"].sum() == pytest.approx(1)
    assert table["porosity"].sum() == pytest.approx(pores["volume"].sum() / 1e4)


def test_a_log_normal_distribution_is_found_by_number_and_by_volume() -> None:
    # by volume the median is larger by exp(3 sigma**2) (Hatch and Choate 1929)
    size = np.exp(0.4 * np.random.default_rng(1).normal(size=200_000)) * 7
    found = size_statistics(of_diameters(size))
    assert found["weighting"] == ["number", "volume"]
    assert found["lognormal_median"] == pytest.approx([7, 7 * np.exp(3 * 0.16)], rel=0.02)
    assert found["lognormal_geometric_deviation"] == pytest.approx([np.exp(0.4)] * 2, rel=0.02)
    assert max(found["lognormal_distance"]) < 0.02
    expected = np.quantile(size, (0.1, 0.5, 0.9))
    assert [found[each][0] for each in ("d10", "d50", "d90")] == pytest.approx(expected, rel=1e-3)


def test_two_sizes_are_not_log_normal_and_none_have_no_fit() -> None:
    two = size_statistics(of_diameters(np.repeat([1.0, 9.0], 50)))
    assert two["lognormal_distance"][0] > 0.3
    assert np.isnan(size_statistics(of_diameters(np.full(5, 2.0)))["lognormal_distance"]).all()
    empty = of_diameters(np.zeros(0))
    assert np.isnan(size_statistics(empty)["d50"]).all()
    assert len(size_classes(empty, 1.0)["number"]) == 0


def test_they_come_with_a_form() -> None:
    void = np.zeros((20, 20, 20), bool)
    void[5:9, 5:9, 5:9] = True
    found = hushpore.segment_pores(Volume(void, spacing=0.1, unit="mm"), report_form="bone")
    tables = found.files().tables
    assert tables["size_classes"]["number"].tolist() == [1]
    assert tables["size_statistics"]["d50"].tolist() == [found.pores["equivalent_diameter"][0]] * 2
