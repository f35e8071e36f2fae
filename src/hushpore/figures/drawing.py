"""Common parts of plots: colours, axes, titles, size distributions and file formats.

Drawing functions take axes: those of a picture on paper, or of a canvas in the window, where ink
and ground have the colours of its theme.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.formatting import readable_number, readable_percent
from hushpore.base.safe_text import in_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushpore.base.arrays import Float64s


#: Colour of text and lines, and of minor elements, on paper.
INK, FAINT = "#1f2933", "#7b8794"

#: Colours on paper, the first two for comparisons; distinguishable by the colour-blind.
PAPER = ("#3b7ea1", "#c2703d", "#5b8c5a", "#8b6bb1", "#b0535f", "#7a7a7a")

#: Colours in the window: visible on dark and light ground, distinguishable by the colour-blind.
SCREEN = ("#4c9be8", "#f5a623", "#9aa5b1")

#: Default number of bins of a distribution.
BINS = 30

#: Height of the characters of a title, in points.
_TITLE = 12

#: Mean width of a character relative to its height: 0.62 in sentences, 0.7 in lines with many
#: capitals (DejaVu Sans, bold).
_WIDTH = 0.72

#: Dots per inch of a picture, and of one for a publication.
DPI, PUBLICATION_DPI = 150, 300

#: Widths of a figure in a journal, in inches: one column of 90 mm, two of 190 mm.
COLUMNS = {"single": 90 / 25.4, "double": 190 / 25.4}

#: File formats of a figure for a publication.
FORMATS = ("png", "svg", "pdf")


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def add_plots(figure: Figure, count: int) -> list[Axes]:
    """Add a number of plots side by side."""
    return list(figure.subplots(1, count, squeeze=False)[0])


def add_title(figure: Figure, text: str) -> None:
    """Write a title above all plots, in several lines if needed; the figure grows with them."""
    room = int(72 * figure.get_figwidth() / (_WIDTH * _TITLE))
    # keep a number and its unit on one line
    text = re.sub(r"(?<=\d) (?=\S)", "\N{NO-BREAK SPACE}", text)
    for _ in range(3):
        lines = textwrap.wrap(text, max(room, 20))
        written = "\n".join(map(in_figure, lines))
        title = figure.suptitle(written, fontsize=_TITLE, color=INK, weight="bold")
        width = title.get_window_extent().width / figure.bbox.width
        if width <= 1:
            break
        # letters wider than usual, as in a name in capitals
        room = int(0.98 * room / width)
    figure.set_figheight(figure.get_figheight() + (len(lines) - 1) * 1.25 * _TITLE / 72)


def frame(axes: Axes, across: str, up: str = "") -> None:
    """Label both axes, and draw no box around the plot."""
    axes.set_xlabel(in_figure(across), color=INK, fontsize=9)
    axes.set_ylabel(in_figure(up), color=INK, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=FAINT, labelsize=8, labelcolor=INK)


def add_legend(axes: Axes, **more: Any) -> None:
    """Add a legend; ``**more``: as for matplotlib's legend."""
    axes.legend(**{"frameon": False, "fontsize": 8, "title_fontsize": 8, **more})


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """Return a figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": "hushpore"})
    return buffer.getvalue()


def svg(figure: Figure) -> str:
    """Return a figure as SVG, for embedding in a page."""
    buffer = io.StringIO()
    # no date: the same result gives the same page
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    drawn = buffer.getvalue()
    return drawn[drawn.index("<svg") :]


def publication_size(width: str) -> tuple[float, float]:
    """Return width and height of a figure for a publication, in inches; `width`: of `COLUMNS`."""
    return COLUMNS[width], COLUMNS[width] * (0.8 if width == "single" else 0.5)


def publication_file(figure: Figure, kind: str) -> bytes:
    """Return a figure as a file for a publication; `kind`: of `FORMATS`, PNG has 300 dpi.

    Fonts are embedded in PDF as TrueType, which journals ask for. No date is written: the same
    figure gives the same file.
    """
    import matplotlib as mpl

    dates = {"png": {"Software": "hushpore"}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with mpl.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "hushpore"}):
        figure.savefig(buffer, format=kind, dpi=PUBLICATION_DPI, metadata=dates[kind])
    return buffer.getvalue()


def round_step(size: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is at most `size`.

    >>> round_step(49), round_step(0.0123)
    (20.0, 0.01)
    """
    power = 10.0 ** math.floor(math.log10(size)) if size > 0 else 1.0
    return max(step * power for step in (1, 2, 5) if step * power <= size * (1 + 1e-9) or step == 1)


# ---- distributions


def bins_for(count: int) -> int:
    """Return the number of bins for so many values."""
    return int(np.clip(round(2 * math.cbrt(count)), 5, 40))


def bin_edges(values: Float64s, log: bool, bins: int) -> Float64s:
    """Return the edges of bins of equal width, on a logarithmic axis if `log`, for all values."""
    low, high = (values.min(), values.max()) if values.size else (1.0, 2.0)
    if low == high:
        low, high = (low * 0.9, low * 1.1) if low else (0.0, 1.0)
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)
    # rounding must not exclude the smallest and the largest value
    edges[0], edges[-1] = low, high
    return edges


def size_table(
    samples: Mapping[str, tuple[Float64s, Float64s]], *, log: bool = False, bins: int = BINS
) -> pd.DataFrame:
    """Return the size distributions of some samples.

    `samples`: sizes by name, with their weights: 1 for distributions by number, volumes for those
    by volume. Sizes that are not finite, or not positive on a logarithmic axis, are left out.
    `log`: bins of equal width on a logarithmic axis.
    Returns: ``from`` and ``to`` of each bin, the same for all samples; for each sample its shares
    under its name, and ``NAME_cumulative``, the share up to the end of the bin.
    """
    import pandas as pd

    usable = {}
    for name, (sizes, weights) in samples.items():
        is_usable = np.isfinite(sizes) & ((sizes > 0) | (not log))
        usable[name] = sizes[is_usable], weights[is_usable]
    edges = bin_edges(np.concatenate([sizes for sizes, _ in usable.values()]), log, bins)
    table = pd.DataFrame({"from": edges[:-1], "to": edges[1:]})
    for name, (sizes, weights) in usable.items():
        share = np.histogram(sizes, edges, weights=weights)[0].astype(np.float64)
        table[name] = share / (share.sum() or 1)
    for name in usable:
        table[f"{name}_cumulative"] = table[name].cumsum()
    return table


def draw_sizes(
    axes: Axes,
    edges: Sequence[float] | Float64s,
    shares: Sequence[float] | Float64s,
    colour: str,
    label: str = "",
    *,
    cumulative: bool = False,
    fill: float = 0.0,
) -> None:
    """Draw shares by size in per cent, as steps or as the share up to each size.

    `edges`: of the bins. `shares`: one for each bin. `fill`: opacity of the area below the steps;
    with 1 there is no outline.
    """
    percent, label = 100 * np.asarray(shares), in_figure(label)
    if cumulative:
        axes.plot(edges, np.r_[0, percent.cumsum()], color=colour, linewidth=1.8, label=label)
        return
    if fill:
        axes.stairs(percent, edges, color=colour, alpha=fill, fill=True)
    if fill < 1:
        axes.stairs(percent, edges, color=colour, linewidth=1.8, label=label)


def edges_of(table: pd.DataFrame, start: str = "from", end: str = "to") -> Float64s:
    """Return the edges of the bins of a table."""
    edges: Float64s = np.r_[table[start], table[end].iloc[-1:]]
    return edges


def draw_rising(axes: Axes, sizes: Float64s, weights: Float64s, colour: str, label: str) -> None:
    """Draw the cumulative share by size, in per cent, without bins."""
    order = np.argsort(sizes)
    share = 100 * np.cumsum(weights[order]) / (weights.sum() or 1)
    axes.step(sizes[order], share, color=colour, label=in_figure(label), where="post")


def draw_rev(
    axes: Axes,
    table: pd.DataFrame,
    name: str,
    title: str,
    unit: str,
    settled: float | None,
    colours: tuple[str, ...],
) -> None:
    """Draw a quantity of cubes of the sample against their edge, and the REV edge length.

    `name`: column of the table; a porosity is drawn in per cent. `settled`: the REV edge length;
    None if there is none.
    """
    factor = 100 if name == "porosity" else 1
    low, mean, high = (factor * table[f"{name}{end}"] for end in ("_low", "", "_high"))
    axes.fill_between(table["edge"], low, high, color=colours[0], alpha=0.3,
                      label="nine cubes in ten")  # fmt: skip
    axes.plot(table["edge"], mean, color=colours[0], linewidth=1.8, label="mean")
    if settled is not None:
        label = in_figure(f"porosity settled from {readable_number(settled)} {unit}")
        axes.axvline(settled, color=colours[1], linewidth=1.5, label=label)
    frame(axes, f"edge of a cube ({unit})", title)
    add_legend(axes, title="porosity not settled" if settled is None else None)


def draw_transport(axes: Axes, table: pd.DataFrame, unit: str, colours: Sequence[str]) -> None:
    """Draw the mean concentration or pressure along each axis.

    `table`: see `hushpore.pores.transport.result.Transport.profile`.
    """
    names = {"diffusion": "concentration", "flow": "pressure"}
    for (kind, axis), own in table.groupby(["transport", "axis"], sort=False):
        style = "-" if kind == "diffusion" else "--"
        label, colour = f"{names[kind]} along {axis}", colours["zyx".index(axis)]
        axes.plot(own["position"], own["level"], style, color=colour, label=label)
    frame(axes, f"position ({unit})", "mean in each slice")
    add_legend(axes)


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
