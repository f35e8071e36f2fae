"""The form of a job, generated from the options of its Settings class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from magicgui import register_type
from magicgui.types import Undefined
from qtpy.QtWidgets import QGridLayout, QLabel, QPushButton, QWidget

from hushpore.base.errors import InputError
from hushpore.base.settings import Settings
from hushpore.viewer.forms.docking import PlacedContainer
from hushpore.viewer.forms.fields import (
    CheckField,
    ChoiceField,
    FileField,
    NumberField,
    TextField,
    WordOrNumberField,
    choices_of,
    default_in_words,
    type_of,
)
from hushpore.viewer.forms.layer_choice import LayerField
from hushpore.viewer.forms.layout import Fold
from hushpore.viewer.forms.rich_label import plain_label, unbroken

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hushpore.base.settings import Option
    from hushpore.viewer.forms.fields import Field


class SettingsForm(PlacedContainer):
    """The settings of a job: the important ones first, the others under 'More'.

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
        self._explained: dict[str, tuple[str, str]] = {}
        self._known: dict[str, Any] = {}
        column = self.native.layout()
        column.setSpacing(4)
        options = [opt for opt in annotation.options() if not shown or opt.name in shown]
        column.addWidget(self._grid([option for option in options if not option.more]))
        tip = "Reset all settings to their defaults."
        self._reset = QPushButton("Reset", toolTip=tip, clicked=self.reset)
        self.more = Fold("More", self._reset)
        if folded := [option for option in options if option.more]:
            self.more.add(self._grid(folded))
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

    def _grid(self, options: list[Option]) -> QWidget:
        widget = QWidget()
        grid = QGridLayout(widget)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(1, 1)
        for row, option in enumerate(options):
            field = self._make_field(option)
            label = QLabel(option.label)
            line = plain_label()
            line.setContentsMargins(8, 0, 0, 2)
            line.hide()
            self._titles[option.name], self._lines[option.name] = label, line
            grid.addWidget(label, 2 * row, 0)
            grid.addWidget(field.native, 2 * row, 1)
            grid.addWidget(line, 2 * row + 1, 0, 1, 2)
            self.append(field)
        return widget

    def _make_field(self, option: Option) -> Any:
        """Return the field of a setting, the same as magicgui creates from `annotation_of`."""
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
        folded = sum(field.option.more and not field.is_default for field in self)
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
            explained = hints.get(name, ""), "\n".join(tip)
            if self._explained.get(name) == explained:
                continue
            self._explained[name] = explained
            self._lines[name].setText(unbroken(explained[0]))
            self._lines[name].setVisible(name in hints)
            field.enabled = name not in unused
            field.tooltip = explained[1]
            self._titles[name].setToolTip(field.native.toolTip())


def annotation_of(option: Option, field: type[Field] | None = None) -> Any:
    """Return a type hint from which magicgui creates the field of a setting.

    For ``create_widget(annotation=...)`` and the signature of a function decorated with
    ``@magicgui``.

    `field`: the class of its field; by default `field_class`.
    """
    words = {"widget_type": field or field_class(option), "option": option}
    return Annotated[type_of(option), _Words(words)]


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


class _Words(dict[str, Any]):
    """Options of a type hint, which must be hashable."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self["option"].name)


register_type(Settings, widget_type=SettingsForm)
