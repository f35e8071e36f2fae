"""Plots of the noise of a scan, and the preview of slices without rings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hushpore.base.formatting import readable_number
from hushpore.figures.drawing import SCREEN, add_legend, add_plots, frame
from hushpore.figures.noise_match import draw_noise_match, noise_match_in_words
from hushpore.viewer.forms.layout import Fold
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.running.previews import SlicePreview

if TYPE_CHECKING:
    import pandas as pd

    from hushpore.base.events import Job
    from hushpore.scan.noise_model import NoiseModel
    from hushpore.viewer.running.task import Target


#: Colours of the axes of a volume.
_COLOURS = dict(zip("xyz", SCREEN, strict=True))

_HINT = (
    "Left: autocorrelation of the noise by distance in voxels. Right: power spectrum of the noise "
    "(1: white noise). Dots: measured in flat regions. Lines: the noise model used for training. "
    "After denoising: power of the residual in flat regions and at edges, over that of the noise."
)


class NoisePanel(Fold):
    """Two plots of the noise of a layer; folded at first, hidden until the noise is estimated."""

    def __init__(self, viewer: Any) -> None:
        super().__init__("Noise")
        self._viewer = viewer
        self._model: NoiseModel | None = None
        self._drawn: NoiseModel | None = None
        self._canvas: Any = None
        self._match: dict[str, Any] | None = None
        self._words = plain_label()
        self.add(self._words)
        self.button.toggled.connect(self._draw)
        self.hide()

    def show_model(self, model: NoiseModel | None, match: dict[str, Any] | None = None) -> None:
        """Show the noise of another layer; None if there is no estimate.

        `match`: ``residual.match`` in the record of its denoising, if it was denoised.
        """
        if model is self._model and match is self._match:
            return
        self._model, self._match, self._drawn = model, match, None
        self.setVisible(model is not None)
        self._draw()

    def _draw(self) -> None:
        if self._model is None or self._model is self._drawn or not self.button.isChecked():
            return
        # SciPy and matplotlib are imported late, so that the widget opens fast
        from hushpore.denoising.noise.curves import noise_curves

        if self._canvas is None:
            from hushpore.viewer.results.plot_canvas import PlotCanvas

            self._canvas = PlotCanvas(self._viewer)
            self._canvas.setFixedHeight(150)
            self._canvas.setToolTip(_HINT)
            self._canvas.setAccessibleName("Noise")
            self.add(self._canvas)
            self._viewer.events.theme.connect(self._canvas.show_figure)
        self._drawn = self._model
        text = words(self._model)
        if self._match is not None:
            text = f"{text}. {noise_match_in_words(self._match)}"
        self._words.setText(text)
        self._canvas.clear()
        plot(self._canvas.figure, noise_curves(self._model), self._match)
        self._canvas.show_figure()


def words(model: NoiseModel) -> str:
    """Return the standard deviation of the noise and its origin, in one line."""
    ends = readable_number(model.deviation), readable_number(model.deviation_error, 2)
    text = f"SD {' ± '.join(ends)}, from {model.blocks:,} flat regions"
    return f"{text}; increases with the grey value" if model.slope > 0 else text


def plot(figure: Any, curves: pd.DataFrame, match: dict[str, Any] | None = None) -> None:
    """Plot the curves returned by `noise_curves`, and the residual of a denoising, if any."""
    kinds = {"correlation": "Distance, voxels", "spectrum": "Cycles per voxel"}
    plots = add_plots(figure, 2 if match is None else 3)
    if match is not None:
        draw_noise_match(plots[-1], match, SCREEN[::-1])
        plots[-1].set_title("Residual", fontsize=8, color="#808080")
    for axes, (kind, label) in zip(plots, kinds.items(), strict=False):
        for axis, curve in curves[curves["curve"] == kind].groupby("axis", sort=True):
            error = curve["error"] if kind == "correlation" else None
            colour = _COLOURS[str(axis)]
            dots: Any = {"fmt": "o", "markersize": 3, "elinewidth": 1, "color": colour}
            axes.errorbar(curve["at"], curve["measured"], error, **dots)
            axes.plot(curve["at"], curve["drawn"], color=colour, linewidth=1, label=axis)
        axes.axhline(0, color="#808080", linewidth=0.5)
        frame(axes, label)
        axes.set_title(kind.capitalize(), fontsize=8, color="#808080")
        if kind == "correlation":
            add_legend(axes, handlelength=1, loc="upper right")


class RingPreview(SlicePreview):
    """A preview of the slice on the screen without its rings."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "slice without rings", "without rings")

    def show(self, target: Target) -> None:
        """Start to show slices of a volume without rings."""
        if self.is_of(target):
            return
        self.hide()
        self._follow(target, partial(_find, target, []))


def _find(target: Target, known: list[Any], index: tuple[int, ...]) -> Job:
    """Remove the rings of a slice; `known` caches the `SliceRings` of the volume."""
    from hushpore.base.events import Progress
    from hushpore.denoising.rings import SliceRings

    yield Progress("ring correction", 0, 0, "", 0.0)
    if not known:
        known.append(SliceRings(target.volume))
    return known[0].corrected(index)
