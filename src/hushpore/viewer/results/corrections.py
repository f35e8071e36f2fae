"""Corrections of the pores of a layer by hand, with the table following."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Image, Points, Shapes
from qtpy.QtCore import QTimer, Signal
from qtpy.QtWidgets import QGridLayout, QPushButton, QVBoxLayout, QWidget

from hushpore.base.formatting import readable_count
from hushpore.viewer.forms.choices import is_preview
from hushpore.viewer.forms.layout import (
    DELETE_PORES,
    MERGE_PORES,
    RichLabel,
    bind,
    fill,
    plain_label,
    sign,
    with_key,
)
from hushpore.viewer.layers.conversion import is_painted, known_of, volume_of
from hushpore.viewer.results.pore_layer import RESULT, update_pore_layer, with_tables
from hushpore.viewer.running.worker import LatestOnlyWorker, calling

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from hushpore.base.arrays import Int32s
    from hushpore.base.volume import Volume
    from hushpore.pores.corrections.session import Corrections
    from hushpore.pores.result import Pores
    from hushpore.viewer.results.pore_view import PoreView
    from hushpore.viewer.running.problem import Problem

#: Milliseconds after the last stroke of a brush until pores are measured again.
PAUSE = 300

#: Names of the layers in which the user draws where to split and cut.
POINTS, LINE = "Split points", "Cut line"

_HINT = (
    "Select pores in the table or by a click (Ctrl adds more). napari's brush, fill and eraser "
    "work as well."
)


class CorrectionsPanel(QWidget):
    """Buttons that correct the selected pores, and the state of the table.

    Each correction is measured in a thread. napari's own undo and redo of the layer revert
    both corrections and strokes.
    """

    #: Emitted once a correction is shown.
    corrected = Signal()
    #: Emitted with whether labels were edited, so that the table is out of date.
    edited = Signal(bool)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self._view: PoreView | None = None
        self._sessions: WeakKeyDictionary[Any, tuple[Pores, Corrections]] = WeakKeyDictionary()
        self._strokes = 0
        self._worker = LatestOnlyWorker("correcting pores")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        self._timer = QTimer(self, singleShot=True, interval=PAUSE, timeout=self.measure_again)
        self._build()

    @property
    def is_busy(self) -> bool:
        """Whether a correction is not shown yet."""
        return self._worker.is_busy or self._timer.isActive()

    def show_view(self, view: PoreView | None) -> None:
        """Correct the pores of another view."""
        before = None if self._view is None else self._view.layer
        layer = None if view is None else view.layer
        self._view = view
        if layer is not before:
            if before is not None:
                before.events.paint.disconnect(self._painted)
                before.undo, before.redo = (partial(each, before) for each in _of_napari(before))
            if layer is not None:
                layer.events.paint.connect(self._painted)
                layer.undo, layer.redo = partial(self.undo, layer), partial(self.redo, layer)
        self._show_state()

    # ---- corrections

    def merge(self) -> None:
        """Merge the selected pores."""
        self._correct(lambda fix, labels: fix.merge(labels))

    def merge_walls(self) -> None:
        """Merge those of the selected pores that walls of one voxel separate."""
        self._correct(lambda fix, labels: fix.merge_walls(labels))

    def delete(self) -> None:
        """Delete the selected pores."""
        self._correct(lambda fix, labels: fix.delete(labels))

    def split(self) -> None:
        """Split a pore at the points of the layer for them, or add this layer."""
        if self._view is None:
            return
        drawn = self._drawn(POINTS)
        points = [] if drawn is None else self._places(drawn, np.atleast_2d(drawn.data))
        if len(points) < 2:
            self._draw(POINTS, "Click at two or more places in one pore, then Split again.")
            return
        label = self._label_at(points[0])
        self._correct(lambda fix, _: fix.split(label, points), drawn)

    def cut(self) -> None:
        """Cut a pore along the line in the layer for it, or add this layer."""
        if self._view is None:
            return
        drawn = self._drawn(LINE)
        if drawn is None or not len(drawn.data):
            self._draw(LINE, "Draw a line across one pore, then Cut again.")
            return
        ends = self._places(drawn, drawn.data[-1])
        axis = self._axis_across() if len(ends[0]) == 3 else 0
        label = self._selected_or_along(ends)
        self._correct(lambda fix, _: fix.cut(label, ends, axis), drawn)

    def measure_again(self) -> None:
        """Measure the pores that were painted or erased."""
        self._timer.stop()
        if self._view is None or self._worker.is_busy:
            return
        labels, strokes = np.array(self._view.layer.data), self._strokes
        self._submit(lambda fix: fix.paint_labels(labels), strokes)

    def undo(self, layer: Any) -> None:
        """Undo the last correction or stroke of a layer, also by napari's key."""
        self._step(layer, "undo")

    def redo(self, layer: Any) -> None:
        """Make the last undone correction of a layer again, also by napari's key."""
        self._step(layer, "redo")

    def _step(self, layer: Any, way: str) -> None:
        known = self._sessions.get(layer)
        if self._worker.is_busy or self._view is None or self._view.layer is not layer:
            return
        if known is None or is_painted(layer):
            # not measured yet: napari reverts the stroke
            _of_napari(layer)[way == "redo"](layer)
            self._painted()
            return
        if getattr(known[1], f"next_{way}"):
            self._submit(lambda fix: getattr(fix, way)())

    def _correct(self, do: Callable[[Corrections, list[int]], None], drawn: Any = None) -> None:
        if self._view is None or self._worker.is_busy:
            return
        if is_painted(self._view.layer):
            self.measure_again()
            self._say("The painted voxels are measured first. Click again then.")
            return
        labels = self._view.labels[self._view.selected].tolist()
        self._submit(lambda fix: do(fix, labels), drawn=drawn)

    def _submit(
        self, do: Callable[[Corrections], None], strokes: int | None = None, drawn: Any = None
    ) -> None:
        assert self._view is not None
        layer = self._view.layer
        result = known_of(layer).get(RESULT)
        if result is None:
            self._say(
                "These pores were read without the files that corrections need. Segment the scan, "
                "or measure them on the page Labels."
            )
            return
        session = self._sessions.get(layer)
        if strokes is None:
            layer.editable = False
        known = session[1] if session is not None and session[0] is result else None
        work = partial(calling, _work, result, known, do, self._scan_of(result))
        self._worker.submit(work, (layer, strokes, drawn))
        self._show_state()

    def _scan_of(self, result: Pores) -> Volume | None:
        """Return the scan of a result read from a folder, if it is open: preferably by its name."""
        if result.volume.data is not result.labels:
            return None
        images = [
            each
            for each in self._viewer.layers
            if isinstance(each, Image)
            and not (each.rgb or each.multiscale or is_preview(each))
            and each.data.shape == result.volume.shape
        ]
        images.sort(key=lambda each: each.name != result.volume.name)
        return volume_of(images[0]) if images else None

    def _returned(self, tag: tuple[Any, int | None, Any], found: Any) -> None:
        layer, strokes, drawn = tag
        session, result, labels = found
        layer.editable = True
        self._sessions[layer] = result, session
        if drawn is not None:
            drawn.data = []
        if strokes is not None and strokes != self._strokes:
            # painted further meanwhile: the table follows the last stroke
            known_of(layer)[RESULT] = result
            self._timer.start()
            return
        update_pore_layer(layer, result, labels)
        self._say("")
        self._show_state()
        self.corrected.emit()

    def _failed(self, tag: tuple[Any, int | None, Any], problem: Problem) -> None:
        layer, strokes, _ = tag
        layer.editable = True
        unchanged = strokes is not None and problem.message.startswith("Nothing to change")
        if unchanged:
            update_pore_layer(layer, known_of(layer)[RESULT], np.array(layer.data))
        self._say("" if unchanged else problem.message)
        self._show_state()

    # ---- painting

    def _painted(self, event: Any = None) -> None:
        """Measure again a moment after the last stroke."""
        self._strokes += 1
        self._timer.start()
        self._show_state()

    # ---- points and lines

    def _drawn(self, name: str) -> Any:
        kind = Points if name == POINTS else Shapes
        found = [each for each in self._viewer.layers if each.name == name]
        return next((each for each in found if isinstance(each, kind)), None)

    def _draw(self, name: str, words: str) -> None:
        """Show the layer in which to draw, in drawing mode."""
        assert self._view is not None
        layer = self._drawn(name)
        if layer is None:
            how: dict[str, Any] = {
                "name": name,
                "ndim": self._view.layer.ndim,
                "scale": self._view.layer.scale,
                "translate": self._view.layer.translate,
                "units": self._view.layer.units,
            }
            if name == POINTS:
                layer = self._viewer.add_points(size=6, face_color="white", **how)
            else:
                layer = self._viewer.add_shapes(edge_color="white", edge_width=1, **how)
        self._viewer.layers.selection.active = layer
        layer.mode = "add" if name == POINTS else "add_line"
        self._say(words, is_problem=False)

    def _places(self, drawn: Any, points: npt.ArrayLike) -> list[tuple[float, ...]]:
        """Return points of another layer as voxel indices of the labels."""
        assert self._view is not None
        layer, ndim = self._view.layer, self._view.layer.ndim
        places = [
            layer.world_to_data(drawn.data_to_world(point)[-ndim:]) for point in np.asarray(points)
        ]
        return [tuple(float(x) for x in place) for place in places]

    def _label_at(self, place: tuple[float, ...]) -> int:
        """Return the label at a voxel; 0 outside the volume."""
        assert self._view is not None
        at = tuple(round(x) for x in place)
        data = self._view.layer.data
        inside = all(0 <= x < n for x, n in zip(at, data.shape, strict=True))
        return int(data[at]) if inside else 0

    def _axis_across(self) -> int:
        """Return the axis of the labels along which the viewer shows slices."""
        dims = self._viewer.dims
        axis: int = dims.order[-3] - dims.ndim + 3
        return axis

    def _selected_or_along(self, ends: list[tuple[float, ...]]) -> int:
        """Return the selected pore, or the one with most of a line."""
        assert self._view is not None
        labels = self._view.labels[self._view.selected].tolist()
        if len(labels) == 1:
            return int(labels[0])
        first, last = (np.array(end) for end in ends)
        count = int(np.ceil(np.abs(last - first).max())) * 2 + 2
        found = [self._label_at(tuple(p)) for p in np.linspace(first, last, count)]
        counts = np.bincount(found)
        counts[0] = 0
        return int(counts.argmax())

    # ---- appearance

    def _build(self) -> None:
        self._problem, self._hint = RichLabel(self._viewer), plain_label()
        self._hint.setText(_HINT)
        buttons = (
            ("Merge", self.merge, "Merge the selected pores into one.", MERGE_PORES),
            (
                "Merge walls", self.merge_walls,
                "Merge those of the selected pores that a wall of one voxel separates, and fill "
                "the wall.", "",
            ),
            ("Delete", self.delete, "Delete the selected pores: they become solid.", DELETE_PORES),
            (
                "Split", self.split,
                "Split a pore at points: click two or more places in it. The cut runs through the "
                "neck between them.", "",
            ),
            (
                "Cut", self.cut,
                "Cut a pore along a line drawn across it, through all slices of the pore.", "",
            ),
        )  # fmt: skip
        grid = QGridLayout()
        grid.setSpacing(4)
        self._buttons = []
        for number, (text, act, tip, key) in enumerate(buttons):
            button = QPushButton(text, clicked=act, toolTip=with_key(tip, key) if key else tip)
            grid.addWidget(button, number // 2, number % 2)
            self._buttons.append(button)
            if key:
                bind(self, key, act)
        self._undo = QPushButton("Undo", clicked=lambda: self._on_layer("undo"))
        self._redo = QPushButton("Redo", clicked=lambda: self._on_layer("redo"))
        self._again = QPushButton(
            "Measure again",
            clicked=self.measure_again,
            toolTip="Measure the pores that were painted or erased. It also happens a moment after "
            "the last stroke.",
        )
        for place, button in enumerate((self._again, self._undo, self._redo), 5):
            grid.addWidget(button, place // 2, place % 2)
        self._state = plain_label()
        fill(QVBoxLayout(self), grid, self._state, self._problem, self._hint, spacing=4)

    def _on_layer(self, way: str) -> None:
        if self._view is not None:
            self._step(self._view.layer, way)

    def _say(self, words: str, *, is_problem: bool = True) -> None:
        """Show a message in place of the hint; an empty one restores the hint."""
        start = f"{sign(False)} " if is_problem else ""
        self._problem.say(start + html.escape(words) if words else "")
        self._hint.setVisible(not words)

    def _show_state(self) -> None:
        layer = None if self._view is None else self._view.layer
        known = None if layer is None else self._sessions.get(layer)
        stale = layer is not None and is_painted(layer)
        for button, way in ((self._undo, "undo"), (self._redo, "redo")):
            words = "" if known is None else getattr(known[1], f"next_{way}")
            button.setEnabled(bool(words) or stale)
            button.setToolTip(f"{way.capitalize()}: {words}" if words else f"Nothing to {way}.")
        self._again.setEnabled(stale)
        result = None if layer is None else known_of(layer).get(RESULT)
        count = 0 if result is None else len(result.corrections)
        text = readable_count(count, "correction") if count else "No corrections"
        self._state.setText("Labels were edited: the table is out of date." if stale else text)
        self.edited.emit(stale)


def _of_napari(layer: Any) -> tuple[Callable[[Any], None], Callable[[Any], None]]:
    """Return napari's undo and redo of a layer."""
    return type(layer).undo, type(layer).redo


def _work(
    result: Pores,
    session: Corrections | None,
    do: Callable[[Corrections], None],
    scan: Volume | None,
) -> tuple[Corrections, Pores, Int32s]:
    """Make a correction and return session, result and a copy of the labels for the layer."""
    # imported late, because it loads the pore engine
    from hushpore.pores.corrections.session import Corrections

    fix = Corrections(result, scan) if session is None else session
    do(fix)
    found = with_tables(fix.result)
    return fix, found, found.labels.copy()
