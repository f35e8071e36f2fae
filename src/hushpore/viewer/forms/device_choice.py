"""The combo box of devices, and what it says: which it will be, why, and what it will do."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from qtpy.QtCore import QObject, Qt, Signal
from qtpy.QtWidgets import QComboBox, QHBoxLayout, QLabel, QToolButton, QVBoxLayout, QWidget

from hushpore.base.errors import DeviceError, InputError
from hushpore.device.backend import Backend, choose_backend
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.running.worker import JobWorker

if TYPE_CHECKING:
    from hushpore.base.events import Job
    from hushpore.jobs import JobDescription


@dataclass(frozen=True)
class Devices:
    """What was found on this machine."""

    auto: Backend  # what "auto" takes
    cuda: tuple[Backend, ...] = ()  # every CUDA device that can be used


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


def _ask(device: str) -> Job:
    """Return what there is to say of a device; may take seconds, for CuPy is imported."""
    yield from ()
    try:
        return choose_backend(device).details()
    except DeviceError as error:
        return [str(error)]


def look_again() -> None:
    """Have every choice of a device look anew: what is preferred has changed."""
    find_devices.cache_clear()
    _CHANGES.happened.emit()


class _Changes(QObject):
    """Told of by a signal, from which Qt takes those off that are gone."""

    happened = Signal()


_CHANGES = _Changes()


class DeviceChoice(QWidget):
    """Auto, CPU, or a CUDA device that was found; looks for them in a thread.

    `kind`: the job that it is for, which may take a GPU only where one is asked for.
    """

    found = Signal()
    changed = Signal()

    def __init__(self, kind: JobDescription | None = None) -> None:
        super().__init__()
        self._kind = kind
        self._devices: Devices | None = None
        self._box = QComboBox()
        self._box.setAccessibleName("Device")
        self._box.setToolTip("Where to run. Auto takes a GPU where one can be used.")
        self._box.addItem("Auto", "auto")
        self._box.addItem("CPU", "cpu")
        self._box.currentIndexChanged.connect(self._explain)
        self._box.currentIndexChanged.connect(self.changed)
        self._line = QLabel("looking for a GPU …")
        self._line.setWordWrap(True)
        self._more = QToolButton()
        self._more.setCheckable(True)
        self._more.setArrowType(Qt.ArrowType.RightArrow)
        self._more.setAccessibleName("About the device")
        self._more.setToolTip("What this device has, what is missing, and what will be used on it.")
        self._more.toggled.connect(self._unfold)
        self._details = plain_label()
        self._details.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(2)
        row = QHBoxLayout()
        row.addWidget(QLabel("Device"))
        row.addWidget(self._box, 1)
        row.addWidget(self._more)
        column.addLayout(row)
        column.addWidget(self._line)
        column.addWidget(self._details)
        self._listed = self._box.count()
        _CHANGES.happened.connect(self.look)
        self.look()

    def look(self) -> None:
        """Look for devices, in a thread."""
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
        return "cpu" if self._devices is None else self._auto(self._devices).device

    def set(self, device: str) -> None:
        """Choose a device.

        Raises InputError if there is none of this name; while GPUs are still looked for it is taken
        as it is.
        """
        if self._box.findData(device) < 0:
            if self._devices is not None:
                known = ", ".join(repr(self._box.itemData(n)) for n in range(self._box.count()))
                raise InputError(f"device must be one of {known}; got {device!r}.")
            self._box.addItem(device.upper(), device)
        self._box.setCurrentIndex(self._box.findData(device))

    def _auto(self, devices: Devices) -> Backend:
        if self._kind is None or self._kind.on_gpu:
            return devices.auto
        return self._kind.backend("auto")

    def line(self) -> str:
        """Return what is said about the choice."""
        return str(self._line.text())

    def details(self) -> str:
        """Return what is unfolded about the choice: a line each, empty while it is folded."""
        return "" if self._details.isHidden() else str(self._details.text())

    def _unfold(self, is_open: bool) -> None:
        arrow = Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow
        self._more.setArrowType(arrow)
        self._details.setVisible(is_open)
        self._ask_details()

    def _ask_details(self) -> None:
        """Ask in a thread, while it is unfolded; what memory is free is asked anew each time."""
        if not self._more.isChecked():
            return
        self._details.setText("looking …")
        device = self.resolved()
        self._asking = JobWorker(partial(_ask, device), "hushpore asks the device")
        self._asking.returned.connect(partial(self._tell, device))
        self._asking.start()

    def _tell(self, device: str, lines: list[str]) -> None:
        if device != self.resolved():
            return  # another was chosen meanwhile
        self._details.setText("\n".join(f"• {line}" for line in lines))

    def _show(self, devices: Devices) -> None:
        chosen, self._devices = self.value(), devices
        while self._box.count() > self._listed:
            self._box.removeItem(self._listed)
        for backend in devices.cuda:
            self._box.addItem(f"{backend.device.upper()} {backend.name}", backend.device)
        self._box.setCurrentIndex(max(0, self._box.findData(chosen)))
        self._explain()
        self.found.emit()

    def _show_failure(self, problem: object) -> None:
        self._show(Devices(Backend(reason="PyTorch could not be used to look for a GPU")))

    def _explain(self) -> None:
        if self._devices is None:
            return
        device = self.value()
        auto = self._auto(self._devices)
        if device == "auto":
            text = f"{auto.name} ({auto.reason})"
        elif device == "cpu":
            text = Backend().name
        else:
            text = next(one.name for one in self._devices.cuda if one.device == device)
        self._line.setText(text)
        self._ask_details()
