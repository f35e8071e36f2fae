"""The form that imports a raw file without header, with a preview of a slice."""

from __future__ import annotations

import dataclasses
import html
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Layer
from qtpy.QtCore import Qt, QTimer
from qtpy.QtGui import QImage, QPixmap
from qtpy.QtWidgets import (
    QComboBox,
    QFileDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSlider,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError
from hushpore.io.loading import into_memory
from hushpore.io.raw import why_misfit
from hushpore.io.raw_guess import guess_layout
from hushpore.runs.scan_recipe import ScanRecipe
from hushpore.viewer.forms.layout import (
    RichLabel,
    ScrolledColumn,
    SharesSide,
    fill,
    plain_label,
    sign,
)
from hushpore.viewer.layers.conversion import METADATA_KEY, READ, layer_data
from hushpore.viewer.layers.visibility import show_new_scans, show_scale_bar
from hushpore.viewer.running.status import LoadingTask

if TYPE_CHECKING:
    from hushpore.base.arrays import Array
    from hushpore.base.events import Job
    from hushpore.viewer.running.problem import Problem

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
        SharesSide(self, "Raw import")
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
        height, width = grey.shape
        image = QImage(grey.data, width, height, width, QImage.Format.Format_Grayscale8)
        whole = Qt.AspectRatioMode.KeepAspectRatio
        self._picture.setPixmap(QPixmap.fromImage(image).scaled(_PREVIEW, _PREVIEW, whole))

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
        self.setMinimumWidth(320)


def offer_raw_import(viewer: Any, path: str) -> RawImportWidget:
    """Open the form for a file in the window."""
    dock, widget = viewer.window.add_plugin_dock_widget("hushpore", "Raw import", tabify=True)
    dock.show()
    dock.raise_()
    found: RawImportWidget = widget
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
