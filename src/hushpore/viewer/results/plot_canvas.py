"""A matplotlib plot in the colours of the window, which can be saved as PNG, SVG or PDF.

matplotlib is already used for reports and has a canvas for every Qt binding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from napari.utils.theme import get_theme
from qtpy.QtCore import QTimer
from qtpy.QtGui import QColor, QImage, QPainter

from hushpore.figures.drawing import FORMATS, publication_file, publication_size
from hushpore.viewer.results.saving import ask_for_file, save_table, save_with, with_ending
from hushpore.viewer.running.redraw import LAYOUT_DELAY, run_in_steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


#: Tooltip of a button that saves a plot.
SAVE_TIP = "Save the plot as PNG, SVG or PDF, or its numbers as CSV."


class PlotCanvas(FigureCanvasQTAgg):
    """Shows a figure, and saves it in black on white or its data as CSV.

    `numbers`: the plotted data.
    """

    def __init__(self, viewer: Any) -> None:
        super().__init__(Figure(figsize=(3.4, 2.8)))  # type: ignore[no-untyped-call]
        self._viewer = viewer
        self.numbers = pd.DataFrame()
        # the figure does not get the layout engine, because it would compute the layout at every
        # drawing (25 ms); here it is computed only when needed, in its own turn of the event loop
        self._layout, self._is_laid_out = ConstrainedLayoutEngine(), False
        self._drawn = 0, 0  # size in pixels of the drawn plots
        self._turn = QTimer(self, singleShot=True, interval=LAYOUT_DELAY, timeout=self._take_turn)

    def clear(self) -> None:
        """Remove all plots."""
        # Figure.clear would first create each plot anew
        for axes in self.figure.axes:
            axes.remove()
        self.numbers = pd.DataFrame()

    def show_figure(self) -> None:
        """Show the plots in the colours of the window."""
        theme = get_theme(self._viewer.theme)
        self._colour(theme.text.as_hex(), theme.background.as_hex())
        self._is_laid_out = False
        self.draw_idle()

    def ask_and_save(self, name: str, width: str = "") -> None:
        """Ask for a file, and save to it; `name`: the proposed name. `width`: as for `save`."""
        kinds = "PNG (*.png);;SVG (*.svg);;PDF (*.pdf);;Numbers (*.csv)"
        path = ask_for_file(self, "Save plot", name, kinds)
        if path is not None:
            self.save(path, width)

    def save(self, path: Path, width: str = "") -> None:
        """Save the plot in a thread, as a picture or as CSV by the ending of the name.

        `width`: of `hushpore.figures.drawing.COLUMNS`; empty for the size on the screen.
        """
        path = with_ending(path, [*FORMATS, "csv"], "png")
        kind = path.suffix.lower().lstrip(".")
        if kind == "csv":
            save_table(path, self.numbers)
            return
        # black on white, whatever the theme of the window
        self._colour("black", "white")
        shown = self.figure.get_size_inches()
        try:
            if width:
                self.figure.set_size_inches(publication_size(width), forward=False)
                self._is_laid_out = False
            self._lay_out()
            picture = publication_file(self.figure, kind)
        finally:
            self.figure.set_size_inches((float(shown[0]), float(shown[1])), forward=False)
            self.show_figure()
        save_with(path, lambda part: part.write_bytes(picture))

    def resizeEvent(self, event: Any) -> None:  # noqa: N802
        """Lay out and draw the plots again once the new size has settled."""
        self._is_laid_out = False
        super().resizeEvent(event)  # type: ignore[no-untyped-call]

    def paintEvent(self, event: Any) -> None:  # noqa: N802
        """Paint the plots, scaled to the new size until they are drawn again."""
        if self._drawn == self.get_width_height(physical=True):
            super().paintEvent(event)  # type: ignore[no-untyped-call]
            return
        painter = QPainter(self)
        painter.fillRect(self.rect(), QColor(to_hex(self.figure.get_facecolor())))
        if any(self._drawn):
            pixels = np.asarray(self.buffer_rgba())  # type: ignore[no-untyped-call]
            height, width = pixels.shape[:2]
            values = pixels.tobytes()  # kept alive here: QImage does not copy them
            picture = QImage(values, width, height, QImage.Format.Format_RGBA8888)
            painter.drawImage(self.rect(), picture)
        painter.end()

    def draw(self) -> None:
        """Draw the plots."""
        self._lay_out()
        super().draw()  # type: ignore[no-untyped-call]
        self._drawn = self.get_width_height(physical=True)

    def draw_idle(self) -> None:
        """Schedule the drawing, in a different turn of the event loop than the layout."""
        if self._is_laid_out:
            super().draw_idle()  # type: ignore[no-untyped-call]
        else:
            self._turn.start()

    def _take_turn(self) -> None:
        run_in_steps(self, self._lay_out_and_draw())

    def _lay_out_and_draw(self) -> Iterator[None]:
        self._lay_out()
        yield
        self.draw_idle()

    def _lay_out(self) -> None:
        """Compute the layout of the plots, unless it is up to date."""
        if self.figure.axes and not self._is_laid_out:
            self._layout.execute(self.figure)
        self._is_laid_out = True

    def _colour(self, ink: str, paper: str) -> None:
        self.figure.set_facecolor(paper)
        for axes in self.figure.axes:
            axes.set_facecolor(paper)
            axes.tick_params(which="both", colors=ink, labelsize=8)
            axes.spines[:].set_color(ink)
            if "top" in axes.spines:  # a polar plot has a circle instead
                axes.spines[["top", "right"]].set_visible(False)
            legend = axes.get_legend()
            words = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
            words += [*legend.get_texts(), legend.get_title()] if legend else []
            for text in words:
                text.set_color(ink)
