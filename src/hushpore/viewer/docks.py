"""The docks of hushpore, in the order of the work, and their pages."""

from __future__ import annotations

from functools import partial
from math import ceil
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from napari import current_viewer
from qtpy.QtCore import QEvent, QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QDockWidget,
    QMainWindow,
    QSizePolicy,
    QStackedWidget,
    QTabBar,
    QVBoxLayout,
    QWidget,
)

from hushpore.base.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Widgets of each dock, by the names of their pages.
DOCKS: dict[str, dict[str, str]] = {
    "Prepare": {
        "Crop": "layers.scan_panels:CropWidget",
        "Flatten": "layers.scan_panels:FlattenWidget",
        "Align": "layers.scan_panels:AlignWidget",
        "Raw file": "layers.reading:RawImportWidget",
    },
    "Denoise": {"Denoise": "denoise.widget:DenoiseWidget"},
    "Pores": {
        "Pores": "segment.widget:PoresWidget",
        "Labels": "segment.widget:MeasureWidget",
        "Phases": "phases:PhasesWidget",
    },
    "Results": {
        "Table": "results.panel:ResultsWidget",
        "Plots": "results.plots:PlotsWidget",
        "Compare": "results.compare:CompareWidget",
        "Record": "results.record_panel:RecordWidget",
        "Batch": "batch:BatchWidget",
    },
    "Patches": {"Patches": "patches.widget:PatchesWidget"},
}

#: Page of each job.
OF_JOB = {
    "denoise": "Denoise",
    "pores": "Pores",
    "measure": "Labels",
    "phases": "Phases",
    "patches": "Patches",
}

#: Smallest share of the window's width for the image, and pixels beside the image.
IMAGE_SHARE, _BESIDE = 0.55, 8

#: Widths of a dock in pixels: the smallest, and that where there is room.
NARROW, WIDE = 266, 354

#: Property of a window: the last width that was given to a dock.
_GIVEN = "hushpore width"

_OLD = (
    "hushpore needs napari 0.9 or newer; this is {}. Update it with: pip install -U "
    '"hushpore[napari]"'
)


class Pages(QWidget):
    """A dock of hushpore: tabs at its top choose a page, which is made when first shown.

    `tabs`: the tabs; hidden if there is one page.
    """

    #: Key of `DOCKS`.
    NAME: ClassVar[str]

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        require_canvas(napari_viewer)
        self._viewer = napari_viewer
        self._pages: dict[str, Any] = {}
        self._dock: QDockWidget | None = None
        self._stack = QStackedWidget()
        policy = QSizePolicy.Policy.Expanding
        self.setSizePolicy(policy, policy)
        self.tabs = QTabBar(expanding=False, accessibleName=f"Pages of {self.NAME}")
        for name in DOCKS[self.NAME]:
            self.tabs.addTab(name)
        self.tabs.setVisible(self.tabs.count() > 1)
        # too many tabs scroll instead of shortening their titles
        self.tabs.setElideMode(Qt.TextElideMode.ElideNone)
        self.tabs.currentChanged.connect(self._show_page)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.tabs)
        column.addWidget(self._stack, 1)
        self.setMinimumWidth(NARROW)
        SharesSide(self, self.NAME)

    def open(self, name: str) -> Any:
        """Show a page, and return its widget."""
        self.tabs.setCurrentIndex(list(DOCKS[self.NAME]).index(name))
        self._show_page()
        return self._pages[name]

    def _show_page(self, _index: int = 0) -> None:
        name = self.tabs.tabText(self.tabs.currentIndex())
        if name not in self._pages:
            made = resolve_name(f"hushpore.viewer.{DOCKS[self.NAME][name]}")(self._viewer)
            self._pages[name] = made
            self._stack.addWidget(getattr(made, "native", made))
        page = self._pages[name]
        self._stack.setCurrentWidget(getattr(page, "native", page))

    def _follow_dock(self, is_in_front: bool) -> None:
        """Show the page while the dock is in front of its tabs, as previews are hidden with it."""
        self._stack.setVisible(is_in_front)
        if is_in_front:
            self._show_page()

    def showEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Follow the dock, which Qt also calls visible behind other tabs."""
        super().showEvent(event)
        dock = dock_of(self)
        if dock is None:
            self._show_page()
        elif dock is not self._dock:
            self._dock = dock
            dock.visibilityChanged.connect(self._follow_dock)

    def changeEvent(self, event: Any) -> None:  # noqa: N802 - Qt's name
        """Remove the pages, which ends their work, when napari removes the dock."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            for page in self._pages.values():
                getattr(page, "native", page).setParent(None)
            self._pages = {}


def _dock(name: str) -> type[Pages]:
    """Return the class of a dock, for the manifest."""
    return type(f"{name}Pages", (Pages,), {"NAME": name, "__module__": __name__})


PreparePages, DenoisePages, PoresPages, ResultsPages, PatchesPages = map(_dock, DOCKS)


def require_canvas(viewer: Any) -> None:
    """Raise MissingPackageError if napari is older than 0.9."""
    if not hasattr(viewer, "canvas"):
        from napari import __version__

        raise MissingPackageError(_OLD.format(__version__))


def open_page(viewer: Any, name: str) -> Any:
    """Open a page in its dock, in front of the other docks at its side, and return its widget.

    `viewer`: None for the current one. `name`: of a page in `DOCKS`.
    """
    viewer = viewer or current_viewer()
    of = next(dock for dock, pages in DOCKS.items() if name in pages)
    dock, pages = viewer.window.add_plugin_dock_widget("hushpore", of, tabify=True)
    dock.show()
    dock.raise_()
    return pages.open(name)


def _command(name: str) -> Callable[[], None]:
    """Return a command of napari's palette that opens a page."""

    def run() -> None:
        open_page(None, name)

    return run


open_crop, open_flatten, open_align, open_raw = map(_command, DOCKS["Prepare"])
open_pores, open_labels, open_phases = map(_command, DOCKS["Pores"])
open_table, open_plots, open_compare, open_record, open_batch = map(_command, DOCKS["Results"])


def open_preferences() -> None:
    """Open the preferences of hushpore."""
    viewer: Any = current_viewer()
    name = "hushpore preferences"
    if name not in viewer.window.dock_widgets:
        made = resolve_name("hushpore.viewer.preferences:PreferencesWidget")(viewer)
        viewer.window.add_dock_widget(made, name=name, tabify=True)
    dock = dock_of(viewer.window.dock_widgets[name])
    if dock is not None:
        dock.show()
        dock.raise_()


def dock_of(widget: QWidget | None) -> QDockWidget | None:
    """Return the dock that contains a widget, or None."""
    while widget is not None and not isinstance(widget, QDockWidget):
        widget = widget.parent()
    return widget


class _EventWatcher(QObject):
    """Tells of events of a kind of a widget, in the next turn of the event loop."""

    happened = Signal()

    def __init__(self, parent: QObject, watched: QWidget, kind: QEvent.Type) -> None:
        super().__init__(parent)
        self._kind = kind
        watched.installEventFilter(self)

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802 - Qt's name
        """Emit the signal later."""
        if event.type() == self._kind:
            QTimer.singleShot(0, self.happened.emit)
        return False


class SharesSide(QObject):
    """Makes a dock of one widget a tab beside other docks of hushpore when it is first shown.

    napari's menu opens each widget below the previous one, where two hardly have space. The dock is
    `WIDE` where `IMAGE_SHARE` of the window's width remains for the image, otherwise narrower; a
    width that the user chose stays unless the image has too little.

    `tab`: title of the tab; empty for the name of napari's dock, which includes that of the plugin
    and is too long for several tabs side by side. The dock keeps its own name.
    """

    def __init__(self, widget: QWidget, tab: str = "") -> None:
        super().__init__(widget)
        self._widget, self._tab = widget, tab
        self._dock: Any = None
        # otherwise the window would grow to fit it below the others, and keep that size
        widget.setMinimumHeight(1)
        self._shown = _EventWatcher(self, widget, QEvent.Type.Show)
        self._shown.happened.connect(self._settle)

    def _settle(self) -> None:
        """Take the place in the window, once the widget is shown and its dock is placed."""
        self._shown.happened.disconnect(self._settle)
        # not the page of another dock
        if isinstance(self._widget.parent(), QDockWidget):
            self._dock = self._widget.parent()
            self._join()
        self._widget.setMinimumHeight(0)

    def _join(self) -> None:
        dock = self._dock
        if self._tab:
            dock.setWindowTitle(self._tab)
            # restore the entry in the window's menu, which follows the title
            dock.toggleViewAction().setText(getattr(dock, "name", self._tab))
        window = dock.parent()
        if not isinstance(window, QMainWindow):
            return
        # napari's controls of layers, too, take width from the image
        for watched in filter(None, (window, window.centralWidget())):
            of_window = watched is window
            watcher = _EventWatcher(self, watched, QEvent.Type.Resize)
            watcher.happened.connect(partial(self._share_width, of_window))
        area = window.dockWidgetArea(dock)
        for other in window.findChildren(QDockWidget):
            is_docked = other is not dock and other.isVisible() and not other.isFloating()
            shares = is_docked and other.findChild(SharesSide) is not None
            if shares and window.dockWidgetArea(other) == area:
                if not window.tabifiedDockWidgets(dock):
                    window.tabifyDockWidget(other, dock)
                    dock.raise_()
                break
        _scroll_tabs(window)
        self._share_width()

    def _share_width(self, of_window: bool = True) -> None:
        """Divide the width of the window between the image and the dock, if it is in front.

        `of_window`: whether a width that the user chose is narrowed, too, if the image has too
        little.
        """
        dock: Any = self._dock
        window = dock.parent()
        image = window.centralWidget() if isinstance(window, QMainWindow) else None
        sides = Qt.DockWidgetArea.LeftDockWidgetArea | Qt.DockWidgetArea.RightDockWidgetArea
        if image is None or dock.visibleRegion().isEmpty() or dock.isFloating():
            return
        spare = image.width() - ceil(IMAGE_SHARE * window.width()) - _BESIDE
        given = window.property(_GIVEN)
        is_ours = given is None or abs(given - dock.width()) <= 1
        if window.dockWidgetArea(dock) & sides and (is_ours or (of_window and spare < 0)):
            width = min(max(dock.width() + spare, NARROW), WIDE if is_ours else dock.width())
            window.setProperty(_GIVEN, width)
            window.resizeDocks([dock], [width], Qt.Orientation.Horizontal)


def _scroll_tabs(window: QMainWindow) -> None:
    """Let too many tabs scroll instead of shortening their titles to 'De…'."""
    for bar in window.findChildren(QTabBar, options=Qt.FindChildOption.FindDirectChildrenOnly):
        bar.setElideMode(Qt.TextElideMode.ElideNone)
        bar.setUsesScrollButtons(True)
