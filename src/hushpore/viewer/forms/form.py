"""The form of a job, made from nothing but the options of its Settings class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from hushpore.base.errors import InputError
from hushpore.viewer.forms.fields import default_in_words, make_field
from hushpore.viewer.forms.fold import Fold
from hushpore.viewer.forms.rich_label import plain_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.settings import Option, Settings
    from hushpore.viewer.forms.fields import Field


class SettingsForm(QWidget):
    """The settings of a job: the few that matter, the rest under 'More'.

    Parameters
    ----------
    settings : type of Settings
        The class to make a form of.
    fields : callable, optional
        Makes the field of a setting, where it is not `make_field`.
    """

    changed = Signal()

    def __init__(
        self, settings: type[Settings], fields: Callable[[Option], Field] | None = None
    ) -> None:
        super().__init__()
        self._class = settings
        self._make_field = fields or make_field
        self.fields: dict[str, Field] = {}
        self._labels: dict[str, QLabel] = {}
        self._lines: dict[str, QLabel] = {}
        self._known: dict[str, Any] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        options = settings.options()
        column.addWidget(self._grid([opt for opt in options if not opt.more]))
        self._reset = QPushButton("Reset")
        self._reset.setToolTip("Put every setting back to its default.")
        self._reset.clicked.connect(self.reset)
        self.more = Fold("More", self._reset)
        folded = [opt for opt in options if opt.more]
        self.more.set_empty(not folded)
        if folded:
            self.more.add(self._grid(folded))
        column.addWidget(self.more)
        self._mark()

    def settings(self) -> Settings:
        """Return the settings that the form shows.

        Raises
        ------
        InputError
            If a value is not accepted.
        """
        return self._class.of({name: field.value() for name, field in self.fields.items()})

    def set(self, settings: Settings) -> None:
        """Show these settings."""
        for name, value in settings.to_dict().items():
            self.fields[name].set(value)

    def begin_with(self, settings: Settings | None) -> None:
        """Show what was last used, as far as it is not the default; None: the defaults."""
        for opt in self._class.options() if settings is not None else ():
            value = getattr(settings, opt.name)
            if value != opt.default:
                self.fields[opt.name].set(value)

    def reset(self) -> None:
        """Show the defaults."""
        self.set(self._class())

    def know(self, **known: Any) -> None:
        """Take in what is known of the volume, for what the settings have to say of it.

        Parameters
        ----------
        **known
            As `Settings.explained` takes it; what was known under other names stays.
        """
        self._known |= known
        self._explain()

    def _grid(self, options: list[Option]) -> QWidget:
        widget = QWidget()
        grid = QGridLayout(widget)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(1, 1)
        for row, opt in enumerate(options):
            field = self._make_field(opt)
            field.changed.connect(self._mark)
            label = QLabel(opt.label)
            line = plain_line()
            line.setContentsMargins(8, 0, 0, 2)
            line.hide()
            self.fields[opt.name] = field
            self._labels[opt.name], self._lines[opt.name] = label, line
            grid.addWidget(label, 2 * row, 0)
            grid.addWidget(field, 2 * row, 1)
            grid.addWidget(line, 2 * row + 1, 0, 1, 2)
        return widget

    def _mark(self) -> None:
        """Show which settings differ from their defaults, also where they are folded away."""
        folded = 0
        for name, label in self._labels.items():
            field = self.fields[name]
            changed = not field.is_default
            label.setText(f"{field.opt.label} •" if changed else field.opt.label)
            folded += changed and field.opt.more
        self.more.set_title(f"More ({folded} changed)" if folded else "More")
        self._reset.setVisible(any(not field.is_default for field in self.fields.values()))
        self._explain()
        self.changed.emit()

    def _explain(self) -> None:
        """Say what values come to, and let be what has no effect beside the others, with why."""
        said: dict[str, str] = {}
        unused: dict[str, str] = {}
        try:
            settings = self.settings()
            said, unused = settings.explained(self._known), settings.unused(self._known)
        except InputError:
            # said when Run is pressed; till then everything can be changed
            pass
        for name, field in self.fields.items():
            self._lines[name].setText(said.get(name, ""))
            self._lines[name].setVisible(name in said)
            tip = [unused[name]] if name in unused else []
            tip += [field.opt.help]
            tip += [] if field.is_default else [f"Default: {default_in_words(field.opt)}"]
            field.setEnabled(name not in unused)
            for widget in (field, self._labels[name]):
                widget.setToolTip("\n".join(tip))
