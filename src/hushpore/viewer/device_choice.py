"""The combo box of devices, and the line that says which it will be and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from hushpore.base.errors import DeviceError
from hushpore.device.backend import Backend, choose_backend
from hushpore.viewer.worker import JobWorker

if TYPE_CHECKING:
    from hushpore.base.events import Job


@dataclass(frozen=True)
class Devices:
    """What was found on this machine.

    Attributes
    ----------
    auto : Backend
        What "auto" takes.
    cuda : tuple of Backend
        Every CUDA device that can be used.
    """

    auto: Backend
    cuda: tuple[Backend, ...] = ()


@cache
def find_devices() -> Devices:
    """Look for devices, once a process; takes seconds, for PyTorch has to be imported."""
    auto = choose_backend("auto")
    found: list[Backend] = []
    while auto.is_cuda:
        try:
            found.append(choose_backend(f"cuda:{len(found)}"))
        except DeviceError:
            break
    return Devices(auto, tuple(found))


def _look() -> Job:
    yield from ()
    return find_devices()


class DeviceChoice(QWidget):
    """Auto, CPU, or a CUDA device that was found; looks for them in a thread."""

    found = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._devices: Devices | None = None
        self._box = QComboBox()
        self._box.setAccessibleName("Device")
        self._box.setToolTip("Where to run. Auto takes a GPU where one can be used.")
        self._box.addItem("Auto", "auto")
        self._box.addItem("CPU", "cpu")
        self._box.currentIndexChanged.connect(self._explain)
        self._line = QLabel("looking for a GPU …")
        self._line.setWordWrap(True)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        row = QHBoxLayout()
        row.addWidget(QLabel("Device"))
        row.addWidget(self._box, 1)
        column.addLayout(row)
        column.addWidget(self._line)
        self._worker = JobWorker(_look, "hushpore looks for devices")
        self._worker.returned.connect(self._show)
        self._worker.failed.connect(self._show_failure)
        self._worker.start()

    def value(self) -> str:
        """Return the device as jobs take it: ``"auto"``, ``"cpu"``, ``"cuda:0"``."""
        return str(self._box.currentData())

    def resolved(self) -> str:
        """Return the device that the job will run on; the CPU while GPUs are still looked for."""
        if self.value() != "auto":
            return self.value()
        return "cpu" if self._devices is None else self._devices.auto.device

    def set(self, device: str) -> None:
        """Choose a device that is in the list."""
        self._box.setCurrentIndex(max(0, self._box.findData(device)))

    def line(self) -> str:
        """Return what is said about the choice."""
        return str(self._line.text())

    def _show(self, devices: Devices) -> None:
        self._devices = devices
        for backend in devices.cuda:
            self._box.addItem(f"{backend.device.upper()} {backend.name}", backend.device)
        self._explain()
        self.found.emit()

    def _show_failure(self, problem: object) -> None:
        self._show(Devices(Backend(reason="PyTorch could not be used to look for a GPU")))

    def _explain(self) -> None:
        if self._devices is None:
            return
        device = self.value()
        auto = self._devices.auto
        if device == "auto":
            text = f"{auto.name} ({auto.reason})"
        elif device == "cpu":
            text = Backend().name
        else:
            text = next(one.name for one in self._devices.cuda if one.device == device)
        self._line.setText(text)
