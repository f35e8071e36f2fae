"""The combo box of devices, and the line that says which it will be and why."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from hushpore.base.errors import DeviceError
from hushpore.base.preferences import preferred
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
    found: list[Backend] = []
    with contextlib.suppress(DeviceError):
        # the last one is refused; whatever is preferred, the others can be chosen
        while (backend := choose_backend(f"cuda:{len(found)}")).is_cuda:
            found.append(backend)
    return Devices(choose_backend("auto"), tuple(found))


def _look() -> Job:
    yield from ()
    return find_devices()


def look_again() -> None:
    """Have every choice of a device look anew: what is preferred has changed."""
    find_devices.cache_clear()
    _CHANGES.happened.emit()


class _Changes(QObject):
    """Told of by a signal, from which Qt takes those off that are gone."""

    happened = Signal()


_CHANGES = _Changes()


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
        self._listed = self._box.count()
        _CHANGES.happened.connect(self.look)
        self.look()

    def look(self) -> None:
        """Look for devices, in a thread."""
        self._worker = JobWorker(_look, "hushpore looks for devices")
        self._worker.returned.connect(self._show)
        self._worker.failed.connect(self._show_failure)
        self._worker.start()

    @property
    def is_chosen(self) -> bool:
        """Whether a device was asked for, here or in the preferences."""
        return self.value() != "auto" or preferred("device").value != "auto"

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
        chosen, self._devices = self.value(), devices
        while self._box.count() > self._listed:
            self._box.removeItem(self._listed)
        for backend in devices.cuda:
            self._box.addItem(f"{backend.device.upper()} {backend.name}", backend.device)
        self.set(chosen)
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
