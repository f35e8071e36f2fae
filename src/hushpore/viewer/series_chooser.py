"""Which of several series to open: a list with sizes, notes and pictures, docked in the window."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QSize, Qt, QTimer, Signal
from qtpy.QtGui import QIcon, QImage, QPixmap
from qtpy.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError
from hushpore.base.events import Preview
from hushpore.base.volume import readable_bytes
from hushpore.io.choosing import proposed
from hushpore.io.loading import SHARE, free_memory
from hushpore.viewer.layers import contrast_limits
from hushpore.viewer.loading import LOOK
from hushpore.viewer.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume

#: Edge of a picture, in pixels.
EDGE = 64


class SeriesChooser(QWidget):
    """Lists series; those with a tick are opened.

    Parameters
    ----------
    volumes : sequence of Volume
        What was found, values on disk or not.
    """

    chosen = Signal(object)  # list of Volume, in the order of the list
    dismissed = Signal()

    def __init__(self, volumes: Sequence[Volume]) -> None:
        super().__init__()
        self._volumes = list(volumes)
        ticked = proposed(self._volumes, SHARE * free_memory())
        self._tree = _tree()
        self._items = [_item(volume, i in ticked) for i, volume in enumerate(self._volumes)]
        for item in self._items:
            self._tree.addTopLevelItem(item)
            for row in range(item.childCount()):
                item.child(row).setFirstColumnSpanned(True)
        self._tree.expandAll()
        self._tree.itemChanged.connect(self._count)
        self._total = QLabel()
        self._total.setWordWrap(True)
        self._open = _button("Open", self._choose)
        everything = _button("All", partial(self.tick, range(len(self._volumes))))
        nothing = _button("None", partial(self.tick, ()))
        close = _button("Close", self._dismiss)
        line = QHBoxLayout()
        for button in (self._open, everything, nothing, close):
            line.addWidget(button)
        column = QVBoxLayout(self)
        column.addWidget(QLabel(f"{len(self._volumes)} series were found. Which to open?"))
        column.addWidget(self._tree, 1)
        column.addWidget(self._total)
        column.addLayout(line)
        self._count()
        self._pictures = JobWorker(partial(_pictures, self._volumes), "hushpore draws series")
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK)
        self._timer.timeout.connect(self._look)
        for end in (self._pictures.returned, self._pictures.failed, self._pictures.cancelled):
            end.connect(self._drawn)
        self._pictures.start()
        self._timer.start()

    def sizeHint(self) -> QSize:  # noqa: N802 - Qt's name
        """Wide enough for a name and a voxel size."""
        return QSize(380, 420)

    def ticked(self) -> list[int]:
        """Return the places of the series that have a tick."""
        return [
            number
            for number, item in enumerate(self._items)
            if item.checkState(0) == Qt.CheckState.Checked
        ]

    def tick(self, numbers: Sequence[int]) -> None:
        """Put a tick at some series, and at no other."""
        for number, item in enumerate(self._items):
            item.setCheckState(0, _state(number in numbers))

    def _count(self, *_: Any) -> None:
        chosen = [self._volumes[number] for number in self.ticked()]
        size = sum(volume.nbytes for volume in chosen)
        self._open.setEnabled(bool(chosen))
        self._open.setToolTip("" if chosen else "Tick a series first.")
        self._total.setText(
            f"{len(chosen)} of {len(self._volumes)} series, {readable_bytes(size)}"
            if chosen
            else "No series has a tick: nothing to open."
        )

    def _choose(self) -> None:
        self._stop()
        self.chosen.emit([self._volumes[number] for number in self.ticked()])

    def _dismiss(self) -> None:
        self._stop()
        self.dismissed.emit()

    def _stop(self) -> None:
        self._timer.stop()
        self._pictures.cancel()

    def _look(self) -> None:
        for number, preview in self._pictures.take().previews.items():
            self._items[int(number)].setIcon(0, _icon(preview.image))

    def _drawn(self, *_: Any) -> None:
        self._look()
        self._timer.stop()


def offer_series(
    viewer: Any, place: str, volumes: Sequence[Volume], then: Callable[[list[Volume]], None]
) -> SeriesChooser:
    """Dock a chooser in the window; it goes away when it has been answered.

    Parameters
    ----------
    viewer : napari.Viewer
        Whose window.
    place : str
        Name of the folder or file, for the title.
    volumes : sequence of Volume
        What was found.
    then : callable
        Called with the chosen volumes; not where the user closes the list.
    """
    chooser = SeriesChooser(volumes)
    dock = viewer.window.add_dock_widget(chooser, name=f"Series in {place}", area="right")

    def close() -> None:
        viewer.window.remove_dock_widget(dock)

    chooser.chosen.connect(lambda found: (close(), then(found)))
    chooser.dismissed.connect(close)
    return chooser


def picture(volume: Volume) -> npt.NDArray[np.uint8]:
    """Return the middle slice of a volume as grey values, no larger than `EDGE`.

    One slice is read. Steps of the slice are as wide as needed, so that proportions are kept.
    """
    middle = tuple(n // 2 for n in volume.shape[:-2])
    step = max(1, -(-max(volume.shape[-2:]) // EDGE))
    values = np.asarray(volume.data[(*middle, slice(None, None, step), slice(None, None, step))])
    low, high = volume.metadata.get("contrast_limits") or contrast_limits(values)
    share = (values.astype(np.float32) - low) / max(high - low, 1e-30)
    grey: npt.NDArray[np.uint8] = (255 * np.nan_to_num(share).clip(0, 1)).astype(np.uint8)
    return np.ascontiguousarray(grey)


def _pictures(volumes: Sequence[Volume]) -> Job:
    for number, volume in enumerate(volumes):
        try:
            drawn = picture(volume)
        except (HushporeError, OSError):
            continue  # what is damaged has no picture; opening it says why
        yield Preview(str(number), drawn, ())


def _tree() -> QTreeWidget:
    tree = QTreeWidget()
    tree.setColumnCount(1)
    tree.setHeaderHidden(True)
    tree.header().setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
    tree.setIconSize(QSize(EDGE, EDGE))
    tree.setWordWrap(True)
    tree.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
    tree.setRootIsDecorated(False)
    return tree


def _item(volume: Volume, is_ticked: bool) -> QTreeWidgetItem:
    modality = volume.metadata.get("modality")
    facts = volume.facts if not modality else f"{modality} · {volume.facts}"
    item = QTreeWidgetItem([f"{volume.name}\n{facts}"])
    item.setCheckState(0, _state(is_ticked))
    empty = QPixmap(EDGE, EDGE)
    empty.fill(Qt.GlobalColor.transparent)
    item.setIcon(0, QIcon(empty))
    for note in volume.notes:
        line = QTreeWidgetItem([f"⚠ {note}"])
        line.setFlags(Qt.ItemFlag.ItemIsEnabled)
        line.setToolTip(0, note)
        item.addChild(line)
    return item


def _icon(grey: npt.NDArray[np.uint8]) -> QIcon:
    height, width = grey.shape
    image = QImage(grey.data, width, height, width, QImage.Format.Format_Grayscale8)
    return QIcon(QPixmap.fromImage(image).scaled(EDGE, EDGE, Qt.AspectRatioMode.KeepAspectRatio))


def _state(is_ticked: bool) -> Qt.CheckState:
    return Qt.CheckState.Checked if is_ticked else Qt.CheckState.Unchecked


def _button(text: str, pressed: Callable[[], None]) -> QPushButton:
    button = QPushButton(text)
    button.clicked.connect(lambda _: pressed())
    return button
