"""The choice of where a job runs: this computer, or the workers of a cluster."""

from __future__ import annotations

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from hushpore.device.backend import cpu_threads
from hushpore.viewer.forms.rich_label import plain_label

#: What stands in the box for this process.
HERE = "This computer"


class RunOn(QWidget):
    """A box with this computer, processes of it, or the address of a scheduler that is typed."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._box = QComboBox()
        self._box.setEditable(True)
        self._box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self._box.setAccessibleName("Run on")
        self._box.setToolTip(
            "Where to run. Type the address of a scheduler of dask.distributed, as "
            "tcp://head-node:8786, or the path of its scheduler file, for work on a cluster."
        )
        self._box.addItems([HERE, f"local:{cpu_threads()}"])
        self._box.currentTextChanged.connect(self._explain)
        self._box.currentTextChanged.connect(self.changed)
        self._line = plain_label()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        row = QHBoxLayout()
        row.addWidget(QLabel("Run on"))
        row.addWidget(self._box, 1)
        column.addLayout(row)
        column.addWidget(self._line)
        self._explain()

    def value(self) -> str:
        """Return the place as `hushpore.cluster` takes it; empty for this process."""
        text = str(self._box.currentText()).strip()
        return "" if text in ("", HERE) else text

    def set(self, where: str) -> None:
        """Choose a place; empty for this process."""
        self._box.setCurrentText(where or HERE)

    def line(self) -> str:
        """Return what is said about the choice."""
        return str(self._line.text())

    def _explain(self) -> None:
        where = self.value()
        text = "The result is written as OME-Zarr beside the scan, block by block"
        if where.startswith("local"):
            text = f"Processes of this computer. {text}."
        else:
            text = f"{text}: on a disk that all workers see."
        self._line.setText(text)
        self._line.setVisible(bool(where))
