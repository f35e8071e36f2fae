"""Docks, keys, layouts and labels: rows and columns, sections that fold, texts with links."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from app_model.backends.qt import QKeyBindingSequence, qkeysequence2modelkeybinding
from app_model.types import KeyBinding
from magicgui.backends._qtpy.widgets import QBaseWidget
from magicgui.widgets.bases import BaseValueWidget
from napari.components import ViewerModel
from napari.settings import get_settings
from napari.utils.action_manager import action_manager
from napari.utils.theme import get_theme
from qtpy.QtCore import Qt, QTimer
from qtpy.QtGui import QColor, QKeySequence, QPainter, QPen, QShortcut
from qtpy.QtWidgets import (
    QApplication,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QScrollArea,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from hushpore.viewer.docks import dock_of, open_page

if TYPE_CHECKING:
    from collections.abc import Callable


def fill(layout: Any, *parts: Any, spacing: int = -1, margin: int = 0, wide: Any = None) -> Any:
    """Put widgets and layouts into a layout one after another, and return it.

    `parts`: None is a stretch. `spacing`, `margin`: pixels between and around the parts; by default
    the spacing of the style and no margin. `wide`: the part that takes the remaining space.
    """
    layout.setContentsMargins(margin, margin, margin, margin)
    layout.setSpacing(spacing)
    for part in parts:
        if part is None:
            layout.addStretch(1)
            continue
        add = layout.addLayout if isinstance(part, QLayout) else layout.addWidget
        add(part, int(part is wide))
    return layout


class ScrolledColumn(QScrollArea):
    """A column as wide as its dock, which scrolls if it is higher.

    `parts`: widgets and layouts, from top to bottom. `margin`: pixels around them. `wide`: the part
    that takes the remaining space; by default none.
    """

    def __init__(
        self, *parts: QWidget | QLayout, margin: int = 6, wide: QWidget | None = None
    ) -> None:
        super().__init__(
            widgetResizable=True,
            frameShape=QFrame.Shape.NoFrame,
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
            # the contents take the focus
            focusPolicy=Qt.FocusPolicy.NoFocus,
        )
        if wide is not None:
            # not more than remains, so that what is below it stays in view
            wide.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
        content = QWidget()
        self.column = fill(QVBoxLayout(content), *parts, spacing=6, margin=margin, wide=wide)
        self.column.addStretch(int(wide is None))
        self.setWidget(content)
        # a part that is too wide loses its right end, never the beginning of all lines
        across = self.horizontalScrollBar()
        across.valueChanged.connect(lambda _: across.setValue(0))

    def bring_into_view(self, widget: QWidget) -> None:
        """Scroll to a widget once it is laid out."""
        self._wanted = widget
        QTimer.singleShot(0, self._scroll_to_wanted)

    def _scroll_to_wanted(self) -> None:
        self.ensureWidgetVisible(self._wanted, 0, 6)


class PinnedColumn(QWidget):
    """A form above a bar of buttons that keeps its place, and the messages below the bar.

    The place of the bar follows from the height of the widget alone, so that no message, progress
    or unfolded section moves a button away from the pointer. Form and messages scroll.

    `upper`, `bar`, `lower`: form, buttons and messages. `share`, `lines`: share of the height, less
    that of the bar, for messages, and their maximum in lines of text.
    """

    def __init__(
        self,
        upper: ScrolledColumn,
        bar: QWidget,
        lower: ScrolledColumn,
        share: float = 0.29,
        lines: int = 16,
    ) -> None:
        super().__init__()
        self.upper, self.bar, self.lower = upper, bar, lower
        column = fill(QVBoxLayout(self), upper, rule(), bar, lower, spacing=0)
        for part, of_height in ((upper, 1 - share), (lower, share)):
            # whatever it holds: the size that it asks for would move the bar
            part.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Ignored)
            column.setStretchFactor(part, round(100 * of_height))
        lower.setMaximumHeight(lines * self.fontMetrics().height())


class Plot(QWidget):
    """A plot painted in the colours of napari's theme, with a frame while it has the focus."""

    def __init__(self, viewer: Any, height: int) -> None:
        super().__init__()
        self._viewer = viewer
        self.setFixedHeight(height)
        viewer.events.theme.connect(self._refresh)

    def paintEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Paint background, plot and frame."""
        theme, painter = get_theme(self._viewer.theme), QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(self.rect(), QColor(theme.foreground.as_hex()))
        self._paint(painter, QColor(theme.text.as_hex()))
        if self.hasFocus():
            painter.setPen(QPen(QColor(theme.current.as_hex()), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.rect().adjusted(1, 1, -1, -1))
        painter.end()

    def _paint(self, painter: QPainter, text: QColor) -> None:
        """Paint the plot; `text`: colour of text."""
        raise NotImplementedError

    def _refresh(self, event: Any = None) -> None:
        self.update()


def rule() -> QFrame:
    """Return a thin line between two parts of a column."""
    # the object name that napari's style sheet uses for thin lines
    line = QFrame(objectName="QtCustomTitleBarLine")
    line.setFixedHeight(1)
    return line


class Fold(QWidget):
    """A section that folds: a title with an arrow, hidden while the section is empty.

    `corner`: widget at the end of the title line. `button`: the title; checked while unfolded.
    """

    def __init__(self, title: str, corner: QWidget | None = None) -> None:
        super().__init__()
        # a long title is cut in a narrow dock
        self.button = QToolButton(
            toolButtonStyle=Qt.ToolButtonStyle.ToolButtonTextBesideIcon, toolTip="Show / hide",
            checkable=True, arrowType=Qt.ArrowType.RightArrow, minimumWidth=16, visible=False,
        )  # fmt: skip
        self.button.toggled.connect(self._turn)
        self.set_title(title)
        self._content = QWidget(visible=False)
        self.button.toggled.connect(self._content.setVisible)
        self._inner = QVBoxLayout(self._content)
        self._inner.setContentsMargins(8, 2, 0, 2)
        line = QHBoxLayout()
        line.addWidget(self.button)
        line.addStretch(1)
        if corner is not None:
            line.addWidget(corner)
        fill(QVBoxLayout(self), line, self._content, spacing=2)

    def set_title(self, title: str) -> None:
        """Change the title."""
        self.button.setText(f" {title}")

    def add(self, widget: QWidget) -> None:
        """Add a widget to the section."""
        self._inner.addWidget(widget)
        self.button.show()

    def set_open(self, is_open: bool) -> None:
        """Unfold or fold the section."""
        self.button.setChecked(is_open)

    def _turn(self, is_open: bool) -> None:
        self.button.setArrowType(Qt.ArrowType.DownArrow if is_open else Qt.ArrowType.RightArrow)


class _Shown(QBaseWidget):
    """Qt backend of a magicgui widget for any Qt widget."""

    def __init__(self, make: Callable[[], QWidget], parent: QWidget | None = None) -> None:
        super().__init__(lambda parent: make(), parent=parent)

    def _mgui_set_tooltip(self, value: str | None) -> None:
        # magicgui's empty tooltip must not replace the tooltip of the Qt widget
        if value:
            super()._mgui_set_tooltip(value)


def shown_by(make: Callable[[], QWidget]) -> dict[str, Any]:
    """Return the keywords of a magicgui widget for the Qt widget returned by `make`."""
    return {"widget_type": _Shown, "backend_kwargs": {"make": make}}


class ValueOf(BaseValueWidget):
    """A magicgui widget with the value of a custom Qt widget.

    `make`: returns the Qt widget, which has ``value()``, ``set(value)`` and a signal ``changed``.
    `name`: its name in a container.
    """

    def __init__(self, make: Callable[[], QWidget], name: str, annotation: Any = str) -> None:
        super().__init__(name=name, annotation=annotation, **shown_by(make))

    def _post_init(self) -> None:
        self.native.changed.connect(self._emit_changed)

    def _emit_changed(self, *_: object) -> None:
        self.changed.emit(self.value)

    def get_value(self) -> Any:
        """Return the value of the Qt widget."""
        return self.native.value()

    def set_value(self, value: Any) -> None:
        """Show a value."""
        self.native.set(value)


#: Keyboard shortcuts that napari does not use. On macOS Ctrl is the Command key.
RUN, CANCEL = "Ctrl+Return", "Ctrl+."
PREVIOUS_SLICE, NEXT_SLICE = "Alt+PgUp", "Alt+PgDown"
UNDO_MERGE, REDO_MERGE = "Ctrl+Alt+Z", "Ctrl+Alt+Y"
MERGE_PORES, DELETE_PORES = "Ctrl+Alt+M", "Ctrl+Alt+D"

#: Actions under Preferences > Shortcuts of napari, where their keys can be changed; those for
#: slices are not, because that page does not know the page keys.
ACTIONS = {
    RUN: ("hushpore:run", "Run the job of the hushpore widget in front"),
    CANCEL: ("hushpore:cancel", "Cancel the job of the hushpore widget in front"),
    UNDO_MERGE: ("hushpore:undo_merge", "Undo the last change of the merge height"),
    MERGE_PORES: ("hushpore:merge_pores", "Merge the selected pores"),
    DELETE_PORES: ("hushpore:delete_pores", "Delete the selected pores"),
    REDO_MERGE: ("hushpore:redo_merge", "Redo the last change of the merge height"),
}


#: Keys of the actions that are registered with napari, as chosen in its preferences.
_chosen: dict[str, list[Any]] = {}


def _follow_napari(event: Any) -> None:
    """Take over a key that the user chose in napari's preferences; without one, all are removed."""
    if event.name in _chosen:
        others = [key for key in _chosen[event.name] if key != event.shortcut]
        _chosen[event.name] = [*others, event.shortcut] if event.shortcut else []


action_manager.events.shortcut_changed.connect(_follow_napari)


class _Key(QShortcut):
    """A keyboard shortcut that acts while its widget is in front.

    Qt treats tabs behind another as visible, so a shortcut of several tabs is ambiguous; this class
    finds the one in front.
    """

    def __init__(self, widget: QWidget, key: str, act: Callable[[], object]) -> None:
        super().__init__(widget)
        self.default = key
        self._act = act
        self._take_keys()
        self.activated.connect(self._pressed)
        self.activatedAmbiguously.connect(self._pressed)
        # after `_follow_napari`
        action_manager.events.shortcut_changed.connect(self._take_keys, position="last")

    def _take_keys(self, event: Any = None) -> None:
        """Take over the keys that the user chose in napari's preferences."""
        keys = [self.default]
        if self.default in ACTIONS:
            keys = [
                QKeyBindingSequence(KeyBinding.validate(binding)).toString()
                for binding in _chosen.get(ACTIONS[self.default][0], ())
            ]
        # Enter is on the number pad, too
        keys = [key.replace("Enter", "Return") for key in keys] + keys
        self.setKeys([QKeySequence(key) for key in dict.fromkeys(keys)])

    def is_in_front(self) -> bool:
        """Whether its widget, or the dock of the widget, is visible."""
        widget = self.parent()
        shown = dock_of(widget) or widget
        return bool(widget.isVisible() and not shown.visibleRegion().isEmpty())

    def has_focus(self) -> bool:
        """Whether the focus is in its widget."""
        focus = QApplication.focusWidget()
        return focus is not None and bool(self.parent().isAncestorOf(focus))

    def _pressed(self) -> None:
        press(self.default, self.parent().window())


def press(key: str, window: QWidget | None = None) -> None:
    """Do what a key does, in the widget in front; if several are side by side, in that with focus.

    `key`: the key by default. `window`: by default the active window.
    """
    window = window or QApplication.activeWindow()
    keys = [] if window is None else window.findChildren(_Key)
    same = [shortcut for shortcut in keys if shortcut.default == key and shortcut.is_in_front()]
    for shortcut in sorted(same, key=_Key.has_focus)[-1:]:
        shortcut._act()


#: Keys as commands of napari's palette; they act in the widget in front.
run_in_front, cancel_in_front = partial(press, RUN), partial(press, CANCEL)
merge_in_front, delete_in_front = partial(press, MERGE_PORES), partial(press, DELETE_PORES)
undo_in_front, redo_in_front = partial(press, UNDO_MERGE), partial(press, REDO_MERGE)


def bind(widget: QWidget, key: str, act: Callable[[], object]) -> QShortcut:
    """Add a keyboard shortcut that acts while a widget is in front, and return it.

    Those of `ACTIONS` are listed under Preferences > Shortcuts of napari, and follow changes made
    there.
    """
    name, description = ACTIONS.get(key, ("", ""))
    if name and name not in _chosen:
        # napari takes a function, not a partial one
        def pressed(viewer: Any) -> None:
            press(key)

        own = [qkeysequence2modelkeybinding(QKeySequence(key))]
        _chosen[name] = list(get_settings().shortcuts.shortcuts.get(name, own))
        action_manager.register_action(name, pressed, description, ViewerModel)
        for chosen in tuple(_chosen[name]):
            action_manager.bind_shortcut(name, chosen)
    return _Key(widget, key, act)


def with_key(tip: str, key: str) -> str:
    """Add a keyboard shortcut to a tooltip, as the system writes it."""
    return f"{tip} ({QKeySequence(key).toString(QKeySequence.SequenceFormat.NativeText)})"


def step_slice(viewer: Any, by: int) -> None:
    """Go to another slice in the 2D view."""
    dims = viewer.dims
    if dims.ndisplay == 2 and dims.not_displayed:
        axis = dims.not_displayed[-1]
        dims.set_current_step(axis, dims.current_step[axis] + by)


#: Placeholders for colours of the theme.
_TEXT, _WARNING, _ERROR = "@text@", "@warning@", "@error@"


#: Pages that crop and bin, or flatten, and the links that open them.
CROP, FLATTEN = "Crop", "Flatten"

#: Advice to crop or bin, which becomes a link to that widget.
_ADVICE = re.compile(
    r"\b[Cc]rop(?:(?: it| the (?:scan|volume)),?)?(?: or bin(?: it| the (?:scan|volume))?)?"
    r"(?: to the sample)?(?=[,.: ])"
)

_FLATTEN_ADVICE = "Flatten the scan"


#: Spaces at which a line must not break: before units, signs, separating dots and the ellipsis of a
#: link that opens a dialog.
_UNBROKEN = re.compile(r" (?=(?:[kMGT]?B|mm|µm|nm|m?s|min|HU|a\.u\.|[%·✓⚠…])(?!\w))")


class RichLabel(QLabel):
    """A wrapped text with links that can be copied; hidden while it is empty."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(
            wordWrap=True,
            textFormat=Qt.TextFormat.RichText,
            textInteractionFlags=Qt.TextInteractionFlag.TextBrowserInteraction,
            visible=False,
        )
        self._viewer = viewer
        self._html = ""
        self.linkActivated.connect(self._open_widget)
        viewer.events.theme.connect(self._paint)

    def say(self, text: str) -> None:
        """Show a text in HTML, which may contain results of `link` and `sign`."""
        self._html = text
        self._paint()
        self.setVisible(bool(text))

    @property
    def html(self) -> str:
        """The text as HTML, before the colours are inserted."""
        return self._html

    def _open_widget(self, target: str) -> None:
        if target in (CROP, FLATTEN):
            open_page(self._viewer, target)

    def _paint(self, event: Any = None) -> None:
        theme = get_theme(self._viewer.theme)
        error = QColor(theme.error.as_hex())
        # napari's red is too dark for a sign on a dark background
        colours = {
            _TEXT: theme.text.as_hex(),
            _WARNING: theme.warning.as_hex(),
            _ERROR: (error.lighter(170) if theme.type == "dark" else error).name(),
        }
        text = self._html
        for name, colour in colours.items():
            text = text.replace(name, colour)
        self.setText(text)


def unbroken(text: str) -> str:
    """Return a text whose lines do not break between a number and its unit."""
    return _UNBROKEN.sub("\u00a0", text)


def link(target: str, text: str) -> str:
    """Return a link in the text colour, because Qt's blue is unreadable on a dark background."""
    return f'<a href="{target}" style="color: {_TEXT}">{unbroken(text)}</a>'


def advice_linked(text: str) -> str:
    """Return a text, as HTML, in which advice to crop, bin or flatten is a link.

    >>> CROP in advice_linked("Close other programs, or crop or bin the volume.")
    True
    """
    text = text.replace(_FLATTEN_ADVICE, link(FLATTEN, _FLATTEN_ADVICE))
    return _ADVICE.sub(lambda advice: link(CROP, advice[0]), text)


def sign(is_error: bool) -> str:
    """Return the warning sign for the start of a message."""
    return f'<b style="color: {_ERROR if is_error else _WARNING}">⚠</b>'


#: Properties of a label with wrapped plain text that can be copied.
PLAIN: dict[str, Any] = {
    "wordWrap": True,
    "textFormat": Qt.TextFormat.PlainText,
    "textInteractionFlags": Qt.TextInteractionFlag.TextSelectableByMouse,
}


def plain_label(text: str = "") -> QLabel:
    """Return a wrapped line of plain text that can be copied."""
    return QLabel(text, **PLAIN)
