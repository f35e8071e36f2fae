"""The form of a job, generated from the options of its Settings class, and its presets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from magicgui import register_type
from magicgui.backends._qtpy.widgets import Container as QtContainer
from magicgui.types import Undefined
from magicgui.widgets import Container
from napari.utils.notifications import show_warning
from qtpy.QtCore import QSignalBlocker
from qtpy.QtWidgets import (
    QApplication,
    QComboBox,
    QFormLayout,
    QHBoxLayout,
    QInputDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QToolButton,
    QWidget,
)

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.settings import Settings
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
from hushpore.viewer.forms.fields import (
    CheckField,
    ChoiceField,
    Field,
    FileField,
    LayerField,
    NumberField,
    TextField,
    WordOrNumberField,
    choices_of,
    default_in_words,
    keep_narrow,
)
from hushpore.viewer.forms.layout import PLAIN, Fold, fill, shown_by, unbroken

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from hushpore.base.settings import Option


class _Placed(QtContainer):
    """Qt backend of a container whose widgets have been laid out already."""

    def _mgui_insert_widget(self, position: int, widget: Any) -> None:
        # a widget that a script adds is not laid out yet
        if widget.native.parent() is None:
            self._layout.addWidget(widget.native)


class PlacedContainer(Container):
    """A magicgui container with a layout made by the caller.

    The widgets are items and attributes as in any container; the caller lays them out in the
    column of its ``native`` widget.

    ``**given``: as for `magicgui.widgets.Container`.
    """

    def __init__(self, **given: Any) -> None:
        # the initializer of Container would stack the widgets
        super(Container, self).__init__(**{"labels": False, **given, "widget_type": _Placed})
        self.margins = (0, 0, 0, 0)

    def __repr__(self) -> str:
        """Return the parameters and values as a function call, as magicgui shows a function."""
        return f"<{type(self).__name__} {self.__signature__}>"

    def update(self, mapping: Any = (), **values: Any) -> None:
        """Set the values of items by their names.

        Raises InputError if there is no item of a name; nothing is set then.
        """
        values = dict(mapping, **values)
        names = [item.name for item in self]
        for name in values:
            if name not in names:
                raise InputError(
                    f"There is no setting {name!r} here. Available: {', '.join(names)}."
                )
        super().update(values)


class _Hint(QLabel):
    """A wrapped hint below a field.

    QFormLayout may give it the height for the preferred width of the form, which cuts the last line
    where the form is narrower; so it asks for the height that it needs.
    """

    def __init__(self) -> None:
        super().__init__(**PLAIN)
        self.setContentsMargins(8, 0, 0, 2)

    def setText(self, text: str) -> None:  # noqa: N802
        """Show a text."""
        self.setMinimumHeight(0)
        super().setText(text)

    def resizeEvent(self, event: Any) -> None:  # noqa: N802
        """Ask for the height of all lines."""
        super().resizeEvent(event)
        # an empty text needs -1
        self.setMinimumHeight(max(0, self.heightForWidth(self.width())))


class SettingsForm(PlacedContainer):
    """The settings of a job: the important ones first, the others by group under 'More'.

    A magicgui container with one field per setting, under its name: ``form.threshold.value``.
    magicgui also creates it for a type hint that is a `Settings` class, so that functions decorated
    with ``@magicgui`` can take settings.

    `annotation`: the Settings class. `value`: initial settings; by default the defaults. `viewer`:
    the viewer with the layers for settings that name one; by default the current viewer. `fields`:
    field classes that replace those of `field_class`, by name. `shown`: names of the settings in
    the form, if not all; the others have their defaults. ``**given``: as for
    `magicgui.widgets.Container`.
    """

    def __init__(
        self,
        annotation: type[Settings],
        value: Any = Undefined,
        *,
        viewer: Any = None,
        fields: Mapping[str, type[Field]] | None = None,
        shown: Collection[str] = (),
        **given: Any,
    ) -> None:
        given.pop("nullable", None)
        super().__init__(annotation=annotation, **given)
        self._class, self._viewer, self._field_classes = annotation, viewer, fields or {}
        self._titles: dict[str, QLabel] = {}
        self._lines: dict[str, QLabel] = {}
        self._groups: dict[str, QLabel] = {}
        self._known: dict[str, Any] = {}
        column = self.native.layout()
        column.setSpacing(4)
        options = [opt for opt in annotation.options() if not shown or opt.name in shown]
        column.addWidget(self._rows([option for option in options if not option.more]))
        tip = "Reset all settings to their defaults."
        self._reset = QPushButton("Reset", toolTip=tip, clicked=self.reset)
        self.more = Fold("More", self._reset)
        self._search = QLineEdit(
            placeholderText="Search settings", accessibleName="Search settings",
            clearButtonEnabled=True, textChanged=self._find,
        )  # fmt: skip
        groups = dict.fromkeys(option.more for option in options if option.more)
        if len(groups) > 1:
            self.more.add(self._search)
        for group in groups:
            if len(groups) > 1:
                self._groups[group] = QLabel(f"<b>{group}</b>")
                self.more.add(self._groups[group])
            self.more.add(self._rows([option for option in options if option.more == group]))
        column.addWidget(self.more)
        self.changed.connect(self._mark)
        if value is not Undefined:
            self.value = value
        self._mark()

    @property
    def value(self) -> Settings:
        """The settings in the form.

        Raises InputError if a value is not accepted.
        """
        return self._class.of({field.name: field.value for field in self})

    @value.setter
    def value(self, settings: Settings) -> None:
        values = settings.to_dict()
        self.update({field.name: values[field.name] for field in self})

    def reset(self) -> None:
        """Show the defaults."""
        self.value = self._class()

    def begin_scan(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Reset the settings that do not carry over to another scan.

        `own`: values chosen earlier for the new scan, by names of settings.
        Returns: the values chosen for the previous scan.
        """
        fields = [field for field in self if field.option.is_of_scan]
        left = {field.name: field.value for field in fields}
        for field in fields:
            if field.name in own:
                field.value = own[field.name]
            else:
                field.start_clean()
        return left

    def changed_from(self, values: Mapping[str, Any]) -> str:
        """Return in words the values, given by names of settings, that differ from the form."""
        lost = [field for field in self if field.value != values.get(field.name, field.value)]
        return ", ".join(f"{f.option.label} ({_in_words(f.option, values[f.name])})" for f in lost)

    def layers(self, scans: bool) -> list[Any]:
        """Return the layers named by settings, without duplicates: further scans, or all others."""
        chosen = [
            field.layer
            for field in self
            if field.option.auxiliary and ("scan" in field.option.auxiliary) == scans
        ]
        return list({id(layer): layer for layer in chosen if layer is not None}.values())

    def know(self, **known: Any) -> None:
        """Add facts about the volume, for the hints of the settings.

        ``**known``: as `Settings.hints` takes it; facts under other names are kept.
        """
        self._known |= known
        self._explain()

    def _rows(self, options: list[Option]) -> QWidget:
        """Return rows of titles, fields and hints; a long title is above its field."""
        widget = QWidget()
        rows = QFormLayout(widget, rowWrapPolicy=QFormLayout.RowWrapPolicy.WrapLongRows)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setVerticalSpacing(4)
        rows.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for option in options:
            field = self._make_field(option)
            label = QLabel(option.label)
            line = _Hint()
            line.hide()
            self._titles[option.name], self._lines[option.name] = label, line
            rows.addRow(label, field.native)
            rows.addRow(line)
            self.append(field)
        return widget

    def _find(self, text: str) -> None:
        """Show the folded settings whose title, help or group contains all words of a text."""
        words = text.lower().split()
        found = set()
        for field in self:
            option = field.option
            known = f"{option.label} {option.help_in_words} {option.more}".lower()
            is_found = not option.more or all(word in known for word in words)
            line = self._lines[field.name]
            for part in (field.native, self._titles[field.name]):
                part.setVisible(is_found)
            line.setVisible(is_found and bool(line.text()))
            found |= {option.more} if is_found else set()
        for group, heading in self._groups.items():
            heading.setVisible(group in found)

    def _make_field(self, option: Option) -> Any:
        """Return the field of a setting."""
        kind = self._field_classes.get(option.name) or field_class(option)
        # created directly, because magicgui takes as long to resolve the hint as to create the
        # field
        field = kind(option, **({"viewer": self._viewer} if kind.lists_layers else {}))
        if isinstance(field, CheckField):
            # the label is shown beside the field
            field.text = ""
        return field

    def _mark(self) -> None:
        """Mark changed settings, and show their number in the title of 'More'."""
        for field in self:
            changed = "" if field.is_default else " •"
            self._titles[field.name].setText(field.option.label + changed)
        folded = sum(bool(field.option.more) and not field.is_default for field in self)
        self.more.set_title(f"More ({folded} changed)" if folded else "More")
        self._reset.setVisible(any(not field.is_default for field in self))
        self._explain()

    def _explain(self) -> None:
        """Show the hints of the settings, and disable those without effect, with the reason."""
        hints: dict[str, str] = {}
        unused: dict[str, str] = {}
        try:
            settings = self.value
            hints, unused = settings.hints(self._known), settings.unused(self._known)
        except InputError:
            # the problem is shown when Run is pressed
            pass
        for field in self:
            name = field.name
            tip = [unused[name]] if name in unused else []
            tip += [field.option.help_in_words]
            if not field.is_default and "Default:" not in field.option.help:
                tip.append(f"Default: {default_in_words(field.option)}")
            self._lines[name].setText(unbroken(hints.get(name, "")))
            self._lines[name].setVisible(name in hints and not field.native.isHidden())
            field.enabled = name not in unused
            field.tooltip = "\n".join(tip)
            self._titles[name].setToolTip(field.native.toolTip())


def field_class(option: Option) -> type[Field]:
    """Return the field class for a setting."""
    if option.auxiliary:
        return LayerField
    if bool in option.types and not option.optional:
        return CheckField
    if str in option.types and float in option.types:
        return WordOrNumberField
    if choices_of(option):
        return ChoiceField
    if int in option.types or float in option.types:
        return NumberField
    return FileField if option.path else TextField


def _in_words(option: Option, value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else option.in_words(str(value))


register_type(Settings, widget_type=SettingsForm)


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
        menu = QMenu(self, toolTipsVisible=True)
        self._save = menu.addAction("Save as preset …", self._ask_and_save)
        self._delete = menu.addAction("Delete preset", self._delete_chosen)
        self._python = menu.addAction("Copy as Python", self._copy_as_python)
        self._python.setToolTip("Copy a call with these settings, for a script or notebook.")
        button = QToolButton(
            text="⋯", toolTip="Save or delete a preset, or copy the settings as Python.",
            accessibleName="Preset actions", popupMode=QToolButton.ToolButtonPopupMode.InstantPopup,
        )  # fmt: skip
        button.setMenu(menu)
        fill(QHBoxLayout(self), QLabel("Preset"), self._box, button, wide=self._box)
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
