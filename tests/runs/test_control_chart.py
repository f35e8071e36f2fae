"""The control chart of a batch, against figures computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hushpore.runs.control_chart import control_chart, control_table


def acceptances(values: list[float | None], unit: str = "mm") -> dict[str, Any]:
    line = {"symbol": "d_max", "unit": unit, "min": None, "max": 70.0, "verdict": "passed"}
    return {f"scan {n}": {"lines": [{**line, "value": v}]} for n, v in enumerate(values)}


def test_limits_are_those_of_the_viscosity_example_of_nist() -> None:
    # NIST/SEMATECH e-Handbook of Statistical Methods, 6.3.2.2: ten batches
    values = [49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6, 52.4, 53.6, 52.1]
    table = control_table(acceptances([*values]))
    assert table["centre"].iloc[0] == pytest.approx(50.81)
    assert table["control_high"].iloc[0] == pytest.approx(55.8041, abs=0.01)
    assert table["control_low"].iloc[0] == pytest.approx(45.8159, abs=0.01)
    assert not table["is_outside"].any()


def test_a_value_beyond_three_sigma_is_marked() -> None:
    table = control_table(acceptances([5.0, 5.1] * 12 + [6.0, *([5.0, 5.1] * 12)]))
    assert table.loc[table["is_outside"], "scan"].tolist() == ["scan 24"]
    assert control_chart(table).startswith(b"\x89PNG")


def test_a_single_scan_has_no_control_limits_and_one_without_a_value_is_left_out() -> None:
    table = control_table(acceptances([5.0, None]))
    assert table["scan"].tolist() == ["scan 0"]
    assert np.isnan(table["control_low"]).all()
    assert control_chart(table).startswith(b"\x89PNG")
