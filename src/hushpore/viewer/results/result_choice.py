"""The combo box of pore results: layers, and folders on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from napari.layers import Labels
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QComboBox, QFileDialog, QSizePolicy

from hushpore.viewer.layers.conversion import unwrapped
from hushpore.viewer.results.pore_layer import tables_of

#: The entry that asks for a folder.
FOLDER = "folder …"
#: What stands there while nothing is chosen.
NONE = "none"

#: Changes of a layer after which its numbers, or its name, are others.
_SHOWN = ("features", "metadata", "name")


class ResultChoice(QComboBox):
    """Lists pore layers, the newest first, and the folders that were chosen here.

    It begins with a layer by its age, and moves to newer ones until the user chooses.

    `name`: what it is called, in one letter. `age`: which layer to begin with: 0 is the newest.
    """

    #: Another result is chosen, or its numbers have changed.
    changed = Signal()

    def __init__(self, viewer: Any, name: str, age: int) -> None:
        super().__init__()
        self.name, self._age = name, age
        self._all = viewer.layers
        self._listed: list[Any] = []
        self._folders: list[Path] = []
        self._watched: list[Any] = []
        self._touched = False
        self._chosen: Any = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(12)
        self.setAccessibleName(f"Result {name}")
        self.setToolTip("A pore layer, or a result folder.")
        self.activated.connect(self._choose)
        self._events = [self._all.events.inserted, self._all.events.removed]
        for event in self._events:
            event.connect(self._refresh)
        self._refresh()

    def value(self) -> Any:
        """Return the layer, or the path of the folder, that is chosen; None where none is."""
        return self._chosen

    def set(self, result: Any) -> None:
        """Choose a layer, or a result folder by its path."""
        self._touched = True
        if isinstance(result, str | Path):
            result = Path(result)
            if result not in self._folders:
                self._folders.append(result)
        self._chosen = result
        self._refresh()

    def let_go(self) -> None:
        """Follow layers no longer."""
        for event in self._events:
            event.disconnect(self._refresh)
        self._events = []
        self._watch([])

    def _choose(self, position: int) -> None:
        if self.itemText(position) == FOLDER:
            folder = QFileDialog.getExistingDirectory(self, "Result folder")
            if folder:
                self.set(Path(folder))
            else:
                self._refresh()
            return
        entries = [*self._listed, *self._folders]
        if position < len(entries):
            self.set(entries[position])

    def _refresh(self, event: Any = None) -> None:
        known = [unwrapped(layer) for layer in reversed(self._all) if tables_of(layer) is not None]
        self._listed = known
        self._watch([unwrapped(layer) for layer in self._all])
        gone = not isinstance(self._chosen, Path) and not any(self._chosen is one for one in known)
        before = self._chosen
        if not self._touched or gone:
            self._chosen = known[self._age] if len(known) > self._age else None
            self._touched = self._touched and not gone
        self.clear()
        self.addItems([layer.name for layer in known] + [f"{path.name}/" for path in self._folders])
        if self._chosen is None:
            self.addItem(NONE)
        self.addItem(FOLDER)
        entries = [*known, *self._folders, None]
        now = self._chosen
        same = (each is now or (isinstance(each, Path) and each == now) for each in entries)
        self.setCurrentIndex(list(same).index(True))
        if self._chosen is not before or event is None:
            self.changed.emit()

    def _watch(self, layers: list[Any]) -> None:
        for emitter in self._watched:
            emitter.disconnect(self._altered)
        # an image has no features, and can never become a result
        self._watched = [
            getattr(layer.events, name)
            for layer in layers
            if isinstance(layer, Labels)
            for name in _SHOWN
        ]
        for emitter in self._watched:
            emitter.connect(self._altered)

    def _altered(self, event: Any) -> None:
        """List anew; a preview becomes a result, a result is merged anew."""
        self._refresh(event)
        if unwrapped(event.source) is self._chosen:
            self.changed.emit()
