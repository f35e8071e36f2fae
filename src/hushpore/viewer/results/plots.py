"""Plots of a pore result, in the colours of the window and to be saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.backend_bases import MouseButton
from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
from matplotlib.figure import Figure
from matplotlib.widgets import RectangleSelector, SpanSelector
from napari.utils.theme import get_theme
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QPushButton, QSpinBox, QVBoxLayout

from hushpore.base.formatting import readable_unit
from hushpore.figures.drawing import (
    FORMATS,
    SCREEN,
    draw_rev,
    draw_transport,
    frame,
    publication_file,
    publication_size,
)
from hushpore.figures.size_plots import (
    azimuth_table,
    distribution_table,
    draw_distribution,
    draw_rose,
    draw_thickness,
)
from hushpore.pores.tables.totals import major_axes
from hushpore.viewer.forms.layout import ScrolledColumn, fill, plain_label
from hushpore.viewer.results.choices import ColumnBox, compact_combo_box, numeric_columns
from hushpore.viewer.results.panel import NO_RESULT
from hushpore.viewer.results.pore_view import LayerTrackingWidget
from hushpore.viewer.results.record_panel import ask_for_file, save_table, save_with, with_ending

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hushpore.viewer.results.pore_layer import PoreTables
    from hushpore.viewer.results.pore_view import PoreView


#: Tooltip of a button that saves a plot.
SAVE_TIP = "Save the plot as PNG, SVG or PDF, or its numbers as CSV."


class PlotCanvas(FigureCanvasQTAgg):
    """Shows a figure, and saves it in black on white or its data as CSV.

    `numbers`: the plotted data.
    """

    def __init__(self, viewer: Any) -> None:
        figure = Figure(figsize=(3.4, 2.8), layout="constrained")
        super().__init__(figure)  # type: ignore[no-untyped-call]
        self._viewer = viewer
        self.numbers = pd.DataFrame()

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
        self.draw_idle()  # type: ignore[no-untyped-call]

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
            picture = publication_file(self.figure, kind)
        finally:
            self.figure.set_size_inches((float(shown[0]), float(shown[1])), forward=False)
            self.show_figure()
        save_with(path, lambda part: part.write_bytes(picture))

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


#: Names of the plots in the combo box.
BY_NUMBER, BY_VOLUME, PROFILE, THICKNESS, REV, REV_PORES, ROSE, ALONG, SCATTER = (
    "Size distribution (number)", "Size distribution (volume)", "Porosity profile",
    "Local thickness", "REV: porosity", "REV: number of pores", "Orientation rose",
    "Transport along the axes", "Scatter plot",
)  # fmt: skip

#: Milliseconds after the last change of the data until it is plotted, which takes 60 to 90 ms.
SETTLED = 250

#: Plots with fixed axes.
_OWN_AXES = (PROFILE, THICKNESS, REV, REV_PORES, ROSE, ALONG)

#: Sizes in which a plot is saved: as on the screen, or of `hushpore.figures.drawing.COLUMNS`.
_WIDTHS = {"Single column": "single", "Double column": "double", "As shown": ""}

_LINE, _MARK = SCREEN[:2]

#: Colours of a size distribution, of its fit, and of the lines at D10, D50 and D90.
_SIZE_COLOURS = (_LINE, _MARK, SCREEN[2])


class PlotsWidget(LayerTrackingWidget):
    """Plots the result of the selected pore layer, linked with layer and table."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        self._selector: Any = None  # matplotlib keeps only a weak reference
        self._mark: Any = None
        show = self.show_view
        self._draw_timer = QTimer(self, singleShot=True, interval=SETTLED, timeout=show)
        self._build()
        napari_viewer.dims.events.point.connect(self._mark_slice)
        napari_viewer.events.theme.connect(self.draw)
        self.follow()

    # ---- contents

    def slots(self) -> dict[str, Callable[..., None]]:
        """Follow filter and selection of the view."""
        return {
            "tables_changed": self._show_tables,
            "shown_changed": self.draw,
            "selected_changed": self._mark_selected,
        }

    def show_view(self) -> None:
        """List the columns of a result, and plot it."""
        has_view = self.view is not None
        self._nothing.setVisible(not has_view)
        for widget in (self.canvas, self._kind, self._width, self._save_button):
            widget.setEnabled(has_view)
        if self.view is not None:
            names = numeric_columns(self.view.tables.pores)
            for box, first in ((self._x, "equivalent_diameter"), (self._y, "sphericity")):
                before = box.column()
                box.list_columns(names, before if before in names else first)
        self.draw()

    def _show_tables(self) -> None:
        """Plot the changed data of the layer after a pause, because the slider may go on."""
        self._draw_timer.start()

    def draw(self, event: Any = None) -> None:
        """Draw the chosen plot."""
        self.canvas.clear()
        self._selector = self._mark = None
        kind = self._kind.currentText()
        has_view = self.view is not None
        self._x.setEnabled(has_view and kind not in _OWN_AXES)
        self._y.setVisible(kind == SCATTER)
        self._log.setEnabled(has_view and kind not in _OWN_AXES)
        self._cumulative.setEnabled(has_view and kind in (BY_NUMBER, BY_VOLUME, THICKNESS))
        for widget in (self._fit, self._bins):
            widget.setVisible(kind in (BY_NUMBER, BY_VOLUME))
        # the cumulative curve has no bins
        self._bins.setEnabled(has_view and not self._cumulative.isChecked())
        if self.view is not None and len(self.view.labels):
            projection = "polar" if kind == ROSE else None
            self.axes = self.canvas.figure.add_subplot(projection=projection)
            if kind == PROFILE:
                self._draw_profile(self.view)
            elif kind in (THICKNESS, REV, REV_PORES, ALONG):
                self._draw_measured(self.view.tables, kind)
            elif kind == ROSE:
                units = major_axes(
                    self.view.tables.pores[self.view.shown], self.view.tables.n_spatial
                )
                self.canvas.numbers = azimuth_table(units)
                draw_rose(self.axes, self.canvas.numbers, _LINE)
            elif kind == SCATTER:
                self._draw_scatter(self.view)
            else:
                self._draw_sizes(self.view, kind == BY_VOLUME)
        self.canvas.show_figure()

    def _draw_sizes(self, view: PoreView, by_volume: bool) -> None:
        pores, column = view.tables.pores[view.shown], self._x.column()
        sizes = pores[column].to_numpy(np.float64)
        weights = pores["num_voxels"].to_numpy(np.float64) if by_volume else np.ones(len(pores))
        is_log, is_cumulative = self._log.isChecked(), self._cumulative.isChecked()
        self.canvas.numbers = table = distribution_table(
            sizes, weights, is_cumulative=is_cumulative, log=is_log, bins=self._bins.value() or None
        )
        what = "pore volume" if by_volume else "pores"
        up = f"{what} up to this size (%)" if is_cumulative else f"share of {what} (%)"
        draw_distribution(
            self.axes, sizes, weights, table, view.tables.unit_of(column), _SIZE_COLOURS,
            log=is_log, fitted=self._fit.isChecked(),
        )  # fmt: skip
        frame(self.axes, view.tables.titled(column), up)
        self._selector = SpanSelector(
            self.axes, self._brushed_sizes, "horizontal", button=[MouseButton.LEFT],
            props={"facecolor": _MARK, "alpha": 0.25},
        )  # fmt: skip

    def _draw_profile(self, view: PoreView) -> None:
        profile = view.tables.profile
        if profile is None:
            self._say("No porosity profile for this layer.")
            return
        slices = np.arange(len(profile))
        self.canvas.numbers = pd.DataFrame({"slice": slices, "porosity": profile})
        self.axes.plot(slices, 100 * profile, color=_LINE, linewidth=1.5)
        frame(self.axes, "slice" if view.tables.n_spatial == 3 else "row", "porosity (%)")
        if view.tables.n_spatial == 3:
            self._mark = self.axes.axvline(view.slice_on_screen(), color=_MARK, linewidth=1.5)

    def _draw_measured(self, tables: PoreTables, kind: str) -> None:
        """Draw what is measured on request, or say how to request it."""
        unit = readable_unit(tables.unit)
        figure, title = "porosity", "porosity (%)"
        if kind == REV_PORES:
            volume = readable_unit(tables.unit, tables.n_spatial)
            figure, title = "density", f"number density (1/{volume})"
        table, advice = {
            THICKNESS: (tables.thickness, "measured for this layer: choose\n'Local thickness'"),
            ALONG: (tables.along, "solved for this layer: choose\n'Transport in voxels'"),
        }.get(kind, (tables.rev, "measured for this layer: tick\n'Uncertainty intervals'"))
        is_of_rev = kind in (REV, REV_PORES)
        if table is None or table.empty or (is_of_rev and figure not in table):
            self._say(f"Not {advice} in 'Pores'.")
            return
        self.canvas.numbers = table
        if is_of_rev:
            settled = tables.totals.get("rev_edge_length")
            draw_rev(self.axes, table, figure, title, unit, settled, SCREEN)
        elif kind == ALONG:
            draw_transport(self.axes, table, unit, SCREEN)
        else:
            cumulative = self._cumulative.isChecked()
            draw_thickness(self.axes, table, unit, (_LINE, _MARK), is_cumulative=cumulative)

    def _say(self, text: str) -> None:
        """Show a message in place of a plot."""
        self.axes.text(0.5, 0.5, text, ha="center", va="center", transform=self.axes.transAxes)

    def _draw_scatter(self, view: PoreView) -> None:
        x, y = self._x.column(), self._y.column()
        self.canvas.numbers = data = view.tables.pores.loc[
            view.shown, list(dict.fromkeys(["label", x, y]))
        ]
        # a line plot of markers only is drawn much faster than a scatter plot
        self.axes.plot(data[x], data[y], ".", color=_LINE, markersize=3, alpha=0.6)
        (self._mark,) = self.axes.plot([], [], "o", color=_MARK, markersize=4)
        if self._log.isChecked():
            self.axes.set_xscale("log")
        frame(self.axes, view.tables.titled(x), view.tables.titled(y))
        # before the rectangle, which starts at 0, 0 and would extend the axes
        self.axes.autoscale_view()
        self.axes.autoscale(False)
        self._selector = RectangleSelector(
            self.axes, self._brushed, button=[MouseButton.LEFT], minspanx=0, minspany=0,
            props={"facecolor": _MARK, "edgecolor": _MARK, "alpha": 0.25, "fill": True},
        )  # fmt: skip
        self._mark_selected()

    def _mark_selected(self, by: object = None) -> None:
        """Highlight the selected pores in the scatter plot."""
        if self.view is None or self._selector is None or self._mark is None:
            return
        rows = self.view.tables.pores[self.view.selected & self.view.shown]
        self._mark.set_data(rows[self._x.column()], rows[self._y.column()])
        self.canvas.draw_idle()

    def _mark_slice(self, event: Any = None) -> None:
        is_marked = self._mark is not None and self._kind.currentText() == PROFILE
        if self.view is not None and is_marked:
            self._mark.set_xdata([self.view.slice_on_screen()] * 2)
            self.canvas.draw_idle()

    # ---- actions

    def _brushed(self, press: Any, release: Any) -> None:
        """Select the pores in a rectangle; a click on empty space selects none."""
        if self.view is None or None in (press.xdata, release.xdata):
            return
        table = self.view.tables.pores
        inside = self.view.shown.copy()
        ends = ((press.xdata, release.xdata), (press.ydata, release.ydata))
        for name, pair in zip((self._x.column(), self._y.column()), ends, strict=True):
            values = table[name].to_numpy()
            inside &= (values >= min(pair)) & (values <= max(pair))
        self.view.select(inside, self)

    def _brushed_sizes(self, low: float, high: float) -> None:
        """Select the pores in a range of the histogram; a click selects none."""
        if self.view is None:
            return
        values = self.view.tables.pores[self._x.column()].to_numpy()
        inside = (values >= low) & (values <= high) if high > low else np.zeros(len(values), bool)
        self.view.select(self.view.shown & inside, self)

    def _clicked(self, event: Any) -> None:
        is_marked = self._mark is not None and self._kind.currentText() == PROFILE
        if self.view is not None and is_marked and event.xdata is not None:
            self.view.show_slice(round(float(event.xdata)))

    def _save(self) -> None:
        if self.view is not None:
            kind = self._kind.currentText().lower()
            width = _WIDTHS[self._width.currentText()]
            self.canvas.ask_and_save(f"{self.view.layer.name} {kind}.png", width)

    # ---- appearance

    def _build(self) -> None:
        self.canvas: Any = PlotCanvas(self._viewer)
        self.canvas.setMinimumHeight(150)
        self.canvas.setAccessibleName("Plot")
        self.canvas.mpl_connect("button_press_event", self._clicked)
        self._nothing = plain_label(NO_RESULT)
        tips = {
            "Plot": "Plot to show. Drag in a size distribution or scatter plot to select pores.",
            "Horizontal axis": "Column along the horizontal axis.",
            "Vertical axis": "Column along the vertical axis.",
        }
        kinds = compact_combo_box, ColumnBox, ColumnBox
        self._kind, self._x, self._y = boxes = [
            make(accessibleName=name, toolTip=tip)
            for make, (name, tip) in zip(kinds, tips.items(), strict=True)
        ]
        self._kind.addItems(
            [BY_NUMBER, BY_VOLUME, PROFILE, THICKNESS, REV, REV_PORES, ROSE, ALONG, SCATTER]
        )
        for box in boxes:
            box.currentIndexChanged.connect(self.draw)
        self._log = QCheckBox("&log", toolTip="Logarithmic horizontal axis.", toggled=self.draw)
        self._cumulative = QCheckBox(
            "&cumulative", toolTip="Cumulative distribution.", toggled=self.draw
        )
        self._save_button = QPushButton("&Save …", toolTip=SAVE_TIP, clicked=self._save)
        self._fit = QCheckBox(
            "&fit", checked=True, toggled=self.draw,
            toolTip="Log-normal fit, with its median, geometric standard deviation (GSD) and "
            "Kolmogorov-Smirnov distance (KS; 0: perfect).",
        )  # fmt: skip
        self._bins = QSpinBox(
            minimum=0, maximum=1000, specialValueText="Bins: auto", prefix="Bins: ",
            accessibleName="Bins", keyboardTracking=False, valueChanged=self.draw,
            toolTip="Number of bins. Auto: from the number of pores.",
        )  # fmt: skip
        self._width = compact_combo_box(
            accessibleName="Saved size",
            toolTip="Size of the saved plot: a journal column of 90 mm, two of 190 mm, or as shown "
            "here.",
        )  # fmt: skip
        self._width.addItems(list(_WIDTHS))
        axes = QHBoxLayout()
        for box in (self._x, self._y):
            axes.addWidget(box, 1)
        choices = fill(QHBoxLayout(), self._log, self._cumulative, self._fit, None)
        saving = fill(QHBoxLayout(), self._width, self._save_button, wide=self._width)
        parts = self._nothing, self._kind, axes, self.canvas, choices, self._bins, saving
        fill(QVBoxLayout(self), ScrolledColumn(*parts, wide=self.canvas))
