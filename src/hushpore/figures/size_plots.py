"""Plots of sizes, with D10, D50, D90 and a log-normal fit, and of the orientation of pores."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.distributions import (
    PERCENTILES,
    LognormalFit,
    cumulative,
    lognormal_fit,
    percentiles,
)
from hushpore.base.formatting import readable_number
from hushpore.figures.drawing import add_legend, bins_for, draw_sizes, edges_of, frame, size_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from hushpore.base.arrays import Float64s


#: Most sizes of a cumulative curve, half of them evenly by number and half by weight.
_POINTS = 1000

#: Points of the curve of a fit.
_CURVE = 200


def distribution_table(
    sizes: Float64s,
    weights: Float64s,
    *,
    is_cumulative: bool = False,
    log: bool = False,
    bins: int | None = None,
) -> pd.DataFrame:
    """Return what `draw_distribution` draws.

    Parameters
    ----------
    sizes, weights : numpy.ndarray
        (sizes,), float64; 1 for a distribution by number, volumes for one by volume. Sizes that are
        not finite are left out, and on a logarithmic axis those that are not positive.
    is_cumulative : bool
        The share up to each size, without bins; otherwise the share of each bin.
    log : bool
        Bins of equal width on a logarithmic axis.
    bins : int, optional
        Number of bins; by default from the number of sizes.

    Returns
    -------
    pandas.DataFrame
        ``from``, ``to`` and ``share`` of each bin; or ``size`` and ``cumulative``, thinned to 1,000
        sizes. ``lognormal`` is the same of the fit, if all sizes are positive and not all are
        equal.

    Examples
    --------
    >>> distribution_table(np.array([1.0, 2.0, 4.0]), np.ones(3), bins=3)["share"].round(2).tolist()
    [0.33, 0.33, 0.33]
    """
    import pandas as pd

    sizes, weights = _usable(sizes, weights, log)
    fit = _fit_of(sizes, weights)
    if is_cumulative:
        rising, shares = cumulative(sizes, weights)
        kept = np.arange(rising.size)
        if rising.size > _POINTS:
            by_weight = np.searchsorted(shares, np.linspace(0, 1, _POINTS // 2))
            by_number = np.linspace(0, rising.size - 1, _POINTS // 2).round().astype(np.int64)
            kept = np.union1d(np.minimum(by_weight, rising.size - 1), by_number)
        table = pd.DataFrame({"size": rising[kept], "cumulative": shares[kept]})
        if fit is not None:
            table["lognormal"] = fit.up_to(table["size"])
        return table
    table = size_table(
        {"share": (sizes, weights)}, log=log, bins=bins_for(sizes.size) if bins is None else bins
    ).drop(columns="share_cumulative")
    if fit is not None:
        table["lognormal"] = np.diff(fit.up_to(np.maximum(edges_of(table), np.finfo(float).tiny)))
    return table


def draw_distribution(
    axes: Axes,
    sizes: Float64s,
    weights: Float64s,
    table: pd.DataFrame,
    unit: str,
    colours: tuple[str, ...],
    *,
    log: bool = False,
    fitted: bool = True,
) -> None:
    """Draw a size distribution in per cent, with lines at D10, D50 and D90.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    sizes, weights : numpy.ndarray
        As for `distribution_table`.
    table : pandas.DataFrame
        What `distribution_table` returns of them.
    unit : str
        Unit of sizes, for the legend.
    colours : tuple of str
        At least three: of the distribution, its fit, and the lines.
    log : bool
        A logarithmic horizontal axis.
    fitted : bool
        Draw the log-normal fit, and name its parameters and its Kolmogorov-Smirnov distance.
    """
    sizes, weights = _usable(sizes, weights, log)
    is_cumulative = "cumulative" in table
    if is_cumulative:
        if len(table):
            # the first size is a step from 0
            x, y = np.r_[table["size"].iloc[0], table["size"]], np.r_[0, 100 * table["cumulative"]]
            axes.plot(x, y, color=colours[0], linewidth=1.8, drawstyle="steps-post")
    else:
        draw_sizes(axes, edges_of(table), table["share"], colours[0], fill=0.45)
    if log:
        axes.set_xscale("log")
    ends = axes.get_xlim()
    fit = _fit_of(sizes, weights) if fitted else None
    if fit is not None:
        low, high = max(ends[0], sizes.min() / 10), ends[1]
        at = np.geomspace(low, high, _CURVE) if log else np.linspace(low, high, _CURVE)
        if is_cumulative:
            share = fit.up_to(at)
        elif log:
            half = math.sqrt(table["to"].iloc[0] / table["from"].iloc[0])
            share = fit.up_to(at * half) - fit.up_to(at / half)
        else:
            half = (table["to"].iloc[0] - table["from"].iloc[0]) / 2
            share = fit.up_to(at + half) - fit.up_to(np.maximum(at - half, at / 1e9))
        label = (
            f"log-normal: median {_three(fit.median)} {unit},\n"
            f"GSD {fit.geometric_deviation:.2f}, KS {fit.distance:.3f}"
        )
        axes.plot(at, 100 * share, color=colours[1], linewidth=1.3, label=label)
        axes.set_xlim(ends)
    axes.set_ylim(0, 101 if is_cumulative else None)
    if not sizes.size:
        return
    for level, place in zip(PERCENTILES, percentiles(sizes, weights), strict=True):
        label = f"D{level} {_three(place)} {unit}"
        style = {10: ":", 50: "-", 90: "--"}[level]
        axes.axvline(place, color=colours[2], linewidth=1.0, linestyle=style, label=label)
    add_legend(axes, fontsize=7)


def draw_thickness(
    axes: Axes, table: pd.DataFrame, unit: str, colours: tuple[str, ...], *, is_cumulative: bool
) -> None:
    """Draw the distributions of the local thickness of void and solid.

    Parameters
    ----------
    axes : matplotlib.axes.Axes
        Where to draw.
    table : pandas.DataFrame
        As `hushpore.pores.result.Pores.thickness_distribution`.
    unit : str
        Unit of lengths, as it is written.
    colours : tuple of str
        Of void and solid.
    is_cumulative : bool
        The share up to each thickness.
    """
    titles = {"void": "pores", "solid": "solid"}
    for (phase, title), colour in zip(titles.items(), colours, strict=False):
        rows = table[table["phase"] == phase]
        if not rows.empty:
            edges = edges_of(rows, "thickness_from", "thickness_to")
            draw_sizes(axes, edges, rows["volume_share"], colour, title, cumulative=is_cumulative)
    up_to = " up to this thickness" if is_cumulative else ""
    frame(axes, f"local thickness ({unit})", f"share of the volume{up_to} (%)")
    axes.set_ylim(bottom=0)
    add_legend(axes, labelcolor="linecolor")


def _usable(sizes: Float64s, weights: Float64s, log: bool) -> tuple[Float64s, Float64s]:
    is_usable = np.isfinite(sizes) & ((sizes > 0) | (not log))
    return sizes[is_usable], weights[is_usable]


def _fit_of(sizes: Float64s, weights: Float64s) -> LognormalFit | None:
    """Return the fit, or None if there is none or all sizes are equal."""
    fit = lognormal_fit(sizes, weights)
    return None if fit is None or math.isnan(fit.distance) else fit


def _three(value: float) -> str:
    """Return a size in three digits."""
    return readable_number(value, 3)


#: Sectors of half a turn, and of the quarter turn from the first axis into its plane.
_AZIMUTHS, _INCLINATIONS = 18, 9


def azimuth_table(axes: Float64s) -> pd.DataFrame:
    """Return the shares of pores by the azimuth of their major axis.

    Parameters
    ----------
    axes : numpy.ndarray
        (pores, 2) or (pores, 3), float64: unit vectors (z, y, x), either sense; NaN for pores
        without a shape, which are left out. Each pore counts by how far its axis lies in the plane
        of y and x: an axis along z has no azimuth.

    Returns
    -------
    pandas.DataFrame
        ``angle_from`` and ``angle_to`` in degrees from x towards y, 0 to 180, and ``share``.

    Examples
    --------
    >>> table = azimuth_table(np.array([[0.0, 0.1, 1.0], [0.0, -0.1, -1.0]]))
    >>> table["share"].idxmax(), float(table["share"].max())
    (0, 1.0)
    """
    import pandas as pd

    y, x = _known(axes)[:, -2:].T
    # ends close to 180 degrees may be rounded to it
    angle = np.minimum(np.degrees(np.arctan2(y, x)) % 180, np.nextafter(180, 0))
    edges = np.linspace(0, 180, _AZIMUTHS + 1)
    share = np.histogram(angle, edges, weights=np.hypot(y, x))[0]
    return pd.DataFrame(
        {"angle_from": edges[:-1], "angle_to": edges[1:], "share": share / (share.sum() or 1)}
    )


def inclination_table(axes: Float64s) -> pd.DataFrame:
    """Return the shares of pores by the angle between their major axis and z.

    Parameters
    ----------
    axes : numpy.ndarray
        (pores, 3), as for `azimuth_table`.

    Returns
    -------
    pandas.DataFrame
        ``angle_from`` and ``angle_to`` in degrees, 0 to 90, ``share``, and ``random``: the share if
        no direction is preferred.

    Examples
    --------
    >>> inclination_table(np.eye(3))["share"].iloc[[0, -1]].round(2).tolist()
    [0.33, 0.67]
    """
    import pandas as pd

    angle = np.degrees(np.arccos(np.clip(np.abs(_known(axes)[:, 0]), 0, 1)))
    edges = np.linspace(0, 90, _INCLINATIONS + 1)
    share = np.histogram(angle, edges)[0]
    return pd.DataFrame(
        {
            "angle_from": edges[:-1],
            "angle_to": edges[1:],
            "share": share / max(share.sum(), 1),
            "random": -np.diff(np.cos(np.radians(edges))),
        }
    )


def draw_rose(axes: Axes, table: pd.DataFrame, colour: str) -> None:
    """Draw azimuths as a rose, each in both senses; `axes`: polar, x to the right, y downwards."""
    edges, share = np.radians(edges_of(table, "angle_from", "angle_to")), 100 * table["share"]
    middle, width = (edges[:-1] + edges[1:]) / 2, np.diff(edges)
    for turn in (0, np.pi):
        axes.bar(middle + turn, share, width, color=colour, alpha=0.55, edgecolor=colour)
    # as slices are shown
    axes.set_theta_direction(-1)  # type: ignore[attr-defined]
    axes.set_xticks(np.radians([0, 90, 180, 270]), ["x", "y", "-x", "-y"])
    axes.tick_params(labelsize=8)
    axes.set_xlabel("major axes of pores in the plane of x and y (%)", fontsize=8)


def draw_inclination(axes: Axes, table: pd.DataFrame, colours: tuple[str, ...]) -> None:
    """Draw inclinations, and what they would be if no direction were preferred."""
    edges = edges_of(table, "angle_from", "angle_to")
    axes.stairs(100 * table["share"], edges, color=colours[0], fill=True, alpha=0.45)
    axes.stairs(100 * table["share"], edges, color=colours[0], linewidth=1.8, label="pores")
    axes.stairs(100 * table["random"], edges, color=colours[1], linewidth=1.3,
                label="no preferred direction")  # fmt: skip
    frame(axes, "angle between major axis and z (°)", "share of pores (%)")
    add_legend(axes)


def _known(axes: Float64s) -> Float64s:
    known: Float64s = axes[~np.isnan(axes).any(axis=1)]
    return known
