"""The plot of the residual's power spectrum against that of the noise, and its figures in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.formatting import readable_percent
from hushpore.figures.drawing import add_legend, frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes


def draw_noise_match(axes: Axes, match: Mapping[str, Any], colours: Sequence[str]) -> None:
    """Plot the power of the noise, and of the residual in flat regions and at edges.

    `match`: ``residual.match`` of a record. `colours`: three.
    """
    noise, flat, edges = colours[:3]
    at = match["frequencies"]
    axes.plot(at, match["noise"], color=noise, linewidth=2.5, label="noise")
    axes.plot(at, match["flat"], "o-", color=flat, markersize=3, linewidth=1, label="flat regions")
    axes.plot(at, match["edges"], "s-", color=edges, markersize=3, linewidth=1, label="edges")
    axes.set_ylim(bottom=0)
    frame(axes, "cycles per voxel", "power of the residual")
    add_legend(axes)


def noise_match_in_words(match: Mapping[str, Any]) -> str:
    """Return the figures in a sentence.

    >>> noise_match_in_words({"share": 0.93, "image_lost": 0.053, "noise_left": 0.02})
    'Residual matches noise: 93 % (image lost: 5.3 %, noise left: 2 % of the noise power).'
    """
    lost, left = readable_percent(match["image_lost"]), readable_percent(match["noise_left"])
    return (
        f"Residual matches noise: {readable_percent(match['share'])} (image lost: {lost}, noise "
        f"left: {left} of the noise power)."
    )
