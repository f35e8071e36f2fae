"""What is asked before a scan is read: the shape of a raw file, and the image stack of several.

A form imports a raw file without header, with a preview of a slice. A list shows the series in a
file or folder, and dropped slices are grouped into volumes.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Layer
from qtpy.QtCore import QSize, Qt, QTimer, Signal
from qtpy.QtGui import QIcon, QImage, QPixmap
from qtpy.QtWidgets import (
    QComboBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QPushButton,
    QSlider,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError
from hushpore.base.events import Preview
from hushpore.base.formatting import readable_bytes
from hushpore.io import kind_of
from hushpore.io.guards import free_memory
from hushpore.io.loading import MEMORY_SHARE, into_memory, preselected, split_notes
from hushpore.io.raw import why_misfit
from hushpore.io.raw_guess import guess_layout
from hushpore.io.registry import READERS
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.viewer.docks import SharesSide, open_page
from hushpore.viewer.forms.layout import RichLabel, ScrolledColumn, fill, plain_label, sign
from hushpore.viewer.layers.conversion import METADATA_KEY, READ, contrast_limits, layer_data
from hushpore.viewer.layers.visibility import show_new_scans, show_scale_bar
from hushpore.viewer.running.status import POLL_INTERVAL, LoadingTask
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hushpore.base.arrays import Array, UInt8s
    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.problem import Problem

    Read = Callable[[Any, str | list[str]], None]

PURPOSE = (
    "Opens voxels without a header. Check the preview: a wrong width shows as slanted stripes."
)

#: Data types that can be chosen.
TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")

#: Side of the preview in pixels.
_PREVIEW = 280

#: Milliseconds without a change before the preview is read.
_PAUSE = 150


class RawImportWidget(QWidget):
    """Asks for the layout of a raw file and opens it as a layer."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._viewer = napari_viewer
        self._timer = QTimer(self, singleShot=True, interval=_PAUSE, timeout=self._preview)
        self._build()
        self._preview()

    def set_file(self, path: str) -> None:
        """Choose a file, and fill the form with the best guess of its layout."""
        self._path.setText(path)
        try:
            guess = guess_layout(Path(path))
        except OSError as error:
            self._say(f"{path} cannot be read: {error.strerror or error}.")
            return
        for spin, length in zip(self._lengths, guess.shape, strict=True):
            spin.setValue(length)
        self._type.setCurrentText(guess.dtype)
        self._order.setCurrentText(guess.byte_order)
        self._offset.setValue(guess.offset)
        self._size.setText(guess.voxel_size)
        self._result.say(html.escape(guess.reason))
        self._at.setMaximum(max(0, guess.shape[0] - 1))
        self._at.setValue(guess.shape[0] // 2)
        self._preview()

    def explain_missing_header(self) -> None:
        """Say why the form was opened, above the guess."""
        path = Path(self._path.text())
        text = f"{path.name} has no header, so its shape and data type must be given."
        if misfit := why_misfit(path):
            text = f"{path.name}: {misfit}. Copy it again if it is incomplete."
        self._result.say(f"{sign(False)} {html.escape(text)}<br>{self._result.html}")

    @property
    def recipe(self) -> ScanRecipe:
        """How the file is read."""
        z, y, x = (spin.value() for spin in self._lengths)
        return ScanRecipe(
            self._path.text().strip(),
            shape=f"{z},{y},{x}" if z > 1 else f"{y},{x}",
            dtype=self._type.currentText(),
            byte_order=self._order.currentText(),
            offset=self._offset.value(),
            voxel_size=self._size.text().strip(),
        )

    def open(self) -> None:
        """Open the file as a layer, in a thread."""
        recipe = self.recipe
        try:
            # a wrong voxel size is said here
            recipe.describe()
        except (HushporeError, OSError) as error:
            self._say(_in_fields(str(error)))
            return
        self._open.setEnabled(False)
        name = Path(recipe.path).name
        LoadingTask(f"Reading {name}", partial(_reading, recipe), self._opened, self._failed)

    # ---- events

    def _opened(self, layers: list[Any]) -> None:
        self._open.setEnabled(True)
        self._result.say(html.escape(f"Opened {layers[0].name}."))
        show_scale_bar(self._viewer, [layers[0].units[-1]])
        self._viewer.add_layer(layers[0])
        show_new_scans(self._viewer, layers)

    def _failed(self, problem: Problem) -> None:
        self._open.setEnabled(True)
        self._say(_in_fields(problem.message))

    def _say(self, text: str) -> None:
        self._result.say(f"{sign(False)} {html.escape(text)}")

    def _changed(self, *_: Any) -> None:
        self._at.setMaximum(max(0, self._lengths[0].value() - 1))
        self._timer.start()

    def _preview(self) -> None:
        """Show a slice, and how the layout fits the size of the file."""
        path = Path(self._path.text().strip())
        if not path.is_file():
            self._fits.setText("Choose a file first.")
            self._open.setEnabled(False)
            self._picture.clear()
            return
        recipe = dataclasses.replace(self.recipe, voxel_size="")
        size = path.stat().st_size
        each = np.dtype(recipe.dtype).itemsize
        shape = tuple(map(int, recipe.shape.split(",")))
        needed = recipe.offset + int(np.prod(shape, dtype=object)) * each
        if needed > size:
            self._fits.setText(f"⚠ {needed - size:,} bytes more than the file has ({size:,}).")
            self._open.setEnabled(False)
            self._picture.clear()
            return
        left = size - needed
        self._fits.setText(
            "✓ Fits the file size exactly."
            if not left
            else f"⚠ {left:,} bytes at the end of the file are not used."
        )
        try:
            volume = recipe.describe()
            step = max(1, max(shape[-2:]) // (2 * _PREVIEW))
            every = slice(None, None, step)
            key: tuple[Any, ...] = (self._at.value(), every, every)
            self._show(np.asarray(volume.data[key[-volume.ndim :]]))
        except (HushporeError, OSError) as error:
            self._fits.setText(f"⚠ {_in_fields(str(error))}")
            self._open.setEnabled(False)
            return
        self._open.setEnabled(True)

    def _show(self, plane: Array) -> None:
        values = np.nan_to_num(plane.astype(np.float64), posinf=0.0, neginf=0.0)
        low, high = np.percentile(values, (0.5, 99.5))
        scaled = (values - low) / max(high - low, 1e-300)
        grey = np.ascontiguousarray((255 * scaled.clip(0, 1)).astype(np.uint8))
        self._picture.setPixmap(_pixmap(grey, _PREVIEW))

    # ---- appearance

    def _ask(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Raw file")
        if path:
            self.set_file(path)

    def _build(self) -> None:
        self._path = QLineEdit(accessibleName="Raw file", placeholderText="Raw file")
        self._path.editingFinished.connect(lambda: self.set_file(self._path.text().strip()))
        browse = QPushButton("&Browse …", clicked=self._ask)
        self._lengths = [
            QSpinBox(minimum=1, maximum=99_999, accessibleName=name)
            for name in ("Slices (z)", "Height (y)", "Width (x)")
        ]
        self._type, self._order = QComboBox(accessibleName="Data type"), QComboBox()
        self._type.addItems(TYPES)
        self._order.addItems(["little", "big"])
        self._order.setToolTip("Order of the bytes of a voxel. PCs write little-endian files.")
        self._offset = QSpinBox(maximum=2**31 - 1, suffix=" bytes", accessibleName="Header size")
        self._offset.setToolTip("Bytes before the first voxel.")
        self._size = QLineEdit(placeholderText="15.4um, or 5,0.49,0.49mm")
        self._size.setToolTip("Voxel size with unit: one number, or z,y,x.")
        self._at = QSlider(Qt.Orientation.Horizontal, accessibleName="Slice of the preview")
        for spin in (*self._lengths, self._offset):
            spin.valueChanged.connect(self._changed)
        for box in (self._type, self._order):
            box.currentTextChanged.connect(self._changed)
        self._at.valueChanged.connect(lambda _: self._timer.start())
        self._picture = QLabel(alignment=Qt.AlignmentFlag.AlignCenter)
        self._picture.setFixedHeight(_PREVIEW)
        self._fits, self._result = plain_label(), RichLabel(self._viewer)
        self._open = QPushButton(
            "&Open", styleSheet="font-weight: bold; padding: 6px;", clicked=self.open
        )
        form = QFormLayout()
        form.addRow("File", fill(QHBoxLayout(), self._path, browse, wide=self._path))
        names = ("Slices (&z)", "Height (&y)", "Width (&x)")
        for name, spin in zip(reversed(names), reversed(self._lengths), strict=True):
            form.addRow(name, spin)
        form.addRow("Data &type", self._type)
        form.addRow("Byte o&rder", self._order)
        form.addRow("&Header size", self._offset)
        form.addRow("&Voxel size", self._size)
        form.addRow("Preview slice", self._at)
        scrolled = ScrolledColumn(plain_label(PURPOSE), form, self._result, self._picture)
        # below the scrolled part: on a screen of 768 pixels the button would be out of sight
        fill(QVBoxLayout(self), scrolled, self._fits, self._open, wide=scrolled)


def offer_raw_import(viewer: Any, path: str) -> RawImportWidget:
    """Open the form for a file in the window."""
    found: RawImportWidget = open_page(viewer, "Raw file")
    found.set_file(path)
    found.explain_missing_header()
    return found


def _reading(recipe: ScanRecipe) -> Job:
    (volume,) = yield from into_memory([recipe.describe()])
    made = layer_data(volume)
    known = {**recipe.to_dict(), "scan_shape": volume.shape}
    made[1]["metadata"][METADATA_KEY][READ] = known
    return [Layer.create(*made)]


def _in_fields(message: str) -> str:
    """Return a message with the names of the fields in place of the flags."""
    fields = {"--shape": "shape", "--dtype": "Data type", "--byte-order": "Byte order",
              "--offset": "Header size", "--voxel-size": "Voxel size"}  # fmt: skip
    for flag, field in fields.items():
        message = message.replace(flag, field)
    return message


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
        self._list = QListWidget(
            accessibleName="Series", wordWrap=True, iconSize=QSize(THUMBNAIL, THUMBNAIL),
            selectionMode=QListWidget.SelectionMode.MultiSelection, spacing=2,
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
        )  # fmt: skip
        for volume, notes in zip(self._volumes, own, strict=True):
            self._list.addItem(_lines(volume, notes))
        self.tick(ticked)
        self._list.itemSelectionChanged.connect(self._count)
        self._total = plain_label()
        self._open = QPushButton("Open", clicked=lambda: self._answer(self._chosen()))
        buttons = (
            self._open,
            QPushButton("All", clicked=self._list.selectAll),
            QPushButton("None", clicked=self._list.clearSelection),
            QPushButton("Close", clicked=lambda: self._answer([])),
        )
        found = plain_label(f"{len(self._volumes)} series found. Select those to open.")
        lines = found, *(plain_label(f"⚠ {note}") for note in shared)
        line = fill(QHBoxLayout(), *buttons)
        fill(QVBoxLayout(self), *lines, self._list, self._total, line, margin=6, wide=self._list)
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
        """Return the positions of the selected series."""
        return sorted(index.row() for index in self._list.selectedIndexes())

    def tick(self, numbers: Sequence[int]) -> None:
        """Select only these series."""
        for number in range(self._list.count()):
            self._list.item(number).setSelected(number in numbers)

    def _count(self, *_: Any) -> None:
        chosen = self._chosen()
        size = readable_bytes(sum(volume.nbytes for volume in chosen))
        self._open.setEnabled(bool(chosen))
        self._open.setToolTip("" if chosen else "Select a series first.")
        text = f"{len(chosen)} of {len(self._volumes)} series, {size}"
        self._total.setText(text if chosen else "No series is selected.")

    def _chosen(self) -> list[Volume]:
        return [self._volumes[number] for number in self.ticked()]

    def _answer(self, volumes: list[Volume]) -> None:
        self._timer.stop()
        self._thumbnails.cancel()
        self.chosen.emit(volumes)

    def _look(self) -> None:
        for number, preview in self._thumbnails.take().previews.items():
            picture, icon = _pixmap(preview.image, THUMBNAIL), QIcon()
            # Qt would tint a selected one
            for mode in (QIcon.Mode.Normal, QIcon.Mode.Selected):
                icon.addPixmap(picture, mode)
            self._list.item(int(number)).setIcon(icon)

    def _drawn(self, *_: Any) -> None:
        self._look()
        self._timer.stop()


def _lines(volume: Volume, notes: Sequence[str]) -> str:
    """Return name, size and notes of a series as lines."""
    shape, spacing, *stored = volume.facts.split(" · ")
    modality = volume.metadata.get("modality")
    lines = [volume.name, f"{f'{modality} · ' * bool(modality)}{shape}"]
    lines += [f"{spacing} · {' · '.join(stored)}", *(f"⚠ {note}" for note in notes)]
    return "\n".join(lines)


def _pixmap(grey: UInt8s, side: int) -> QPixmap:
    """Return a grey picture that fits into a square."""
    height, width = grey.shape
    image = QImage(grey.data, width, height, width, QImage.Format.Format_Grayscale8)
    whole = Qt.AspectRatioMode.KeepAspectRatio
    return QPixmap.fromImage(image).scaled(side, side, whole)


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
