"""Pictures of a result: slices before and after, with coloured labels, and pore sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_count, readable_unit
from hushpore.base.safe_text import in_figure
from hushpore.figures.drawing import (
    FAINT,
    INK,
    PAPER,
    add_plots,
    add_title,
    bins_for,
    frame,
    new_figure,
    png,
    round_step,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hushpore.base.arrays import Array, Float32s, Float64s
    from hushpore.base.volume import Volume

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
