"""Plots of a pore result: sizes, porosity by slice, one property against another.

Drawn with matplotlib, which is there for the report already, has a canvas for every Qt binding,
and writes the same picture as PNG and SVG.
"""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.backend_bases import MouseButton
from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
from matplotlib.figure import Figure
from matplotlib.widgets import RectangleSelector
from napari.utils.theme import get_theme
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFileDialog,
    QGridLayout,
    QHBoxLayout,
    QPushButton,
    QVBoxLayout,
)

from hushpore.pores.measures import measure_of
from hushpore.viewer.forms.docking import SharesSide
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.results.layer_tracking import LayerTrackingWidget
from hushpore.viewer.results.panel import NO_RESULT, save_table
from hushpore.viewer.results.saving import save_with

if TYPE_CHECKING:
    import numpy.typing as npt

#: Name of this widget, as the manifest has it.
PLOTS = "Plots"

#: What is plotted, by its name in the combo box.
BY_NUMBER, BY_VOLUME, PROFILE, SCATTER = (
    "Sizes by number", "Sizes by volume", "Porosity profile", "Scatter plot",
)  # fmt: skip

BINS = 30

_LINE, _MARK = "#4c9be8", "#f5a623"


def size_distribution(
    sizes: npt.NDArray[np.float64],
    weights: npt.NDArray[np.float64],
    log: bool = False,
    bins: int = BINS,
) -> pd.DataFrame:
    """Return which share of the pores, or of their volume, is of which size.

    `sizes`: (pores,): sizes; those that are not finite, and on a logarithmic axis not above zero,
    are left out. `weights`: (pores,): 1 to count pores, their volumes to weigh them. `log`: bins of
    equal width on a logarithmic axis.
    Returns: ``from``, ``to``, ``share`` and ``cumulative``, the share up to the end of the bin.
    """
    usable = np.isfinite(sizes) & ((sizes > 0) | (not log))
    sizes, weights = sizes[usable], weights[usable]
    low, high = (sizes.min(), sizes.max()) if sizes.size else (1.0, 2.0)
    if low == high:
        low, high = low * 0.9, low * 1.1 or 1.0
    edges = np.geomspace(low, high, bins + 1) if log else np.linspace(low, high, bins + 1)
    # rounding must not leave out the smallest and the largest
    edges[0], edges[-1] = low, high
    share = np.histogram(sizes, edges, weights=weights)[0].astype(np.float64)
    share /= share.sum() or 1
    table = {"from": edges[:-1], "to": edges[1:], "share": share, "cumulative": share.cumsum()}
    return pd.DataFrame(table)


class PlotsWidget(LayerTrackingWidget):
    """Plots the result of the pore layer that is selected; linked with layer and table."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__(napari_viewer)
        SharesSide(self)
        self._data = pd.DataFrame()
        self._selector: Any = None  # matplotlib holds it weakly
        self._mark: Any = None
        self._build()
        napari_viewer.dims.events.point.connect(self._mark_slice)
        napari_viewer.events.theme.connect(self.draw)
        self.follow()

    # ---- what is shown

    def view_changed(self) -> None:
        """Plot another result."""
        if self.view is not None:
            self.view.tables_changed.connect(self._read)
            self.view.shown_changed.connect(self.draw)
            self.view.selected_changed.connect(self._mark_selected)
        self._read()

    def view_leaves(self) -> None:
        """Follow a result no longer."""
        assert self.view is not None
        self.view.tables_changed.disconnect(self._read)
        self.view.shown_changed.disconnect(self.draw)
        self.view.selected_changed.disconnect(self._mark_selected)

    def _read(self) -> None:
        """List the columns of a result, and plot it."""
        has_view = self.view is not None
        self._nothing.setVisible(not has_view)
        for widget in (self.canvas, self._kind, self._save_button):
            widget.setEnabled(has_view)
        if self.view is not None:
            pores = self.view.tables.pores
            names = [name for name in pores if pores[name].dtype.kind in "uif"]
            names = [name for name in names if not name.startswith("bbox")]
            wanted = ("equivalent_diameter", "sphericity")
            for box, first in zip((self._x, self._y), wanted, strict=True):
                before = box.currentText()
                box.blockSignals(True)
                box.clear()
                box.addItems(names)
                box.setCurrentText(before if before in names else first)
                box.blockSignals(False)
        self.draw()

    def draw(self, event: Any = None) -> None:
        """Plot what is chosen."""
        self.figure.clear()
        self._selector = self._mark = None
        kind = self._kind.currentText()
        has_view = self.view is not None
        self._x.setEnabled(has_view and kind != PROFILE)
        self._y.setVisible(kind == SCATTER)
        self._log.setEnabled(has_view and kind != PROFILE)
        self._cumulative.setEnabled(has_view and kind in (BY_NUMBER, BY_VOLUME))
        self._data = pd.DataFrame()
        if self.view is not None and len(self.view.labels):
            self.axes = self.figure.add_subplot()
            if kind == PROFILE:
                self._draw_profile()
            elif kind == SCATTER:
                self._draw_scatter()
            else:
                self._draw_sizes(kind == BY_VOLUME)
        self._apply_theme()
        self.canvas.draw_idle()

    def _draw_sizes(self, by_volume: bool) -> None:
        assert self.view is not None
        pores, column = self.view.tables.pores[self.view.shown], self._x.currentText()
        sizes = pores[column].to_numpy(np.float64)
        weights = pores["num_voxels"].to_numpy(np.float64) if by_volume else np.ones(len(pores))
        log = self._log.isChecked()
        self._data = size_distribution(sizes, weights, log)
        what = "of pore volume" if by_volume else "of pores"
        edges = np.r_[self._data["from"], self._data["to"].iloc[-1:]]
        if self._cumulative.isChecked():
            rising = np.r_[0, 100 * self._data["cumulative"]]
            self.axes.plot(edges, rising, color=_LINE, linewidth=1.8)
            self.axes.set_ylim(0, 101)
            self.axes.set_ylabel(f"{what[3:]} up to this size (%)")
        else:
            share = 100 * self._data["share"]
            self.axes.stairs(share, edges, fill=True, color=_LINE)
            self.axes.set_ylabel(f"share {what} (%)")
        if log:
            self.axes.set_xscale("log")
        self.axes.set_xlabel(self._axis_title(column))

    def _draw_profile(self) -> None:
        assert self.view is not None
        profile = self.view.tables.profile
        if profile is None:
            self.axes.text(
                0.5, 0.5, "The porosity of each slice\nis not known for this layer.",
                ha="center", va="center", transform=self.axes.transAxes, color=self._text(),
            )  # fmt: skip
            return
        self._data = pd.DataFrame({"slice": np.arange(len(profile)), "porosity": profile})
        self.axes.plot(self._data["slice"], 100 * profile, color=_LINE, linewidth=1.5)
        self.axes.set_xlabel("slice" if self.view.tables.n_spatial == 3 else "row")
        self.axes.set_ylabel("porosity (%)")
        if self.view.tables.n_spatial == 3:
            self._mark = self.axes.axvline(self._slice(), color=_MARK, linewidth=1.5)

    def _draw_scatter(self) -> None:
        assert self.view is not None
        view, x, y = self.view, self._x.currentText(), self._y.currentText()
        pores = view.tables.pores
        self._data = pores.loc[view.shown, list(dict.fromkeys(["label", x, y]))]
        across, up = self._data[x].to_numpy(), self._data[y].to_numpy()
        # of a line without a line only the markers are drawn: far faster than a scatter
        self.axes.plot(across, up, ".", color=_LINE, markersize=3, alpha=0.6)
        (self._mark,) = self.axes.plot([], [], "o", color=_MARK, markersize=4)
        if self._log.isChecked():
            self.axes.set_xscale("log")
        self.axes.set_xlabel(self._axis_title(x))
        self.axes.set_ylabel(self._axis_title(y))
        # the rectangle lies at 0, 0 until it is drawn, where perhaps no pore is
        self.axes.autoscale_view()
        self.axes.autoscale(False)
        self._selector = RectangleSelector(
            self.axes, self._brushed, button=[MouseButton.LEFT], minspanx=0, minspany=0,
            props={"facecolor": _MARK, "edgecolor": _MARK, "alpha": 0.25, "fill": True},
        )  # fmt: skip
        self._mark_selected()

    def _mark_selected(self, by: object = None) -> None:
        """Let the selected pores stand out of the cloud."""
        if self.view is None or self._selector is None:
            return
        rows = self.view.tables.pores[self.view.selected & self.view.shown]
        self._mark.set_data(rows[self._x.currentText()], rows[self._y.currentText()])
        self.canvas.draw_idle()

    def _mark_slice(self, event: Any = None) -> None:
        has_mark = self.view is not None and self._mark is not None
        if has_mark and self._kind.currentText() == PROFILE:
            self._mark.set_xdata([self._slice()] * 2)
            self.canvas.draw_idle()

    def _slice(self) -> float:
        assert self.view is not None
        layer = self.view.layer
        return float(layer.world_to_data(self._viewer.dims.point[-layer.ndim :])[0])

    # ---- what the user does

    def _brushed(self, press: Any, release: Any) -> None:
        """Select the pores in a rectangle; none by a click beside all."""
        if self.view is None or None in (press.xdata, release.xdata):
            return
        table = self.view.tables.pores
        inside = self.view.shown.copy()
        ends = ((press.xdata, release.xdata), (press.ydata, release.ydata))
        for name, pair in zip((self._x.currentText(), self._y.currentText()), ends, strict=True):
            values = table[name].to_numpy()
            inside &= (values >= min(pair)) & (values <= max(pair))
        self.view.select(inside, self)

    def _clicked(self, event: Any) -> None:
        """Show the slice that is clicked."""
        if self._kind.currentText() != PROFILE or self._mark is None or event.xdata is None:
            return
        assert self.view is not None
        layer, dims = self.view.layer, self._viewer.dims
        place = [round(float(event.xdata))] + [0] * (layer.ndim - 1)
        dims.set_point(dims.ndim - layer.ndim, float(layer.data_to_world(place)[0]))

    def _save(self) -> None:
        """Save the picture as PNG or SVG, or its numbers as CSV, by the name's end."""
        if self.view is None:
            return
        name = f"{self.view.layer.name} {self._kind.currentText().lower()}.png"
        kinds = "PNG (*.png);;SVG (*.svg);;Numbers (*.csv)"
        chosen, _ = QFileDialog.getSaveFileName(self, "Save the plot", name, kinds)
        if chosen:
            self.save(Path(chosen))

    def save(self, path: Path) -> None:
        """Write the plot in a thread: PNG, SVG, or the numbers as CSV."""
        kind = path.suffix.lower().lstrip(".") or "png"
        if kind == "csv":
            save_table(path, self._data)
            return
        # on paper: black on white, whatever the window looks like
        self._apply_theme(ink="black", paper="white")
        picture = _rendered(self.figure, kind)
        self._apply_theme()
        self.canvas.draw_idle()
        save_with(path.with_suffix(f".{kind}"), partial(_write, picture))

    # ---- how it looks

    def _axis_title(self, column: str) -> str:
        assert self.view is not None
        return measure_of(column).titled(self.view.tables.unit, self.view.tables.n_spatial)

    def _text(self) -> str:
        return str(get_theme(self._viewer.theme).text.as_hex())

    def _apply_theme(self, ink: str = "", paper: str = "") -> None:
        """Colour the plot like the window, or as asked."""
        ink = ink or self._text()
        paper = paper or str(get_theme(self._viewer.theme).background.as_hex())
        self.figure.set_facecolor(paper)
        for axes in self.figure.axes:
            axes.set_facecolor(paper)
            axes.tick_params(which="both", colors=ink, labelsize=8)
            for spine in axes.spines.values():
                spine.set_color(ink)
            axes.spines[["top", "right"]].set_visible(False)
            for label in (axes.xaxis.label, axes.yaxis.label):
                label.set_color(ink)
                label.set_fontsize(9)

    def _build(self) -> None:
        self.figure = Figure(figsize=(3.4, 2.8), layout="constrained")
        self.canvas: Any = FigureCanvasQTAgg(self.figure)  # type: ignore[no-untyped-call]
        self.canvas.setMinimumHeight(150)
        self.canvas.mpl_connect("button_press_event", self._clicked)
        self._nothing = plain_label(NO_RESULT)
        self._kind, self._x, self._y = QComboBox(), QComboBox(), QComboBox()
        self._kind.addItems([BY_NUMBER, BY_VOLUME, PROFILE, SCATTER])
        self._kind.setToolTip("What to plot. Drag in the scatter plot to select pores.")
        names = ("What to plot", "Horizontal axis", "Vertical axis")
        for box, name in zip((self._kind, self._x, self._y), names, strict=True):
            box.setAccessibleName(name)
        self._x.setToolTip("Column along the horizontal axis.")
        self._y.setToolTip("Column along the vertical axis.")
        self._log, self._cumulative = QCheckBox("&log"), QCheckBox("&cumulative")
        self._log.setToolTip("A logarithmic horizontal axis.")
        self._cumulative.setToolTip("The share up to each size.")
        self._save_button = QPushButton("&Save …")
        self._save_button.setToolTip("Save the plot as PNG or SVG, or its numbers as CSV.")
        self._save_button.clicked.connect(self._save)
        for box in (self._kind, self._x, self._y):
            box.setSizeAdjustPolicy(
                QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            box.setMinimumContentsLength(8)
            box.currentIndexChanged.connect(self.draw)
        for tick in (self._log, self._cumulative):
            tick.toggled.connect(self.draw)
        grid = QGridLayout()
        grid.addWidget(self._kind, 0, 0, 1, 2)
        grid.addWidget(self._x, 1, 0)
        grid.addWidget(self._y, 1, 1)
        line = QHBoxLayout()
        line.addWidget(self._log)
        line.addWidget(self._cumulative)
        line.addStretch(1)
        line.addWidget(self._save_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(6, 6, 6, 6)
        column.addWidget(self._nothing)
        column.addLayout(grid)
        column.addWidget(self.canvas, 1)
        column.addLayout(line)
        self.setMinimumWidth(300)


def _write(picture: bytes, path: Path) -> None:
    path.write_bytes(picture)


def _rendered(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=200)
    return buffer.getvalue()
