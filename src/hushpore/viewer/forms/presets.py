"""Presets: a box to choose one, and the row of a form that also saves them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_warning
from qtpy.QtCore import QSignalBlocker
from qtpy.QtWidgets import (
    QApplication,
    QComboBox,
    QHBoxLayout,
    QInputDialog,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import HushporeError, InputError
from hushpore.jobs import JOBS
from hushpore.runs.presets import (
    CUSTOM,
    DEFAULT,
    LAST,
    delete_preset,
    load_preset,
    names_to_choose,
    preset_file,
    save_preset,
)
from hushpore.viewer.forms.docking import shown_by
from hushpore.viewer.forms.fields import Field, keep_narrow
from hushpore.viewer.forms.layout import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.settings import Option, Settings
    from hushpore.viewer.forms.form import SettingsForm

#: Entries that are not presets of the user.
_FIXED = (DEFAULT, LAST, CUSTOM)


def as_python(job: str, settings: Settings) -> str:
    """Return a call of the library with the settings that differ from their defaults.

    >>> print(as_python("pores", JOBS["pores"].settings(threshold="li")))
    import hushpore
    <BLANKLINE>
    scan = hushpore.read("scan.tif")
    result = hushpore.segment_pores(scan, threshold='li')
    """
    default = type(settings)().to_dict()
    changed = {name: one for name, one in settings.to_dict().items() if one != default[name]}
    words = "".join(f", {name}={value!r}" for name, value in changed.items())
    function = JOBS[job].function
    call = f"{function}(scan{words})" if function else f"run({job!r}, scan, {changed})"
    return f'import hushpore\n\nscan = hushpore.read("scan.tif")\nresult = hushpore.{call}'


class _FreshBox(QComboBox):
    """A combo box that refreshes its list before it opens."""

    def __init__(self, refresh: Callable[[], None], tip: str) -> None:
        super().__init__(toolTip=tip)
        self._refresh = refresh

    def showPopup(self) -> None:  # noqa: N802
        self._refresh()
        super().showPopup()


class PresetField(Field):
    """A box with the presets of a job, for a setting like ``pores_preset``.

    The list is refreshed when the box opens.
    """

    def __init__(self, option: Option, **given: Any) -> None:
        self._job = option.name.removesuffix("_preset")
        super().__init__(option, **given, **shown_by(partial(_FreshBox, self._list, "")))

    def _post_init(self) -> None:
        super()._post_init()
        keep_narrow(self.native, self.option.label)
        self.native.currentTextChanged.connect(self._emit_changed)

    def get_value(self) -> str:
        """Return the name of the chosen preset."""
        return str(self.native.currentText())

    def set_value(self, value: str) -> None:
        """Choose a preset.

        Raises InputError if there is no preset of this name.
        """
        self._list()
        if self.native.findText(value) < 0:
            known = ", ".join(repr(one) for one in names_to_choose(self._job))
            raise InputError(f"There is no preset {value!r} for this job. Available: {known}.")
        self.native.setCurrentText(value)

    def _list(self) -> None:
        chosen = self.native.currentText()
        with QSignalBlocker(self.native):
            self.native.clear()
            self.native.addItems(names_to_choose(self._job))
            self.native.setCurrentText(chosen)


class PresetRow(QWidget):
    """The row of a form that loads, saves and deletes presets.

    The command line uses the same names: ``hushpore run scan --preset NAME``.

    `job`: a key of `hushpore.jobs.JOBS`.
    """

    def __init__(self, job: str, form: SettingsForm) -> None:
        super().__init__()
        self._job, self._form = job, form
        self._known: dict[str, Settings] = {}
        tip = "Saved settings"
        self._box = _FreshBox(self.refresh, tip)
        self._box.setAccessibleName("Preset")
        self._box.activated.connect(self._choose)
        tip = "Save these settings as a preset."
        self._save = QPushButton("Save …", toolTip=tip, clicked=self._ask_and_save)
        self._delete = QPushButton("Delete", clicked=self._delete_chosen)
        tip = "Copy a call with these settings, for a script or notebook."
        self._python = QPushButton("Copy as Python", toolTip=tip, clicked=self._copy_as_python)
        parts = QLabel("Preset"), self._box, self._save, self._delete
        lines = fill(QHBoxLayout(), *parts, wide=self._box), fill(QHBoxLayout(), None, self._python)
        fill(QVBoxLayout(self), *lines, spacing=4)
        form.changed.connect(self._show_which)
        self.refresh()

    def refresh(self) -> None:
        """Read the presets again, because another window or a command may have saved some."""
        self._known = {}
        for name in names_to_choose(self._job):
            try:
                self._known[name] = load_preset(name, self._job)
            except HushporeError:
                # deleted or damaged since it was listed
                continue
        self._box.clear()
        self._box.addItems([*self._known, CUSTOM])
        self._show_which()

    def save(self, name: str) -> None:
        """Save the settings of the form as a preset; a preset of the same name is replaced."""
        try:
            save_preset(name, self._job, self._form.value)
        except HushporeError as error:
            show_warning(str(error))
        self.refresh()

    def _choose(self, index: int) -> None:
        name = self._box.itemText(index)
        if name in self._known:
            self._form.value = self._known[name]
        self._show_which()

    def _show_which(self) -> None:
        """Show the name of the preset that matches the settings of the form."""
        try:
            now: Any = self._form.value
        except HushporeError:
            now = None
        chosen = self._box.currentText()
        same = [name for name, settings in self._known.items() if settings == now]
        # two presets may have the same settings: keep the chosen one
        name = chosen if chosen in same else (same or [CUSTOM])[0]
        self._box.setCurrentText(name)
        can_delete = name not in _FIXED and preset_file(name).is_file()
        self._delete.setEnabled(can_delete)
        why_not = "Only presets that you saved can be deleted."
        self._delete.setToolTip(f"Delete preset {name!r}." if can_delete else why_not)

    def _ask_and_save(self) -> None:
        chosen = self._box.currentText()
        before = "" if chosen in _FIXED else chosen
        name, accepted = QInputDialog.getText(self, "Save preset", "Name", text=before)
        if accepted and name.strip():
            self.save(name.strip())

    def _copy_as_python(self) -> None:
        try:
            QApplication.clipboard().setText(as_python(self._job, self._form.value))
        except HushporeError as error:
            show_warning(str(error))

    def _delete_chosen(self) -> None:
        name = self._box.currentText()
        delete_preset(name)
        self.refresh()
