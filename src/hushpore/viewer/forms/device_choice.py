"""The choice of the device and of the computer for a job, with explanations."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QApplication, QComboBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from hushpore.base.errors import DeviceError, InputError
from hushpore.device.backend import Backend, choose_backend, cpu_threads
from hushpore.viewer.forms.layout import ArrowButton, fill
from hushpore.viewer.forms.rich_label import plain_label
from hushpore.viewer.running.worker import (
    JobWorker,
    calling,
    gc_paused,
    load_torch_libraries,
    start_once_drawn,
)

if TYPE_CHECKING:
    from hushpore.jobs import JobDescription

#: Entry that runs the job in this process.
HERE = "This computer"


@dataclass(frozen=True)
class Devices:
    """The devices of this machine."""

    auto: Backend  # the choice of "auto"
    cuda: tuple[Backend, ...] = ()  # all usable CUDA devices
    apple: Backend | None = None  # the GPU of a Mac

    @property
    def gpus(self) -> tuple[Backend, ...]:
        """All GPUs."""
        return self.cuda if self.apple is None else (*self.cuda, self.apple)


@cache
def find_devices() -> Devices:
    """Find the devices, once per process; takes seconds, because PyTorch is imported."""
    found: list[Backend] = []
    load_torch_libraries()
    with gc_paused(), contextlib.suppress(DeviceError):
        # try numbers until one is refused; the preferences do not restrict the list
        while (backend := choose_backend(f"cuda:{len(found)}")).is_cuda:
            found.append(backend)
    apple: Backend | None = None
    with contextlib.suppress(DeviceError):
        apple = choose_backend("mps")
    has_apple = apple is not None and apple.is_apple
    return Devices(choose_backend("auto"), tuple(found), apple if has_apple else None)


def refresh_devices() -> None:
    """Let every device choice look for devices again, after a change of the preferences."""
    find_devices.cache_clear()
    for widget in QApplication.allWidgets():
        if isinstance(widget, DeviceChoice):
            widget.look()


class _ExplainedBox(QWidget):
    """A combo box with a title, and a `line` below that explains the choice."""

    changed = Signal()

    def __init__(self, title: str, tip: str) -> None:
        super().__init__()
        self._box = QComboBox(accessibleName=title, toolTip=tip)
        self._box.currentTextChanged.connect(self._explain)
        self._box.currentTextChanged.connect(self.changed)
        self.line = plain_label()
        self._row = fill(QHBoxLayout(), QLabel(title), self._box, wide=self._box)
        fill(QVBoxLayout(self), self._row, self.line, spacing=2)

    def _explain(self) -> None:
        raise NotImplementedError


class DeviceChoice(_ExplainedBox):
    """A box with Auto, CPU and the GPUs; looks for GPUs in a thread.

    `kind`: the job, which may use a GPU only on request. `details`: the unfolded details of the
    device, one per line.
    """

    found = Signal()

    def __init__(self, kind: JobDescription | None = None) -> None:
        super().__init__("Device", "CPU or GPU. Auto: a GPU if one is available and useful.")
        self._kind = kind
        self._devices: Devices | None = None
        self._more = ArrowButton(
            accessibleName="Device details",
            toolTip="Show what the device offers and what is missing.",
        )
        self.details = plain_label()
        self.details.hide()
        self._more.toggled.connect(self.details.setVisible)
        self._more.toggled.connect(self._ask_details)
        self._row.addWidget(self._more)
        self.layout().addWidget(self.details)
        self._box.addItem("Auto", "auto")
        self._box.addItem("CPU", "cpu")
        self._listed = self._box.count()
        self.line.setText("Looking for a GPU …")
        self.look()

    def look(self) -> None:
        """Look for devices, in a thread."""
        self._worker = JobWorker(partial(calling, find_devices), "hushpore looks for devices")
        self._worker.returned.connect(self._show)
        self._worker.failed.connect(self._show_failure)
        start_once_drawn(self, self._worker)

    def value(self) -> str:
        """Return the device as an argument of jobs: ``"auto"``, ``"cpu"``, ``"cuda:0"``."""
        return str(self._box.currentData())

    def resolved(self, kind: JobDescription | None = None) -> str:
        """Return the device that the job will run on; the CPU until GPUs are found.

        `kind`: the job; by default that of the widget.
        """
        if self.value() != "auto":
            return self.value()
        return "cpu" if self._devices is None else self._auto(self._devices, kind).device

    def set(self, device: str) -> None:
        """Choose a device.

        Raises InputError if the device does not exist; until GPUs are found any is accepted.
        """
        if self._box.findData(device) < 0:
            if self._devices is not None:
                known = ", ".join(repr(self._box.itemData(n)) for n in range(self._box.count()))
                raise InputError(f"device must be one of {known}; got {device!r}.")
            self._box.addItem(device.upper(), device)
        self._box.setCurrentIndex(self._box.findData(device))

    def _auto(self, devices: Devices, kind: JobDescription | None = None) -> Backend:
        kind = kind or self._kind
        return devices.auto if kind is None or kind.on_gpu else kind.backend("auto")

    def _ask_details(self) -> None:
        """Get the details in a thread when they are unfolded, including the free memory."""
        if not self._more.isChecked():
            return
        self.details.setText("Checking …")
        device = self.resolved()
        self._asking = JobWorker(partial(calling, _details_of, device), "hushpore asks the device")
        self._asking.returned.connect(partial(self._show_details, device))
        self._asking.start()

    def _show_details(self, device: str, lines: list[str]) -> None:
        # unless another device was chosen meanwhile
        if device == self.resolved():
            self.details.setText("\n".join(f"• {line}" for line in lines))

    def _show(self, devices: Devices) -> None:
        chosen, self._devices = self.value(), devices
        while self._box.count() > self._listed:
            self._box.removeItem(self._listed)
        is_cpu_only = self._kind is not None and self._kind.cpu_only
        for backend in () if is_cpu_only else devices.cuda:
            self._box.addItem(f"{backend.device.upper()} {backend.name}", backend.device)
        if devices.apple is not None and (self._kind is None or self._kind.on_apple):
            self._box.addItem(devices.apple.name, devices.apple.device)
        self._box.setCurrentIndex(max(0, self._box.findData(chosen)))
        self._explain()
        self.found.emit()

    def _show_failure(self, problem: object) -> None:
        self._show(Devices(Backend(reason="PyTorch could not be loaded to look for a GPU")))

    def _explain(self) -> None:
        if self._devices is None:
            return
        device, auto = self.value(), self._auto(self._devices)
        names = {"auto": f"{auto.name} ({auto.reason})", "cpu": Backend().name}
        # the box shows the name of a chosen GPU
        self.line.setText(names.get(device, ""))
        self.line.setVisible(device in names)
        self._ask_details()


def _details_of(device: str) -> list[str]:
    """Return the details of a device; may take seconds, because CuPy is imported."""
    try:
        return choose_backend(device).details()
    except DeviceError as error:
        return [str(error)]


class RunOn(_ExplainedBox):
    """A box with this process, local worker processes, or the address of a scheduler."""

    def __init__(self) -> None:
        super().__init__(
            "Run on",
            "This computer, worker processes on it, or a dask.distributed cluster: type the "
            "address of its scheduler (tcp://head-node:8786) or the path of its scheduler file.",
        )
        self._box.setEditable(True)
        self._box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self._box.addItems([HERE, f"local:{cpu_threads()}"])

    def value(self) -> str:
        """Return the cluster as an argument of `hushpore.cluster`; empty for this process."""
        text = str(self._box.currentText()).strip()
        return "" if text == HERE else text

    def set(self, where: str) -> None:
        """Choose a cluster; empty for this process."""
        self._box.setCurrentText(where or HERE)

    def _explain(self) -> None:
        where = self.value()
        text = "The result is saved block by block as OME-Zarr in the folder of the scan"
        otherwise = "or, if that is not writable, in your home folder"
        if where.startswith("local"):
            text = f"Worker processes on this computer. {text} {otherwise}."
        else:
            text = f"{text}, which all workers must be able to access."
        self.line.setText(text)
        self.line.setVisible(bool(where))
