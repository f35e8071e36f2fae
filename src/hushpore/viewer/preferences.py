"""The widget of preferences: device, memory, temporary files and remembered settings."""

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QCheckBox, QPushButton, QVBoxLayout, QWidget

from hushpore.base.errors import HushporeError
from hushpore.base.preferences import (
    Preferences,
    in_force,
    load_preferences,
    preferences_file,
    save_preferences,
)
from hushpore.device.memory import in_words, remove_left_over, scratch_folder, temporary_folders
from hushpore.runs.presets import LAST_USED
from hushpore.viewer.docks import SharesSide
from hushpore.viewer.forms.choices import find_devices, refresh_devices
from hushpore.viewer.forms.fields import ChoiceField
from hushpore.viewer.forms.form import SettingsForm
from hushpore.viewer.forms.layout import RichLabel, ScrolledColumn, fill, plain_label, rule, sign
from hushpore.viewer.layers.reader import prefer_hushpore, prefers_hushpore
from hushpore.viewer.running.worker import JobWorker, calling

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.settings import Option
    from hushpore.device.backend import Backend
    from hushpore.device.memory import TemporaryFolder
    from hushpore.viewer.running.problem import Problem

PURPOSE = "Defaults for all widgets and the command line."


class PreferencesWidget(QWidget):
    """Shows and changes the defaults of jobs, for the window and the command line."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        SharesSide(self, "Preferences")
        self._viewer = napari_viewer
        self._build()
        self.form.value = load_preferences()
        self.form.changed.connect(self._show_ready)
        self._show_ready()
        self._show_reasons()
        self.look()

    def save(self) -> None:
        """Save the form, and update all widgets."""
        try:
            save_preferences(self.form.value)  # type: ignore[arg-type]
        except HushporeError as error:
            self._message.say(f"{sign(False)} {html.escape(str(error))}")
            return
        self._message.say(f"Saved in {html.escape(str(preferences_file()))}.")
        self._show_ready()
        self._show_reasons()
        refresh_devices()
        self.look()

    def look(self) -> None:
        """Find devices and temporary files in threads, because it takes seconds."""
        self._device.setText("Looking for a GPU …")
        self._finder = JobWorker(partial(calling, find_devices), "hushpore looks for devices")
        self._finder.returned.connect(self._show_devices)
        self._finder.start()
        self._start(temporary_folders)

    def remove(self) -> None:
        """Delete temporary files left behind by crashed sessions."""
        self._start(_remove)

    def _start(self, work: Callable[[], list[TemporaryFolder]]) -> None:
        self._clean.setEnabled(False)
        self._clean.setToolTip("Looking for temporary files …")
        self._worker = JobWorker(partial(calling, work), "hushpore looks for temporary files")
        self._worker.returned.connect(self._show_folders)
        self._worker.failed.connect(self._show_problem)
        self._worker.start()

    def _show_problem(self, problem: Problem) -> None:
        self._message.say(html.escape(problem.message))

    def _show_folders(self, folders: list[TemporaryFolder]) -> None:
        left = [folder for folder in folders if folder.is_left_over]
        text = f"Temporary files in {scratch_folder()}: {in_words(folders)}."
        if left:
            text += f" Left behind by crashed sessions: {in_words(left)}."
        self._files.setText(text)
        self._files.setToolTip("\n".join(str(folder.path) for folder in folders))
        self._clean.setEnabled(bool(left))
        tip = "\n".join(["Delete:", *(str(folder.path) for folder in left)])
        nothing = "There are no leftover files. Files in use are deleted by their program."
        self._clean.setToolTip(tip if left else nothing)

    def _show_devices(self, devices: tuple[Backend, ...]) -> None:
        best, *gpus = devices
        self.form.device.offer([gpu.device for gpu in gpus])
        self._device.setText(f"Denoising runs on: {best.description}")

    def _show_reasons(self) -> None:
        lines = []
        try:
            preferences = in_force()
        except HushporeError as error:
            preferences, lines = {}, [str(error)]
        for name, entry in preferences.items():
            if entry["variable"] in entry["reason"]:
                label = self.form[name].label
                lines.append(f"{label} is {entry['value']}, {entry['reason']}, not as set here.")
        self._reasons.say("<br>".join(f"{sign(False)} {html.escape(line)}" for line in lines))

    def _show_ready(self) -> None:
        try:
            is_new, why = self.form.value != load_preferences(), ""
        except HushporeError as error:
            is_new, why = False, str(error)
        self._save.setEnabled(is_new)
        tip = "Save for all widgets and commands." if is_new else "No changes to save."
        self._save.setToolTip(why or tip)

    def _forget(self) -> None:
        LAST_USED.forget()
        self._message.say("Newly opened widgets now show the defaults.")

    def _build(self) -> None:
        self.form = SettingsForm(Preferences, fields={"device": _DeviceField})
        folder = self.form.temporary_folder.edit.line_edit.native
        folder.setPlaceholderText(str(scratch_folder()))
        tip = "Opens dropped folders and DICOM files with hushpore, without napari's question."
        self._opens = QCheckBox(
            "Always open folders with hushpore", toolTip=tip, checked=prefers_hushpore()
        )
        self._opens.toggled.connect(prefer_hushpore)
        self._device = plain_label()
        self._save = QPushButton("&Save", clicked=self.save)
        self._clean = QPushButton("&Delete leftover files", clicked=self.remove)
        tip = (
            f"Widgets open with the settings of the last run, stored in {LAST_USED.file} (numbers "
            "and choices, no names)."
        )
        self._forget_button = QPushButton(
            "&Forget last settings", toolTip=tip, clicked=self._forget
        )
        self._reasons, self._message = RichLabel(self._viewer), RichLabel(self._viewer)
        self._files = plain_label("Looking for temporary files …")
        preferred = self.form.native, self._device, self._reasons, self._save, self._message
        kept = rule(), self._opens, rule(), self._files, self._clean, rule(), self._forget_button
        fill(QVBoxLayout(self), ScrolledColumn(plain_label(PURPOSE), *preferred, *kept))
        self.setMinimumWidth(342)


class _DeviceField(ChoiceField):
    """A combo box of devices, which also accepts unavailable ones."""

    def __init__(self, option: Option, **given: Any) -> None:
        self._listed = ["auto", "cpu", "cuda"]
        super().__init__(option, **{**given, "choices": lambda _: self._listed})

    def offer(self, devices: list[str]) -> None:
        """Add devices to the list."""
        self._listed += [device for device in devices if device not in self._listed]
        self.reset_choices()

    def set_value(self, value: str) -> None:
        """Choose a device, available or not."""
        self.offer([self.option.check(value)])
        super().set_value(value)


def _remove() -> list[TemporaryFolder]:
    remove_left_over()
    return temporary_folders()
