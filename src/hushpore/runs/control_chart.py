"""The control chart of a batch: each figure with acceptance limits, by scan, with 3-sigma limits.

The chart of individual values of W. A. Shewhart: the centre line is the mean, and sigma is the mean
difference of successive scans over 1.128, so that a drift over the batch does not widen the limits.
ISO 7870-2:2023, "Control charts, part 2: Shewhart control charts".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.formatting import in_figure, on_one_line
from hushpore.figures.drawing import PAPER, add_legend, frame, new_figure, png
from hushpore.pores.forms.limits import FAILED, NOT_DECIDED, PASSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

#: Mean range of two values of the normal distribution, in standard deviations.
_RANGE_OF_TWO = 1.128

#: Characters of the name of a scan in a plot; longer ones are cut.
_LONGEST = 24

#: Colour of acceptance limits.
_LIMIT = "#b2182b"

#: Scans above which a plot names no scan.
_NAMED = 40


def control_table(acceptances: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Return the control chart of a batch as a table.

    Parameters
    ----------
    acceptances : mapping of str to mapping
        By name of the scan, in their order, the entry ``acceptance`` of its record; see
        `hushpore.pores.forms.limits.judged`.

    Returns
    -------
    pandas.DataFrame
        One row per limited figure and scan that has it: ``symbol``, ``unit``, ``scan``, ``value``,
        ``verdict``, ``min`` and ``max`` (the acceptance limits, NaN for none), ``centre``,
        ``control_low`` and ``control_high`` (NaN for a single scan), and ``is_outside``: whether
        the value is beyond the control limits.

    Examples
    --------
    >>> line = {"symbol": "P", "unit": "%", "min": None, "max": 2.0, "verdict": "passed"}
    >>> found = {name: {"lines": [{**line, "value": value}]}
    ...          for name, value in (("a", 1.0), ("b", 1.2), ("c", 1.1))}
    >>> control_table(found)[["centre", "control_low", "control_high"]].round(2).values[0].tolist()
    [1.1, 0.7, 1.5]
    """
    import pandas as pd

    columns = ["symbol", "unit", "scan", "value", "verdict", "min", "max"]
    rows = [
        {**line, "scan": scan}
        for scan, acceptance in acceptances.items()
        for line in acceptance["lines"]
        if line["value"] is not None
    ]
    table = pd.DataFrame(rows, columns=columns)
    numbers = ["value", "min", "max"]
    table[numbers] = table[numbers].astype(float)
    order = {symbol: place for place, symbol in enumerate(dict.fromkeys(table["symbol"]))}
    table = table.sort_values("symbol", key=lambda each: each.map(order), kind="stable")
    of_each = table.groupby(["symbol", "unit"], sort=False)["value"]
    table["centre"] = of_each.transform("mean")
    sigma = of_each.transform(lambda values: values.diff().abs().mean()) / _RANGE_OF_TWO
    table["control_low"] = table["centre"] - 3 * sigma
    table["control_high"] = table["centre"] + 3 * sigma
    table["is_outside"] = (table["value"] - table["centre"]).abs() > 3 * sigma
    return table.reset_index(drop=True)


def control_chart(table: pd.DataFrame) -> bytes:
    """Return the plots of `control_table` as a PNG file, one for each figure."""
    parts = list(table.groupby(["symbol", "unit"], sort=False))
    figure = new_figure(9, 2.6 * len(parts) + 0.8)
    # below each other, so that scans are too
    panels = figure.subplots(len(parts), 1, squeeze=False)[:, 0]
    for axes, ((symbol, unit), own) in zip(panels, parts, strict=True):
        place, first = np.arange(len(own)), own.iloc[0]
        axes.plot(place, own["value"], "-", color=PAPER[0], linewidth=0.8)
        marks = {PASSED: ("o", PAPER[0]), NOT_DECIDED: ("D", "0.4"), FAILED: ("s", _LIMIT)}
        for verdict, (mark, colour) in marks.items():
            chosen = own[(own["verdict"] == verdict).to_numpy()]
            at = place[(own["verdict"] == verdict).to_numpy()]
            axes.plot(at, chosen["value"], mark, color=colour, ms=5, label=verdict)
        is_outside = own["is_outside"].to_numpy()
        ring = {"mfc": "none", "mec": "black", "ms": 11, "label": "beyond 3 sigma"}
        axes.plot(place[is_outside], own["value"][is_outside], "o", **ring)
        axes.axhline(first["centre"], color="0.5", linewidth=1, label="mean")
        for end, label in (("control_low", ""), ("control_high", "mean ± 3 sigma")):
            axes.axhline(first[end], color="0.5", linewidth=1, linestyle="--", label=label)
        for end in ("min", "max"):
            if np.isfinite(first[end]):
                axes.axhline(first[end], color=_LIMIT, label=f"accepted {end}")
        frame(axes, "", in_figure(f"{symbol} ({unit})" if unit else symbol))
        names = [in_figure(on_one_line(str(name), _LONGEST)) for name in own["scan"]]
        if len(names) <= _NAMED:
            axes.set_xticks(place, names, fontsize=7, rotation=30, ha="right")
        axes.margins(y=0.15)
        if axes is panels[0]:
            add_legend(axes, loc="center left", bbox_to_anchor=(1, 0.5))
    return png(figure)
