"""The slider that merges the pores of a result with another merge height."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QDoubleSpinBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QSlider,
    QVBoxLayout,
    QWidget,
)
from superqt.utils import signals_blocked

from hushpore.viewer.forms.docking import REDO_MERGE, UNDO_MERGE, bind, with_key
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import plain_label, unbroken
from hushpore.viewer.layers.conversion import is_painted, scan_of, unwrapped
from hushpore.viewer.results.pore_layer import (
    colour_numbers,
    result_of,
    update_pore_layer,
    with_tables,
)
from hushpore.viewer.results.pore_view import MAX_COLOURS, PoreView
from hushpore.viewer.running.redraw import coalesce_redraws
from hushpore.viewer.running.worker import LatestOnlyWorker, calling

if TYPE_CHECKING:
    from hushpore.pores.result import Pores
    from hushpore.viewer.running.problem import Problem

#: Milliseconds after the last change until pores are merged.
PAUSE = 60

#: Voxels of merge height in one step of the slider.
STEP = 0.05

#: Voxels at the end of the slider, and the maximum of the box beside it.
SLIDER_MAX, _BOX_MAX = 5.0, 1000.0

#: Shown instead of merging labels that were edited by hand.
_PAINTED = (
    "Edited by hand: the table is out of date, and merging would discard the edits. To merge by "
    "another height, run again; this layer is kept."
)


class MergeHeight(QWidget):
    """Merges the pores of a layer with another merge height; hidden until there is a result.

    Works on the last selected layer with a result. Merging runs in a thread, one height at a
    time, with only the last request kept, and replaces labels, tables and record of the layer.

    `layer`: the layer whose pores are merged, or None.
    """

    #: Emitted with the newly shown result.
    merged = Signal(object)
    #: Emitted with the final result after the slider is released, or after undo or redo.
    settled = Signal(object)

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self.layer: Any = None
        self._result: Pores | None = None
        self._taken: Pores | None = None  # result of the layer when it was selected
        self._initial: Pores | None = None  # first result, if not merged by height
        self._history: list[str | float | None] = []  # heights; None: the first result
        self._colormap: Any = None  # colours of the labels of `_coloured`
        self._coloured: Any = None
        self._shown: Any = None  # colours of merged labels, made of these
        self._auto = 0.0  # height chosen by "auto"
        self._position = 0
        self._wanted: str | float | None = None
        self._scan = ""
        self._worker = LatestOnlyWorker("merging pores")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        self._timer = QTimer(self, singleShot=True, interval=PAUSE, timeout=self._merge)
        self._build()
        bind(self, UNDO_MERGE, self.undo)
        bind(self, REDO_MERGE, self.redo)
        self.hide()
        viewer.layers.selection.events.active.connect(self._take_result)
        viewer.layers.events.connect(self._follow)
        self._take_result()

    @property
    def is_busy(self) -> bool:
        """Whether a requested height is not shown yet."""
        return self._worker.is_busy or self._wanted is not None

    def follow_scan(self, scan: str) -> None:
        """Hide while another scan is chosen, until the layer is selected again.

        `scan`: see `scan_of`.
        """
        self._scan = scan
        self._take_result()

    def undo(self) -> None:
        """Go back to the previous height."""
        self._go_to(self._position - 1)

    def redo(self) -> None:
        """Go forward to the next height."""
        self._go_to(self._position + 1)

    def _build(self) -> None:
        tip = (
            "Merge neighbouring pores whose neck is shallower than this (merge height, in voxels "
            "of radius). Higher: fewer, larger pores. The result is updated at once, and the form "
            "keeps the height for the next run."
        )
        words = {"toolTip": tip, "accessibleName": "Merge height of the result"}
        self._slider = QSlider(
            Qt.Orientation.Horizontal, maximum=round(SLIDER_MAX / STEP), pageStep=4, **words,
            valueChanged=self._slider_moved, sliderReleased=self._record_height,
        )  # fmt: skip
        self._box = QDoubleSpinBox(
            maximum=_BOX_MAX, singleStep=STEP, decimals=2, suffix=" voxels", **words,
            valueChanged=self._request,
        )  # fmt: skip
        self._undo = QPushButton("Undo", clicked=self.undo)
        self._redo = QPushButton("Redo", clicked=self.redo)
        self._title, self._note = QLabel("Merge pores", toolTip=tip), plain_label()
        # room for the longest note, so that the remarks below keep their place
        self._note.setMinimumHeight(2 * self._note.fontMetrics().lineSpacing())
        self._note.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._box.setSizePolicy(QSizePolicy.Policy.Minimum, QSizePolicy.Policy.Fixed)
        title = fill(QHBoxLayout(), self._title, None, self._undo, self._redo)
        line = fill(QHBoxLayout(), self._slider, self._box, wide=self._slider)
        fill(QVBoxLayout(self), title, line, self._note, spacing=2)

    # ---- which result

    def _follow(self, event: Any) -> None:
        if event.type == "removed" and unwrapped(event.value) is self.layer:
            self.layer = self._result = self._initial = None
            self._timer.stop()
            self.hide()
        elif event.type == "metadata" and (result := self._other_result()) is not None:
            if result.can_remerge:
                # the voxel size was changed, or corrections were undone
                self._take(self.layer, result)
            else:
                self.layer = self._result = self._initial = None
                self.hide()
        elif event.type in ("metadata", "name"):
            # a preview may have become a result
            self._take_result()

    def _take_result(self, event: Any = None) -> None:
        """Use the result of the active layer, if it has one, and update the name of the layer."""
        active = self._viewer.layers.selection.active
        result = None if active is None else result_of(active)
        if result is not None and not result.can_remerge:
            result = None
        if result is not None and result is not self._result:
            self._take(unwrapped(active), result)
        if self.layer is not None:
            is_of_scan = self._scan in ("", scan_of(self.layer))
            self.setVisible(is_of_scan or unwrapped(active) is self.layer)
            self._title.setToolTip(f"{self.layer.name}. {self._slider.toolTip()}")

    def _other_result(self) -> Pores | None:
        """Return the result of the layer if it was replaced elsewhere."""
        result = None if self.layer is None else result_of(self.layer)
        return None if result is self._result else result

    @property
    def _is_painted(self) -> bool:
        return self.layer is not None and is_painted(self.layer)

    def _take(self, layer: Any, result: Pores) -> None:
        self.layer, self._result, self._taken = layer, result, result
        self._shown = None
        h = _height_of(result)
        self._initial = result if h is None else None
        self._history, self._position = [h], 0
        self._auto = result.merge_height.merge_height
        # connected to the layer: the event of the list comes before the edit is marked
        layer.events.paint.connect(self._show_state)
        self._show_height(self._auto)
        self._show_state()

    # ---- merging

    def _slider_moved(self, position: int) -> None:
        self._box.setValue(position * STEP)

    def _request(self, h: float) -> None:
        self._show_height(h)
        self._wanted = h
        self._timer.start()

    def _show_height(self, h: float) -> None:
        for widget, value in ((self._slider, round(h / STEP)), (self._box, h)):
            with signals_blocked(widget):
                widget.setValue(value)

    def _merge(self) -> None:
        if self._wanted is None or self._result is None:
            return
        h, self._wanted = self._wanted, None
        if self._is_painted:
            return
        self._show_height(self._auto if isinstance(h, str) else h)
        work = partial(calling, lambda result: with_tables(result.remerge(h)), self._result)
        self._worker.submit(work, (self.layer, self._taken))

    def _returned(self, tag: tuple[Any, Pores], result: Pores) -> None:
        layer, taken = tag
        if layer is not self.layer or self._is_painted:
            return
        if taken is self._taken:
            self._show_result(result)
            self._record_height()
        elif self._wanted is None:
            # the voxel size of the layer was changed meanwhile: merge again
            self._wanted = _height_of(result)
            self._merge()

    def _failed(self, tag: object, problem: Problem) -> None:
        self._note.setText(problem.message)

    def _show_result(self, result: Pores) -> None:
        before, self._result = self._result, result
        # draw once, after the tables are updated in the next turn
        coalesce_redraws(self)
        update_pore_layer(self.layer, result)
        assert before is not None
        self._keep_colours(before, result)
        self._show_state()
        self.merged.emit(result)

    def _keep_colours(self, before: Pores, result: Pores) -> None:
        """Colour the labels so that pores that did not change keep their colour."""
        now = PoreView.base_colormap(self.layer)
        is_ours = now is self._shown
        if not is_ours:
            # new to this slider, or chosen by the user since
            self._colormap, self._coloured = now, before
        if result.graph.count > MAX_COLOURS:
            return
        colours = self._colormap.map(colour_numbers(self._coloured, result))
        PoreView.set_base_colours(self.layer, colours, reuse=is_ours)
        self._shown = PoreView.base_colormap(self.layer)

    # ---- undo

    def _record_height(self) -> None:
        """Add the height to the history, once the slider is released and nothing is pending."""
        if self._result is None or self._slider.isSliderDown() or self.is_busy:
            return
        h = _height_of(self._result)
        if h != self._history[self._position]:
            self._history[self._position + 1 :] = [h]
            self._position += 1
        self._show_state()
        self.settled.emit(self._result)

    def _go_to(self, at: int) -> None:
        if not 0 <= at < len(self._history) or self.is_busy or self._is_painted:
            return
        self._position = at
        h = self._history[at]
        if h is not None:
            self._wanted = h
            self._merge()
        elif self._initial is not None:
            self._show_result(self._initial)
            self.settled.emit(self._initial)

    def _show_state(self, event: Any = None) -> None:
        for button, at, word, key in (
            (self._undo, self._position - 1, "undo", UNDO_MERGE),
            (self._redo, self._position + 1, "redo", REDO_MERGE),
        ):
            is_possible = 0 <= at < len(self._history) and not self._is_painted
            button.setEnabled(is_possible)
            button.setToolTip(
                with_key(self._named(self._history[at]), key)
                if is_possible
                else f"Nothing to {word}."
            )
        word = "" if self._result is None else self._result.merge_height.reason
        if self._result is not self._initial and self._initial is not None:
            word = "Now merged by height. Undo restores the first result."
        elif self._initial is not None:
            word = f"{self._named(None)}. Moving the slider merges by height instead."
        if self._is_painted:
            word = _PAINTED
        for widget in (self._slider, self._box):
            widget.setEnabled(not self._is_painted)
        self._note.setText(unbroken(word))

    def _named(self, h: str | float | None) -> str:
        if isinstance(h, str):
            return f"Merge height {self._auto:.3g} voxels (auto)"
        if h is not None:
            return f"Merge height {h:g} voxels"
        assert self._initial is not None
        by = self._initial.provenance["result"]["merged_by"]
        return "Split at SNOW peaks" if "peaks" in by else "Split at markers"


def _height_of(result: Pores) -> str | float | None:
    """Return the merge height setting of a result; None if it was not merged by height."""
    height: str | float = result.provenance["settings"]["merge_height"]
    return height if "merge_height" in result.provenance["result"]["merged_by"] else None
