"""Choosing the input layer of a job, with its facts and voxel size, and the device."""

from __future__ import annotations

import contextlib
import html
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from magicgui.widgets.bases import BaseValueWidget
from napari.layers import Labels, Layer
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QApplication,
    QCheckBox,
    QComboBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import DeviceError, HushporeError, InputError
from hushpore.base.formatting import readable_count, readable_unit
from hushpore.base.volume import Volume, require_grey
from hushpore.device.backend import Backend, choose_backend, cpu_threads
from hushpore.viewer.forms.fields import LISTED, NameBox, keep_narrow
from hushpore.viewer.forms.layout import (
    Fold,
    RichLabel,
    fill,
    link,
    plain_label,
    shown_by,
    unbroken,
)
from hushpore.viewer.layers.conversion import is_length, known_of, volume_of
from hushpore.viewer.layers.start import start_links
from hushpore.viewer.running.worker import LatestOnlyWorker, calling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.jobs import JobDescription


#: Text shown if there is no layer.
_BEGIN = "Drop a CT stack on the window, or open a sample: File > Open Sample > hushpore."

#: The same above links that do it.
_OR_START = "Drop a CT stack on the window, or start here:"

#: Link that opens the fields for the voxel size.
VOXEL_SIZE = "voxel size"

#: Link that unfolds and folds the notes on a file.
_NOTES = "notes"

#: Attributes of a layer that affect the line of facts.
_SHOWN = ("data", "scale", "units", "axis_labels", "translate")


class LayerChoice(BaseValueWidget):
    """A box with the valid input layers of a job, kept up to date with the viewer.

    Its value is the layer, or None if there is no valid one. ``changed`` is also emitted when the
    layer itself changes.

    It starts with the active layer and switches to each new layer that the job prefers (a file just
    opened, the result of the previous step) until the user chooses a layer.

    `accepts`: whether a layer can be chosen. `prefers`: whether a layer is chosen automatically.
    """

    def __init__(
        self, viewer: Any, accepts: Callable[[Any], bool], prefers: Callable[[Any], bool]
    ) -> None:
        self._all = viewer.layers
        self._accepts, self._prefers = accepts, prefers
        self._listed: list[Any] = []
        self._layer: Any = None
        self._chosen = False
        super().__init__(name="layer", annotation=Layer, **shown_by(NameBox))
        # the events of the list include those of its layers
        self._all.events.connect(self._follow)
        self._refresh()

    def get_value(self) -> Any:
        """Return the chosen layer, or None if there is no valid one."""
        return self._layer

    def set_value(self, layer: Any) -> None:
        """Choose a layer, as the user does.

        Raises InputError if the layer is not a valid input.
        """
        if layer not in self._listed:
            names = ", ".join(repr(one.name) for one in self._listed) or "none"
            raise InputError(f"layer must be one of these layers: {names}; got {layer!r}.")
        self._chosen = True
        self._take(layer)

    def _post_init(self) -> None:
        box = self.native
        box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        keep_narrow(box, "Input layer")
        box.setMinimumContentsLength(8)
        box.activated.connect(self._choose)

    def _suits(self, layer: Any) -> bool:
        return not is_preview(layer) and self._accepts(layer)

    def _follow(self, event: Any) -> None:
        if event.type in LISTED:
            self._refresh()
        elif event.type in _SHOWN and (
            # the unit of any layer may add or remove the scale bar
            event.type == "units" or self._all[event.index] == self._layer
        ):
            self.changed.emit(self._layer)

    def _choose(self, position: int) -> None:
        self.set_value(self._listed[position])

    def _refresh(self) -> None:
        before = self._listed
        # newest first, as in napari's own list
        self._listed = [layer for layer in reversed(self._all) if self._suits(layer)]
        self._take(self._best([layer for layer in self._listed if layer not in before]))

    def _best(self, new: list[Any]) -> Any:
        """Return the layer to select after the list has changed; `new`: layers added to it."""
        if self._layer in self._listed:
            better = [layer for layer in new if self._prefers(layer) and not self._chosen]
            return (better or [self._layer])[0]
        self._chosen = False
        preferred = [layer for layer in self._listed if self._prefers(layer)]
        active = self._all.selection.active
        return active if active in preferred else (preferred or self._listed or [None])[0]

    def _take(self, layer: Any) -> None:
        before, self._layer = self._layer, layer
        self.native.clear()
        self.native.addItems(
            [one_layer.name for one_layer in self._listed] or ["no suitable layer"]
        )
        self.native.setEnabled(bool(self._listed))
        self.native.setToolTip("No layer is suitable for this job.")
        if layer is not None:
            self.native.setCurrentIndex(self._listed.index(layer))
            self.native.setToolTip(f"Input layer: {layer.name}")
        if layer is None or layer != before:
            self.changed.emit(layer)


class LayerFacts(RichLabel):
    """A line about a layer: shape, voxel size, data type, size, and notes on its file.

    Its voxel size is a link, `VOXEL_SIZE`.

    `describe`: returns the line about a volume. `links`: link texts in the line, with their
    targets. `volume`: volume of the layer, or None if there is no valid layer.
    """

    #: Emitted when the line is out of date.
    outdated = Signal()

    def __init__(
        self,
        viewer: Any,
        describe: Callable[[Volume], str],
        links: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(viewer)
        self._describe, self._links = describe, links
        self._plain = self._notes_of = ""
        self.volume: Volume | None = None
        self.linkActivated.connect(self._unfold)

    def text(self) -> str:
        """Return the line as plain text."""
        return self._plain

    def show_layer(self, layer: Any) -> str:
        """Show a layer, and return the reason why it cannot be used; empty if it can."""
        self.volume = None
        suits = layer is not None
        if not suits:
            # explain why a colour image or labels cannot be used
            others = list(self._viewer.layers)
            coloured = [other for other in others if getattr(other, "rgb", False)]
            labels = [other for other in others if isinstance(other, Labels)]
            layer = next(iter(coloured + labels), None)
        text = reason = _BEGIN
        if layer is not None:
            try:
                volume = volume_of(layer, self.labels_of_axes(layer.ndim))
                if not suits:
                    require_grey(volume)
                facts = unbroken(self._describe(volume))
                text, reason = "\n".join([facts, *volume.notes]), ""
                if volume.unit != "pixel":
                    text += self._missing_scale_bar()
                self.volume = volume
            except HushporeError as error:
                text = reason = str(error)
        self._plain = text
        if text == _BEGIN:
            self.say(f"{_OR_START}<br>{start_links()}")
        else:
            self._show_plain()
        return reason

    def _show_plain(self) -> None:
        """Show the line; several notes are folded, so that the form has room."""
        facts, *notes = self._plain.split("\n")
        are_folded = len(notes) > 1 and self._plain != self._notes_of
        lines = [facts] if are_folded else [facts, *notes]
        text = self._with_link(html.escape("\n".join(lines), quote=False))
        if len(notes) > 1:
            words = readable_count(len(notes), "note") if are_folded else "Hide notes"
            text += f"<br>{link(_NOTES, words)}"
        self.say(text)

    def _unfold(self, target: str) -> None:
        if target == _NOTES:
            self._notes_of = "" if self._notes_of else self._plain
            self._show_plain()

    def _missing_scale_bar(self) -> str:
        """Return the reason why a layer with a unit has no scale bar; empty if it has one."""
        unknown = [one.name for one in self._viewer.layers if not is_length(one.units[-1])]
        if not unknown:
            return ""
        more = f" and of {readable_count(len(unknown) - 1, 'other layer')}" if unknown[1:] else ""
        return f"\nNo scale bar: the voxel size of {unknown[0]}{more} is unknown."

    def _with_link(self, text: str) -> str:
        if self.volume is not None:
            size = unbroken(self.volume.size_in_words)
            words = size if self.volume.unit != "pixel" else f"{size}:\u00a0set\u00a0it"
            text = text.replace(size, link(VOXEL_SIZE, words), 1)
        for words, target in self._links.items():
            text = text.replace(words, link(target, words), 1)
        return text.replace("\n", "<br>")

    def labels_of_axes(self, ndim: int) -> tuple[str, ...]:
        """Return the viewer's labels of the last `ndim` axes."""
        return tuple(self._viewer.dims.axis_labels[-ndim:])


def is_preview(layer: Any) -> bool:
    """Whether a layer is a preview."""
    return bool(known_of(layer).get("preview"))


#: Units offered, the most common first.
UNITS = ("um", "mm", "nm", "cm", "m")


class VoxelSizeField(QWidget):
    """Fields for the voxel size in y and x, and in z if it differs; hidden at first."""

    #: Emitted with the entered size, as an argument of `hushpore.runs.scan_recipe.with_voxel_size`.
    given = Signal(str)

    def __init__(self) -> None:
        super().__init__(visible=False)
        self._has_z = True
        self._title = QLabel("Voxel size")
        self._across = QLineEdit(
            placeholderText="15.4", accessibleName="Voxel size", returnPressed=self._give,
            toolTip="Voxel size within a slice (x and y).",
        )  # fmt: skip
        self._unit = QComboBox(accessibleName="Unit of the voxel size")
        self._unit.addItems([readable_unit(unit) for unit in UNITS])
        self._same = QCheckBox(
            "Isotropic", checked=True, toggled=self._show_z,
            toolTip="Use the same size along z.",
        )  # fmt: skip
        self._along_title = QLabel("Along z")
        self._along = QLineEdit(
            placeholderText="5", accessibleName="Voxel size in z", returnPressed=self._give,
            toolTip="Distance between slices.",
        )  # fmt: skip
        self._problem = plain_label()
        self._set = QPushButton(
            "Set", clicked=self._give,
            toolTip="Apply this voxel size to the scan and to all layers made from it.",
        )  # fmt: skip
        cancel = QPushButton("Cancel", clicked=self.hide, toolTip="Keep the current voxel size.")
        self._across.setMinimumWidth(60)
        first = fill(QHBoxLayout(), self._title, self._across, self._unit, wide=self._across)
        second = fill(QHBoxLayout(), self._along_title, self._along, wide=self._along)
        third = fill(QHBoxLayout(), self._same, None, self._set, cancel)
        fill(QVBoxLayout(self), first, second, third, self._problem, spacing=4, margin=0)

    def ask(self, volume: Volume) -> None:
        """Open the fields with the voxel size of a volume, or empty if it has no unit."""
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
        """Show the reason why the input is invalid."""
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
        # accept a decimal comma
        numbers = [field.text().strip().replace(",", ".") for field in fields]
        try:
            text = voxel_size_text(numbers, UNITS[self._unit.currentIndex()])
        except InputError as error:
            self.refuse(error)
            return
        self.given.emit(text)


def voxel_size_text(numbers: list[str], unit: str) -> str:
    """Return a voxel size as text for settings, from one number for each axis.

    Raises InputError if a number is not above 0.
    """
    for number in numbers:
        try:
            is_size = 0 < float(number) < float("inf")
        except ValueError:
            is_size = False
        if not is_size:
            raise InputError(
                f"The voxel size must be a number above 0; got {number!r}."
                if number
                else "Enter the voxel size, a number above 0."
            )
    return f"{numbers[0] if len(set(numbers)) == 1 else ','.join(numbers)}{unit}"


#: Entry that runs the job in this process.
HERE = "This computer"


@cache
def find_devices() -> tuple[Backend, ...]:
    """Return the choice of "auto", and all GPUs, once per process.

    It takes seconds, because PyTorch is imported.
    """
    gpus: list[Backend] = []
    with contextlib.suppress(DeviceError):
        # try numbers until one is refused; the preferences do not restrict the list
        while (backend := choose_backend(f"cuda:{len(gpus)}")).is_cuda:
            gpus.append(backend)
    with contextlib.suppress(DeviceError):
        apple = choose_backend("mps")
        gpus += [apple] if apple.is_apple else []
    return choose_backend("auto"), *gpus


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
        row = fill(QHBoxLayout(), QLabel(title), self._box, wide=self._box)
        fill(QVBoxLayout(self), row, self.line, spacing=2)

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
        self._best: Backend | None = None  # the choice of "auto", once it is known
        self._more, self.details = Fold("Device details"), plain_label()
        self._more.button.setToolTip("Show what the device offers and what is missing.")
        self._more.add(self.details)
        self._more.button.toggled.connect(self._ask_details)
        self.layout().addWidget(self._more)
        self._box.addItem("Auto", "auto")
        self._box.addItem("CPU", "cpu")
        self._listed = self._box.count()
        self.line.setText("Looking for a GPU …")
        self._worker = LatestOnlyWorker("hushpore looks for devices")
        self._worker.returned.connect(self._show)
        self._worker.failed.connect(self._show_failure)
        self._asking = LatestOnlyWorker("hushpore asks the device")
        self._asking.returned.connect(self._show_details)
        self.look()

    def look(self) -> None:
        """Look for devices, in a thread."""
        self._worker.submit(partial(calling, find_devices))

    def value(self) -> str:
        """Return the device as an argument of jobs: ``"auto"``, ``"cpu"``, ``"cuda:0"``."""
        return str(self._box.currentData())

    def resolved(self, kind: JobDescription | None = None) -> str:
        """Return the device that the job will run on; the CPU until GPUs are found.

        `kind`: the job; by default that of the widget.
        """
        if self.value() != "auto":
            return self.value()
        return "cpu" if self._best is None else self._auto(self._best, kind).device

    def set(self, device: str) -> None:
        """Choose a device.

        Raises InputError if the device does not exist; until GPUs are found any is accepted.
        """
        if self._box.findData(device) < 0:
            if self._best is not None:
                known = ", ".join(repr(self._box.itemData(n)) for n in range(self._box.count()))
                raise InputError(f"device must be one of {known}; got {device!r}.")
            self._box.addItem(device.upper(), device)
        self._box.setCurrentIndex(self._box.findData(device))

    def _auto(self, best: Backend, kind: JobDescription | None = None) -> Backend:
        kind = kind or self._kind
        return best if kind is None or kind.on_gpu else kind.backend("auto")

    def _ask_details(self) -> None:
        """Get the details in a thread when they are unfolded, including the free memory."""
        if not self._more.button.isChecked():
            return
        self.details.setText("Checking …")
        device = self.resolved()
        self._asking.submit(partial(calling, _details_of, device), device)

    def _show_details(self, device: str, lines: list[str]) -> None:
        # unless another device was chosen meanwhile
        if device == self.resolved():
            self.details.setText("\n".join(f"• {line}" for line in lines))

    def _show(self, tag: object, devices: tuple[Backend, ...]) -> None:
        chosen, kind = self.value(), self._kind
        self._best, *gpus = devices
        while self._box.count() > self._listed:
            self._box.removeItem(self._listed)
        for gpu in gpus:
            if kind is None or (kind.on_apple if gpu.is_apple else not kind.cpu_only):
                name = gpu.name if gpu.is_apple else f"{gpu.device.upper()} {gpu.name}"
                self._box.addItem(name, gpu.device)
        self._box.setCurrentIndex(max(0, self._box.findData(chosen)))
        self._explain()
        self.found.emit()

    def _show_failure(self, tag: object, problem: object) -> None:
        reason = "PyTorch could not be loaded to look for a GPU"
        self._show(tag, (Backend(reason=reason),))

    def _explain(self) -> None:
        if self._best is None:
            return
        device, auto = self.value(), self._auto(self._best)
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
        text = "The result is saved in the folder of the scan"
        otherwise = "or, if that is not writable, in your home folder"
        if where.startswith("local"):
            text = f"Worker processes on this computer. {text} {otherwise}."
        else:
            text = f"{text}, which all workers must be able to access."
        self.line.setText(text)
        self.line.setVisible(bool(where))
