"""A figure of a result: before, after, labels, and the sizes of the pores.

Drawn with matplotlib's figure objects on its own canvas; nothing global is touched, so it works
in any thread and beside any window.
"""

from __future__ import annotations

import colorsys
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hushpore.base.errors import InputError
from hushpore.base.readable import readable_count, readable_unit
from hushpore.base.text import in_figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushpore.base.volume import Volume

_PERCENTILES = (0.5, 99.5)
_GOLDEN = 0.618033988749895
_INK, _FAINT, _BAR = "#1f2933", "#7b8794", "#3b7ea1"


def report_figure(
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
    from matplotlib.figure import Figure

    planes = [("before", _middle(before))]
    if after is not None:
        planes.append(("denoised", _middle(after)))
    painted = _middle(labels)
    if any(plane.shape != painted.shape for _, plane in planes):
        shapes = ", ".join(str(plane.shape) for _, plane in [*planes, ("labels", painted)])
        raise InputError(f"The images of a report must have one shape; got slices of {shapes}.")
    aspect = labels.spacing[-2] / labels.spacing[-1]
    grey = planes[-1][1]
    columns = len(planes) + 2
    ratio = min(max(painted.shape[0] * aspect / painted.shape[1], 0.5), 1.6)
    figure = Figure(figsize=(3.6 * columns, 3.6 * ratio + 1.35), layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for ax, (name, plane) in zip(axes, planes, strict=False):
        _show(ax, plane, aspect, name)
    _show(axes[-2], grey, aspect, "pores")
    axes[-2].imshow(_coloured(painted), aspect=aspect, interpolation="nearest")
    _scale_bar(axes[0], painted.shape, labels)
    sizes = np.asarray(diameters, dtype=float).ravel()
    _histogram(axes[-1], sizes[np.isfinite(sizes)], labels.unit, ratio)
    figure.suptitle(
        f"{in_figure(title)}\n" if title else "", fontsize=14, color=_INK, weight="bold"
    )
    return _png(figure, labels, title)


def phase_figure(
    before: Volume,
    labels: Volume,
    names: Sequence[str],
    shares: npt.NDArray[np.float64],
    colours: Sequence[str],
    title: str = "",
) -> bytes:
    """Draw the report picture of phases: a slice, its phases in their colours, and their shares.

    `before`: the scan, 2D or 3D. `labels`: the phases, of the same shape: 1 to n, 0 is not of the
    sample. `names`, `shares`: of each. `colours`: at least as many, as
    ``#rrggbb``.
    Returns: a PNG file, as `report_figure`.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    painted = _middle(labels)
    aspect = labels.spacing[-2] / labels.spacing[-1]
    ratio = min(max(painted.shape[0] * aspect / painted.shape[1], 0.5), 1.6)
    figure = Figure(figsize=(10.8, 3.6 * ratio + 1.35), layout="constrained")
    slice_axes, phase_axes, share_axes = figure.subplots(1, 3)
    _show(slice_axes, _middle(before), aspect, "scan")
    table = np.array([to_rgb(each) for each in ("white", *colours)])[: len(names) + 1]
    phase_axes.imshow(table[painted], aspect=aspect, interpolation="nearest")
    phase_axes.set_title("phases", fontsize=11, color=_INK)
    phase_axes.set_axis_off()
    _scale_bar(slice_axes, painted.shape, labels)
    place = np.arange(len(names))
    share_axes.barh(place, 100 * shares, color=table[1:], edgecolor=_FAINT, linewidth=0.6)
    share_axes.set_yticks(place, [in_figure(name) for name in names])
    for at, share in zip(place, shares, strict=True):
        share_axes.annotate(f" {100 * share:.3g} %", (100 * share, at), va="center", fontsize=9)
    share_axes.invert_yaxis()
    share_axes.set_xlim(0, 118 * float(shares.max()))
    share_axes.set_box_aspect(ratio)
    share_axes.set_xlabel("share of the sample (%)", color=_INK)
    share_axes.spines[["top", "right"]].set_visible(False)
    share_axes.tick_params(colors=_INK)
    figure.suptitle(
        f"{in_figure(title)}\n" if title else "", fontsize=14, color=_INK, weight="bold"
    )
    return _png(figure, labels, title)


def _png(figure: Figure, labels: Volume, title: str) -> bytes:
    """Say which slice is shown, and return the figure as a PNG file."""
    if labels.n_spatial == 3:
        depth = labels.spatial_shape[0]
        line, height = f"slice {depth // 2 + 1} of {depth}", 0.905 if title else 0.95
        figure.text(0.5, height, line, ha="center", fontsize=9.5, color=_FAINT)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": "hushpore"})
    return buffer.getvalue()


def _middle(volume: Volume) -> npt.NDArray[Any]:
    """Return the plane that stands for a volume: its middle slice, first time and channel."""
    data = volume.data
    for _ in volume.leading_shape:
        data = data[0]
    if volume.n_spatial == 3:
        data = data[data.shape[0] // 2]
    return np.asarray(data)


def _show(ax: Axes, plane: npt.NDArray[Any], aspect: float, name: str) -> None:
    values = plane.astype(np.float32)
    finite = values[np.isfinite(values)]
    low, high = np.percentile(finite, _PERCENTILES) if finite.size else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    ax.imshow(values, cmap="gray", vmin=low, vmax=high, aspect=aspect, interpolation="nearest")
    ax.set_title(in_figure(name), fontsize=11, color=_INK)
    ax.set_axis_off()


def _coloured(labels: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return RGBA colours, neighbours distinct and 0 transparent."""
    found, index = np.unique(labels, return_inverse=True)
    table = np.zeros((len(found), 4), np.float32)
    for row, label in enumerate(found):
        if label != 0:
            # the golden ratio spreads hues evenly however many labels there are
            number = int(label)
            hue = number * _GOLDEN % 1.0
            colour = colorsys.hsv_to_rgb(hue, (0.85, 0.6, 0.7)[number % 3], (0.9, 1.0)[number % 2])
            table[row] = (*colour, 0.62)
    coloured: npt.NDArray[np.float32] = table[index].reshape(*labels.shape, 4)
    return coloured


def _scale_bar(ax: Axes, shape: tuple[int, ...], labels: Volume) -> None:
    from matplotlib.patheffects import withStroke

    pixel = labels.spacing[-1]
    length = _round_length(shape[1] * pixel / 4)
    pixels = length / pixel
    x, y = 0.05 * shape[1], 0.94 * shape[0]
    outline = [withStroke(linewidth=4, foreground="black", alpha=0.75)]
    ax.plot([x, x + pixels], [y, y], color="white", linewidth=2.2, path_effects=outline,
            solid_capstyle="butt")  # fmt: skip
    ax.annotate(
        in_figure(f"{length:g} {readable_unit(labels.unit)}"),
        (x, y),
        xytext=(0, 4),
        textcoords="offset points",
        color="white",
        fontsize=9,
        path_effects=outline,
    )


def _round_length(length: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is not above `length`."""
    power = 10.0 ** math.floor(math.log10(length))
    return float(max(step for step in (1, 2, 5) if step * power <= length * (1 + 1e-9)) * power)


def _histogram(ax: Axes, sizes: npt.NDArray[Any], unit: str, ratio: float) -> None:
    from matplotlib.ticker import MaxNLocator

    shown, title = in_figure(readable_unit(unit)), "no pores"
    if sizes.size:
        title = f"{readable_count(sizes.size, 'pore')}, median {np.median(sizes):.3g} {shown}"
    ax.set_title(title, fontsize=11, color=_INK)
    ax.set_box_aspect(ratio)
    ax.set_xlabel(f"equivalent diameter ({shown})", color=_INK)
    ax.set_ylabel("number of pores", color=_INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(colors=_FAINT)
    if not sizes.size:
        ax.set(xticks=[], yticks=[])
        return
    bins = int(np.clip(round(2 * sizes.size ** (1 / 3)), 5, 40))
    ax.hist(sizes, bins=bins, color=_BAR, edgecolor="white", linewidth=0.6)
    ax.axvline(float(np.median(sizes)), color=_INK, linewidth=1, linestyle=(0, (4, 3)))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(x=0.02)
