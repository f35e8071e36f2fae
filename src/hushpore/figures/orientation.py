"""Orientation of pores: a rose of azimuths, and the distribution of inclinations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.figures.drawing import add_legend, edges_of, frame

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from hushpore.base.arrays import Float64s

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
