"""A picture of a denoising: noisy, denoised, what was removed, and how the training went.

Drawn on a canvas of its own; nothing global of matplotlib is touched.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.text import in_figure

if TYPE_CHECKING:
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.n2v2.result import Denoised

_INK, _BAR = "#1f2933", "#3b7ea1"


def denoising_picture(noisy: Volume, result: Denoised, dpi: int = 150) -> bytes:
    """Draw the slice in the middle before and after, what was removed, and the loss curves.

    `dpi`: dots per inch of a picture 14 inches wide.
    Returns: a PNG file.
    Raises InputError if the two differ in shape.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if noisy.shape != result.volume.shape:
        raise InputError(
            f"The picture needs what was denoised, of shape {result.volume.shape}; "
            f"got {noisy.shape}."
        )
    before, after = _middle(noisy), _middle(result.volume)
    residual = result.provenance["residual"]
    figure = Figure(figsize=(14, 4), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes: Any = figure.subplots(1, 4)
    low, high = np.percentile(before, (0.5, 99.5))
    spread = 3 * residual["deviation"] or 1.0
    aspect = noisy.spacing[-2] / noisy.spacing[-1]
    for ax, image, limits, title in (
        (axes[0], before, (low, high), noisy.name),
        (axes[1], after, (low, high), "denoised"),
        (axes[2], before - after, (-spread, spread), _removed_in_words(residual)),
    ):
        ax.imshow(image, cmap="gray", vmin=limits[0], vmax=limits[1], aspect=aspect)
        ax.set_title(title, fontsize=9, color=_INK)
        ax.set_axis_off()
    _draw_curves(axes[3], result)
    figure.suptitle(in_figure(result.summary), fontsize=11, color=_INK)
    drawn = io.BytesIO()
    figure.set_dpi(dpi)
    canvas.print_png(drawn)  # type: ignore[no-untyped-call]
    return drawn.getvalue()


def _middle(volume: Volume) -> npt.NDArray[np.float32]:
    number = (int(np.prod(volume.shape[:-2])) - 1) // 2
    place = np.unravel_index(number, (1, *volume.shape[:-2]))[1:]
    return np.asarray(volume.data[tuple(int(k) for k in place)], np.float32)


def _removed_in_words(residual: dict[str, Any]) -> str:
    alike = max(residual["correlation"].values(), key=abs)
    return (
        f"removed: {residual['mean']:+.3g} ± {residual['deviation']:.3g}, "
        f"neighbours alike {alike:+.2f}"
    )


def _draw_curves(ax: Any, result: Denoised) -> None:
    for curve, colour, width, name in (
        (result.losses, _BAR, 0.8, "training"),
        (result.validation, _INK, 1.5, "same patches each time"),
    ):
        if len(curve):
            ax.plot(curve[:, 0], curve[:, 1], color=colour, linewidth=width, label=name)
    if len(result.losses):
        ax.legend(fontsize=8, frameon=False)
        ax.set_xlabel("step", fontsize=8)
    else:
        ax.text(0.5, 0.5, "nothing was trained", ha="center", va="center", fontsize=9)
        ax.set_axis_off()
    hides = result.model.network.architecture.hides_pixels
    where = "at hidden pixels" if hides else "against targets with noise"
    ax.set_title(f"squared error {where}", fontsize=9, color=_INK)
    ax.tick_params(labelsize=8)
