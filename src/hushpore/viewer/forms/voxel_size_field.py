"""The field for the voxel size of a scan, which its line of facts unfolds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import InputError
from hushpore.base.readable import readable_unit
from hushpore.viewer.forms.layout import fill
from hushpore.viewer.forms.rich_label import plain_label

if TYPE_CHECKING:
    from hushpore.base.volume import Volume

#: Units on offer, those of scanners first.
UNITS = ("um", "mm", "nm", "cm", "m")


class VoxelSizeField(QWidget):
    """Asks for the size of a voxel in y and x, and in z where it is another; hidden at first."""

    #: The size that was given, as `hushpore.runs.source.with_voxel_size` takes it.
    given = Signal(str)

    def __init__(self) -> None:
        super().__init__(visible=False)
        self._has_z = True
        self._title = QLabel("Voxel size")
        self._across = QLineEdit(
            placeholderText="15.4", accessibleName="Voxel size", returnPressed=self._give,
            toolTip="Edge of a voxel within a slice, along y and x.",
        )  # fmt: skip
        self._unit = QComboBox(accessibleName="Unit of the voxel size")
        self._unit.addItems([readable_unit(unit) for unit in UNITS])
        self._same = QCheckBox(
            "Same in z", checked=True, toggled=self._show_z,
            toolTip="Whether slices are as far apart as voxels are wide.",
        )  # fmt: skip
        self._along_title = QLabel("In z")
        self._along = QLineEdit(
            placeholderText="5", accessibleName="Voxel size in z", returnPressed=self._give,
            toolTip="Distance from one slice to the next.",
        )  # fmt: skip
        self._problem = plain_label()
        self._set = QPushButton(
            "Set", clicked=self._give,
            toolTip="Give the scan, and all that was made of it, this voxel size.",
        )  # fmt: skip
        cancel = QPushButton("Cancel", clicked=self.hide, toolTip="Leave it as it is.")
        self._across.setMinimumWidth(60)
        first = fill(
            QHBoxLayout(), self._title, self._across, self._unit, self._same, wide=self._across
        )
        second = fill(QHBoxLayout(), self._along_title, self._along, None, self._set, cancel)
        fill(QVBoxLayout(self), first, second, self._problem, spacing=4, margin=0)

    def ask(self, volume: Volume) -> None:
        """Show the size that a volume has, to be changed; of one without a unit nothing."""
        is_known = volume.unit in UNITS
        self._has_z = volume.n_spatial == 3
        across, along = volume.spacing[-1], volume.spacing[0]
        self._across.setText(f"{across:.10g}" if is_known else "")
        self._along.setText(f"{along:.10g}" if is_known else "")
        if is_known:
            self._unit.setCurrentIndex(UNITS.index(volume.unit))
        self._same.setChecked(across == along)
        self._same.setVisible(self._has_z)
        self._show_z()
        self._problem.hide()
        self.show()
        self._across.setFocus()
        self._across.selectAll()

    def refuse(self, error: InputError) -> None:
        """Say what was wrong with what was given."""
        self._problem.setText(str(error))
        self._problem.show()

    def _show_z(self) -> None:
        asked = self._has_z and not self._same.isChecked()
        self._along_title.setVisible(asked)
        self._along.setVisible(asked)

    def _give(self) -> None:
        fields = [self._across, self._across]
        if self._has_z and not self._same.isChecked():
            fields.insert(0, self._along)
        elif self._has_z:
            fields.insert(0, self._across)
        # a comma is the decimal sign of half the world
        numbers = [field.text().strip().replace(",", ".") for field in fields]
        try:
            text = voxel_size_text(numbers, UNITS[self._unit.currentIndex()])
        except InputError as error:
            self.refuse(error)
            return
        self.given.emit(text)


def voxel_size_text(numbers: list[str], unit: str) -> str:
    """Return a voxel size as settings have it, of one number for each axis.

    Raises InputError if one of them is no size.
    """
    for number in numbers:
        try:
            is_size = 0 < float(number) < float("inf")
        except ValueError:
            is_size = False
        if not is_size:
            raise InputError(
                f"The size of a voxel is a number above 0; got {number!r}."
                if number
                else "Type the size of a voxel: a number above 0."
            )
    return f"{numbers[0] if len(set(numbers)) == 1 else ','.join(numbers)}{unit}"
