"""The list of series in a file or folder, and the grouping of dropped slices into volumes."""

from __future__ import annotations

import itertools
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QSize, Qt, QTimer, Signal
from qtpy.QtGui import QImage, QPixmap
from qtpy.QtWidgets import QCheckBox, QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from hushpore.base.errors import HushporeError
from hushpore.base.events import Preview
from hushpore.base.formatting import readable_bytes
from hushpore.io import kind_of
from hushpore.io.guards import free_memory
from hushpore.io.loading import MEMORY_SHARE, preselected, split_notes
from hushpore.io.registry import READERS
from hushpore.viewer.forms.layout import ScrolledColumn, SharesSide, fill, plain_label
from hushpore.viewer.layers.conversion import contrast_limits
from hushpore.viewer.running.status import POLL_INTERVAL
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.arrays import UInt8s
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume

    #: Reads files; a list of files is one volume.
    Read = Callable[[Any, str | list[str]], None]


#: Side of a thumbnail in pixels.
THUMBNAIL = 64


class SeriesChooser(QWidget):
    """A list of series to choose from.

    `volumes`: the series, lazy or not.
    """

    #: The chosen volumes, in the order of the list; empty if the list was closed.
    chosen = Signal(object)

    def __init__(self, volumes: Sequence[Volume]) -> None:
        super().__init__()
        SharesSide(self, "Series")
        self._volumes = list(volumes)
        ticked = preselected(self._volumes, MEMORY_SHARE * free_memory())
        shared, own = split_notes([volume.notes for volume in self._volumes])
        self._rows = [_Row(volume, notes) for volume, notes in zip(self._volumes, own, strict=True)]
        self.tick(ticked)
        for row in self._rows:
            row.box.toggled.connect(self._count)
        self._total = plain_label()
        self._open = QPushButton("Open", clicked=lambda: self._answer(self._ticked()))
        line = fill(
            QHBoxLayout(),
            self._open,
            QPushButton("All", clicked=lambda: self.tick(range(len(self._rows)))),
            QPushButton("None", clicked=lambda: self.tick(())),
            QPushButton("Close", clicked=lambda: self._answer([])),
        )
        column = QVBoxLayout(self)
        column.addWidget(plain_label(f"{len(self._volumes)} series found. Tick those to open."))
        for note in shared:
            column.addWidget(plain_label(f"⚠ {note}"))
        column.addWidget(ScrolledColumn(*self._rows, margin=0), 1)
        column.addWidget(self._total)
        column.addLayout(line)
        self._count()
        self._thumbnails = JobWorker(partial(_thumbnails, self._volumes), "series thumbnails")
        self._timer = QTimer(self, interval=POLL_INTERVAL, timeout=self._look)
        for end in (self._thumbnails.returned, self._thumbnails.failed, self._thumbnails.cancelled):
            end.connect(self._drawn)
        self._thumbnails.start()
        self._timer.start()

    def sizeHint(self) -> QSize:  # noqa: N802 - Qt's name
        """Return a size with space for a name and a voxel size."""
        return QSize(380, 420)

    def ticked(self) -> list[int]:
        """Return the positions of the ticked series."""
        return [number for number, row in enumerate(self._rows) if row.box.isChecked()]

    def tick(self, numbers: Sequence[int]) -> None:
        """Tick only these series."""
        for number, row in enumerate(self._rows):
            row.box.setChecked(number in numbers)

    def _count(self, *_: Any) -> None:
        chosen = self._ticked()
        size = readable_bytes(sum(volume.nbytes for volume in chosen))
        self._open.setEnabled(bool(chosen))
        self._open.setToolTip("" if chosen else "Tick a series first.")
        text = f"{len(chosen)} of {len(self._volumes)} series, {size}"
        self._total.setText(text if chosen else "No series is ticked.")

    def _ticked(self) -> list[Volume]:
        return [self._volumes[number] for number in self.ticked()]

    def _answer(self, volumes: list[Volume]) -> None:
        self._stop()
        self.chosen.emit(volumes)

    def _stop(self) -> None:
        self._timer.stop()
        self._thumbnails.cancel()

    def _look(self) -> None:
        for number, preview in self._thumbnails.take().previews.items():
            self._rows[int(number)].show_thumbnail(preview.image)

    def _drawn(self, *_: Any) -> None:
        self._look()
        self._timer.stop()


class _Row(QFrame):
    """One series: check box, thumbnail, name, size and notes."""

    def __init__(self, volume: Volume, notes: Sequence[str]) -> None:
        super().__init__()
        self.box = QCheckBox(accessibleName=volume.name)
        self.thumbnail = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self.thumbnail.setFixedSize(THUMBNAIL, THUMBNAIL)
        shape, spacing, *stored = volume.facts.split(" · ")
        modality = volume.metadata.get("modality")
        lines = [volume.name, f"{f'{modality} · ' * bool(modality)}{shape}"]
        lines += [f"{spacing} · {' · '.join(stored)}", *(f"⚠ {note}" for note in notes)]
        self.text = plain_label("\n".join(lines))
        line = fill(QHBoxLayout(self), self.box, self.thumbnail, self.text, wide=self.text)
        line.setContentsMargins(0, 4, 0, 4)

    def mousePressEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Toggle the check box by a click anywhere in the row."""
        self.box.toggle()
        event.accept()

    def show_thumbnail(self, grey: UInt8s) -> None:
        """Show a thumbnail."""
        height, width = grey.shape
        image = QImage(grey.data, width, height, width, QImage.Format.Format_Grayscale8)
        picture = QPixmap.fromImage(image)
        whole = Qt.AspectRatioMode.KeepAspectRatio
        self.thumbnail.setPixmap(picture.scaled(THUMBNAIL, THUMBNAIL, whole))


def offer_series(
    viewer: Any, place: str, volumes: Sequence[Volume], then: Callable[[list[Volume]], None]
) -> SeriesChooser:
    """Dock a list of series in the window until the user chooses or closes it.

    `place`: name of the folder or file, for the title. `then`: called with the chosen volumes.
    """
    chooser = SeriesChooser(volumes)
    dock = viewer.window.add_dock_widget(chooser, name=f"Series in {place}", area="right")

    def answer(chosen: list[Volume]) -> None:
        viewer.window.remove_dock_widget(dock)
        if chosen:
            then(chosen)

    chooser.chosen.connect(answer)
    return chooser


def thumbnail(volume: Volume) -> UInt8s:
    """Return the middle slice of a volume as 8-bit grey values, at most `THUMBNAIL` pixels wide.

    Only that slice is read; it is subsampled with the same step along both axes.
    """
    middle = tuple(n // 2 for n in volume.shape[:-2])
    step = max(1, -(-max(volume.shape[-2:]) // THUMBNAIL))
    values = np.asarray(volume.data[(*middle, slice(None, None, step), slice(None, None, step))])
    low, high = volume.metadata.get("contrast_limits") or contrast_limits(values)
    share = (values.astype(np.float32) - low) / max(high - low, 1e-30)
    grey: UInt8s = (255 * np.nan_to_num(share).clip(0, 1)).astype(np.uint8)
    return np.ascontiguousarray(grey)


def _thumbnails(volumes: Sequence[Volume]) -> Job:
    for number, volume in enumerate(volumes):
        try:
            drawn = thumbnail(volume)
        except (HushporeError, OSError):
            continue  # damaged: no thumbnail; opening it shows the problem
        yield Preview(str(number), drawn, ())


#: Milliseconds to wait for further slices of a drop.
DROP_PAUSE = 250

#: Minimum number of TIFF files or pictures with numbered names that are treated as one stack.
MIN_NUMBERED = 8

_LOOKED_AT = 200  # maximum number of names checked in a folder

#: The timer that waits for further slices, and the slices so far, by viewer.
_pending: dict[Any, tuple[QTimer, list[str]]] = {}


def is_slice(viewer: Any, path: str) -> bool:
    """Whether a file is probably a slice of a stack, so that the reader waits for others.

    True for DICOM files, and for TIFF files and pictures if the names of enough others in their
    folder differ only by a number.
    """
    by = slices_by(path)
    return by == "header" or (by == "name" and (viewer in _pending or _has_alike(path)))


def collect_slice(viewer: Any, path: str, read: Read) -> None:
    """Wait for further slices of the same drop, then read them together."""
    if viewer not in _pending:
        read_all = partial(_read_all, viewer, read)
        _pending[viewer] = QTimer(singleShot=True, interval=DROP_PAUSE, timeout=read_all), []
    timer, paths = _pending[viewer]
    paths.append(path)
    # restarted for each file, because napari processes events between two files
    timer.start()


def grouped(paths: Sequence[str]) -> list[list[str]]:
    """Group files into stacks: all files with slice headers, and each numbered series."""
    by_pattern: dict[str, list[str]] = {}
    for path in paths:
        pattern = _pattern(path) if slices_by(path) == "name" else ""
        by_pattern.setdefault(pattern, []).append(path)
    groups = []
    for pattern, alike in by_pattern.items():
        together = not pattern or len(alike) >= MIN_NUMBERED
        groups += [alike] if together else [[path] for path in alike]
    return groups


def _read_all(viewer: Any, read: Read) -> None:
    _, paths = _pending.pop(viewer)
    for group in grouped(paths):
        read(viewer, group[0] if len(group) == 1 else group)


def slices_by(path: str | Path) -> str:
    """Return how slices in this file format are ordered: "header", "name", or empty."""
    kind = kind_of(path) if Path(path).is_file() else None
    return READERS[kind].slices_by if kind else ""


def _has_alike(path: str) -> bool:
    folder, name = os.path.split(path)
    pattern = _pattern(name)
    if pattern == name:
        return False
    with os.scandir(folder or ".") as entries:
        names = (entry.name for entry in itertools.islice(entries, _LOOKED_AT))
        alike = (other for other in names if _pattern(other) == pattern)
        return len(list(itertools.islice(alike, MIN_NUMBERED))) == MIN_NUMBERED


def _pattern(path: str) -> str:
    """Return a path with its last number replaced by ``#``; unchanged if it has none.

    >>> _pattern("scan2/slice_0017.tif")
    'scan2/slice_#.tif'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, re.sub(r"\d+(?=\D*$)", "#", name))
