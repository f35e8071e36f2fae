"""A picture of a denoising result: noisy, denoised, removed noise, and loss curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.figures.drawing import (
    DPI,
    INK,
    PAPER,
    add_legend,
    add_plots,
    add_title,
    frame,
    new_figure,
    png,
)
from hushpore.figures.slices import limits_of, middle_plane, show_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hushpore.base.volume import Volume
    from hushpore.denoising.result import Denoised


def denoising_picture(noisy: Volume, result: Denoised, dpi: int = DPI) -> bytes:
    """Draw the middle slice before and after denoising, the removed noise, and the loss curves.

    `dpi`: dots per inch; the picture is 14 inches wide.
    Returns: a PNG file.
    Raises InputError if the two differ in shape.
    """
    if noisy.shape != result.volume.shape:
        raise InputError(
            f"The picture needs the noisy volume of shape {result.volume.shape}; got {noisy.shape}."
        )
    before, after = (middle_plane(each).astype("f4") for each in (noisy, result.volume))
    residual = result.provenance["residual"]
    figure = new_figure(14, 4)
    axes = add_plots(figure, 4)
    limits, spread = limits_of(before), 3 * residual["deviation"] or 1.0
    show_plane(axes[0], noisy, noisy.name, before, limits)
    show_plane(axes[1], noisy, "denoised", after, limits)
    removed = _removed_in_words(residual)
    show_plane(axes[2], noisy, removed, before - after, (-spread, spread))
    _draw_curves(axes[3], result)
    add_title(figure, result.headline)
    return png(figure, dpi)


def _removed_in_words(residual: dict[str, Any]) -> str:
    correlation = max(residual["correlation"].values(), key=abs)
    return (
        f"residual: {residual['mean']:+.3g} ± {residual['deviation']:.3g}, "
        f"correlation of neighbours {correlation:+.2f}"
    )


def _draw_curves(axes: Axes, result: Denoised) -> None:
    hides = result.model.network.architecture.hides_pixels
    where = "at hidden pixels" if hides else "against targets with noise"
    axes.set_title(f"squared error {where}", fontsize=10, color=INK)
    if not len(result.losses):
        axes.text(0.5, 0.5, "nothing was trained", ha="center", va="center", fontsize=9)
        axes.set_axis_off()
        return
    for curve, colour, width, name in (
        (result.losses, PAPER[0], 0.8, "training"),
        (result.validation, INK, 1.5, "same patches each time"),
    ):
        if len(curve):
            axes.plot(curve[:, 0], curve[:, 1], color=colour, linewidth=width, label=name)
    frame(axes, "step")
    add_legend(axes)
