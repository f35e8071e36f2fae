"""Common parts of plots: colours, axes, titles, size distributions and file formats.

Drawing functions take axes: those of a picture on paper, or of a canvas in the window, where ink
and ground have the colours of its theme.

Pictures of a result: slices before and after, with coloured labels, and pore sizes.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import (
    in_figure,
    readable_count,
    readable_number,
    readable_percent,
    readable_unit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushpore.base.arrays import Array, Float32s, Float64s
    from hushpore.base.volume import Volume

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


def draw_noise(figure: Any, curves: pd.DataFrame, match: dict[str, Any] | None = None) -> None:
    """Plot noise, and the residual of a denoising, if any.

    `curves`: from `hushpore.denoising.noise.noise_curves`. `match`: as for `draw_noise_match`.
    """
    kinds = {"correlation": "Distance, voxels", "spectrum": "Cycles per voxel"}
    plots = add_plots(figure, 2 if match is None else 3)
    if match is not None:
        draw_noise_match(plots[-1], match, SCREEN[::-1])
        plots[-1].set_title("Residual", fontsize=8, color="#808080")
    for axes, (kind, label) in zip(plots, kinds.items(), strict=False):
        for axis, curve in curves[curves["curve"] == kind].groupby("axis", sort=True):
            error = curve["error"] if kind == "correlation" else None
            colour = SCREEN["xyz".index(str(axis))]
            dots: Any = {"fmt": "o", "markersize": 3, "elinewidth": 1, "color": colour}
            axes.errorbar(curve["at"], curve["measured"], error, **dots)
            axes.plot(curve["at"], curve["drawn"], color=colour, linewidth=1, label=axis)
        axes.axhline(0, color="#808080", linewidth=0.5)
        frame(axes, label)
        axes.set_title(kind.capitalize(), fontsize=8, color="#808080")
        if kind == "correlation":
            add_legend(axes, handlelength=1, loc="upper right")


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


#: Percentiles of the grey values for black and white.
_PERCENTILES = (0.5, 99.5)

#: Colours of labels 1 to 49, which repeat: those of labels in napari.
LABEL_COLOURS = (
    "782506", "5bd5f8", "9289e8", "6c02c1", "473a9f", "abec8a", "8fadb2", "86909a", "fef71c",
    "f7443b", "034e39", "71b260", "69954a", "3c1b87", "2e4710", "5cb7de", "479d76", "474258",
    "ef5665", "b8507b", "a62a64", "f1b4ec", "4b1e20", "b4c53e", "9c602f", "8a431b", "d8be9a",
    "b47dbd", "a65ea4", "607a34", "c1e357", "d79555", "9e876f", "002ceb", "cae6e0", "e18b1e",
    "78f001", "7b8e0f", "e5ddb2", "abec8a", "42d8a6", "46ba8e", "fef71c", "f7443b", "af4bf2",
    "b00c3f", "69954a", "f687a7", "cb32c7",
)  # fmt: skip

#: Opacity of labels, as in napari.
_OPACITY = 0.7

#: Edge of a plot, and height of everything else, in inches.
_SIDE, _AROUND = 3.6, 1.1


def pore_picture(
    before: Volume, after: Volume | None, labels: Volume, diameters: npt.ArrayLike, title: str = ""
) -> bytes:
    """Draw the report picture of a pore analysis.

    `before`: the scan, 2D or 3D; of leading time and channel axes the first position is shown.
    `after`: the denoised scan, of the same shape; left out if None. `labels`: integer labels of the
    same shape, 0 = not pore. `diameters`: equivalent diameter of each pore, shape (n_pores,), in
    the unit of `labels`; may be empty.
    Returns: a PNG file. 3D volumes are shown by their middle slice, with a scale bar.
    Raises InputError if the shapes do not agree.
    """
    shown = {"input": before} | ({"denoised": after} if after is not None else {})
    painted = middle_plane(labels)
    shapes = [middle_plane(volume).shape for volume in (*shown.values(), labels)]
    if len(set(shapes)) > 1:
        raise InputError(
            f"The images of a report must have one shape; got slices of "
            f"{', '.join(map(str, shapes))}."
        )
    figure, axes, ratio = _figure_for(labels, len(shown) + 2, title)
    for ax, (name, volume) in zip(axes, shown.items(), strict=False):
        show_plane(ax, volume, name)
    show_plane(axes[-2], after or before, "pores")
    axes[-2].imshow(_coloured(painted), aspect=_aspect(labels), interpolation="nearest")
    _scale_bar(axes[0], labels)
    sizes = np.asarray(diameters, dtype=float).ravel()
    _counts(axes[-1], sizes[np.isfinite(sizes)], labels.unit)
    axes[-1].set_box_aspect(ratio)
    return png(figure)


def phase_picture(
    before: Volume,
    labels: Volume,
    names: Sequence[str],
    shares: Float64s,
    colours: Sequence[str],
    title: str = "",
) -> bytes:
    """Draw the report picture of phases: a slice, its phases in their colours, and their shares.

    `before`: the scan, 2D or 3D. `labels`: the phases, of the same shape: 1 to n; 0 is outside the
    sample. `names`, `shares`: one for each phase. `colours`: at least as many, as ``#rrggbb``.
    Returns: a PNG file, as `pore_picture`.
    """
    from matplotlib.colors import to_rgb

    figure, (slice_axes, phase_axes, share_axes), ratio = _figure_for(labels, 3, title)
    show_plane(slice_axes, before, "scan")
    table = np.array([to_rgb(each) for each in ("white", *colours)])[: len(names) + 1]
    painted = table[middle_plane(labels)]
    phase_axes.imshow(painted, aspect=_aspect(labels), interpolation="nearest")
    _entitle(phase_axes, "phases")
    _scale_bar(slice_axes, labels)
    place = np.arange(len(names))
    frame(share_axes, "share of the sample (%)")
    share_axes.barh(place, 100 * shares, color=table[1:], edgecolor=FAINT, linewidth=0.6)
    share_axes.set_yticks(place, [in_figure(name) for name in names])
    for at, share in zip(place, shares, strict=True):
        share_axes.annotate(f" {100 * share:.3g} %", (100 * share, at), va="center", fontsize=9)
    share_axes.invert_yaxis()
    share_axes.set_xlim(0, 118 * float(shares.max()))
    share_axes.set_box_aspect(ratio)
    return png(figure)


def map_picture(maps: Mapping[str, Volume]) -> bytes:
    """Draw the middle slices of maps with a colour bar each, black where the value is 0.

    `maps`: by title, 2D or 3D, of one shape.
    Returns: a PNG file, as `pore_picture`.
    """
    volumes = list(maps.values())
    figure, panels, _ = _figure_for(volumes[0], len(maps), "")
    for axes, (title, volume) in zip(panels, maps.items(), strict=True):
        plane = np.asarray(middle_plane(volume), np.float32)
        flowing = plane[plane > 0]
        high = float(np.quantile(flowing, 0.995)) if flowing.size else 1.0
        image = axes.imshow(
            plane, "inferno", vmin=0, vmax=high, aspect=_aspect(volume), interpolation="nearest"
        )
        figure.colorbar(image, ax=axes, shrink=0.8)
        _entitle(axes, title)
    _scale_bar(panels[0], volumes[0])
    return png(figure)


def middle_plane(volume: Volume) -> Array:
    """Return the plane that represents a volume: its middle slice, first time and channel."""
    first = (0,) * len(volume.leading_shape)
    return np.asarray(volume.data[(*first, *_middle(volume))])


def show_plane(
    axes: Axes,
    volume: Volume,
    title: str,
    plane: Array | None = None,
    limits: tuple[float, float] | None = None,
) -> None:
    """Show a slice in grey.

    `plane`: shown instead of the volume's middle slice. `limits`: grey values of black and white;
    by default, one value in a hundred is outside.
    """
    values = np.asarray(middle_plane(volume) if plane is None else plane, np.float32)
    low, high = limits or limits_of(values)
    axes.imshow(
        values, cmap="gray", vmin=low, vmax=high, aspect=_aspect(volume), interpolation="nearest"
    )
    _entitle(axes, title)


def limits_of(plane: Array) -> tuple[float, float]:
    """Return the grey values for black and white."""
    finite = plane[np.isfinite(plane)]
    low, high = np.percentile(finite, _PERCENTILES) if finite.size else (0.0, 1.0)
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _middle(volume: Volume) -> tuple[int, ...]:
    # the first of two middle slices, as in viewers
    return ((volume.spatial_shape[0] - 1) // 2,) if volume.n_spatial == 3 else ()


def _figure_for(labels: Volume, columns: int, title: str) -> tuple[Figure, list[Axes], float]:
    """Return a figure for slices side by side, its plots, and the aspect ratio of a plot."""
    height, width = labels.shape[-2:]
    ratio = min(max(height * _aspect(labels) / width, 0.5), 1.6)
    figure = new_figure(_SIDE * columns, _SIDE * ratio + _AROUND)
    axes = add_plots(figure, columns)
    if labels.n_spatial == 3:
        (at,), depth = _middle(labels), labels.spatial_shape[0]
        # counted from 0, as in napari
        line = f"slice {at} (of 0 to {depth - 1})"
        axes[0].text(
            0.0, -0.02, line, fontsize=8, color=FAINT, va="top", transform=axes[0].transAxes
        )
    if title:
        add_title(figure, title)
    return figure, axes, ratio


def _aspect(volume: Volume) -> float:
    return float(volume.spacing[-2] / volume.spacing[-1])


def _entitle(axes: Axes, title: str) -> None:
    axes.set_title(in_figure(title), fontsize=10, color=INK)
    axes.set_axis_off()


def _coloured(labels: Array) -> Float32s:
    """Return RGBA colours, the same as on the screen; 0 is transparent."""
    table = np.full((len(LABEL_COLOURS) + 1, 4), _OPACITY, np.float32)
    table[0] = 0
    table[1:, :3] = [tuple(bytes.fromhex(colour)) for colour in LABEL_COLOURS]
    table[1:, :3] /= 255
    return table[np.where(labels == 0, 0, (labels - 1) % len(LABEL_COLOURS) + 1)]


def _scale_bar(axes: Axes, volume: Volume) -> None:
    from matplotlib.patheffects import withStroke

    height, width = volume.shape[-2:]
    pixel = volume.spacing[-1]
    length = round_step(width * pixel / 4)
    x, y = 0.05 * width, 0.94 * height
    outline = [withStroke(linewidth=4, foreground="black", alpha=0.75)]
    axes.plot([x, x + length / pixel], [y, y], color="white", linewidth=2.2, path_effects=outline,
              solid_capstyle="butt")  # fmt: skip
    axes.annotate(
        in_figure(f"{length:g} {readable_unit(volume.unit)}"),
        (x, y),
        xytext=(0, 4),
        textcoords="offset points",
        color="white",
        fontsize=9,
        path_effects=outline,
    )


def _counts(axes: Axes, sizes: Array, unit: str) -> None:
    """Draw the histogram of pore sizes."""
    from matplotlib.ticker import MaxNLocator

    shown, title = readable_unit(unit), "no pores"
    if sizes.size:
        title = f"{readable_count(sizes.size, 'pore')}, median {np.median(sizes):.3g} {shown}"
    axes.set_title(in_figure(title), fontsize=10, color=INK)
    frame(axes, f"equivalent diameter ({shown})", "number of pores")
    if not sizes.size:
        axes.set(xticks=[], yticks=[])
        return
    axes.hist(sizes, bins=bins_for(sizes.size), color=PAPER[0], edgecolor="white", linewidth=0.6)
    axes.axvline(float(np.median(sizes)), color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.02)
