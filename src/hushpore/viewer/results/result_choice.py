"""The combo box of results, of pores or phases: layers, and folders on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QFileDialog, QSizePolicy

from hushpore.viewer.forms.names import NameBox
from hushpore.viewer.layers.conversion import known_of, unwrapped
from hushpore.viewer.results.pore_layer import tables_of

if TYPE_CHECKING:
    from hushpore.pores.phases.result import Phases

#: The entry that asks for a folder.
FOLDER = "folder …"
#: What stands there while nothing is chosen.
NONE = "none"

#: Changes of a layer after which its numbers, or its name, are others.
_SHOWN = ("features", "metadata", "name")


def phases_of(layer: Any) -> Phases | None:
    """Return the measurement of phases that a layer shows; None where it shows none."""
    found: Phases | None = known_of(layer).get("phases")
    return found


class ResultChoice(NameBox):
    """Lists layers of pores and of phases, the newest first, and folders that were chosen here.

    It begins with a layer by its age, and moves to newer ones until the user chooses; with pores or
    with phases, of which there are two.

    `name`: what it is called, in one letter. `age`: which layer to begin with: 0 is the newest.
    """

    #: Another result is chosen, or its numbers have changed.
    changed = Signal()

    def __init__(self, viewer: Any, name: str, age: int) -> None:
        super().__init__(
            sizeAdjustPolicy=self.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon,
            minimumContentsLength=12,
            accessibleName=f"Result {name}",
            toolTip="A layer of pores or of phases, or a result folder.",
        )
        self.name, self._age = name, age
        self._all = viewer.layers
        self._entries: list[Any] = []  # layers, folders, and None where nothing is chosen
        self._folders: list[Path] = []
        self._touched = False
        self._chosen: Any = None
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.activated.connect(self._choose)
        # which tells of what changes in the layers, too
        self._all.events.connect(self._follow)
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
        self._all.events.disconnect(self._follow)

    def _choose(self, position: int) -> None:
        if self.itemText(position) == FOLDER:
            folder = QFileDialog.getExistingDirectory(self, "Result folder")
            if folder:
                self.set(Path(folder))
            else:
                self._refresh()
        elif self._entries[position] is not None:
            self.set(self._entries[position])

    def _refresh(self, event: Any = None) -> None:
        newest = [unwrapped(layer) for layer in reversed(self._all)]
        known = [layer for layer in newest if tables_of(layer) or phases_of(layer)]
        alike = _alike(known)
        gone = not isinstance(self._chosen, Path) and self._chosen not in known
        before = self._chosen
        if not self._touched or gone:
            self._chosen = alike[self._age] if len(alike) > self._age else None
            self._touched = self._touched and not gone
        self._entries = [*known, *self._folders, *([None] if self._chosen is None else [])]
        self.clear()
        for entry in self._entries:
            name = NONE if entry is None else entry.name
            self.addItem(f"{name}/" if isinstance(entry, Path) else name)
        self.addItem(FOLDER)
        self.setCurrentIndex(self._entries.index(self._chosen))
        if self._chosen is not before or event is None:
            self.changed.emit()

    def _follow(self, event: Any) -> None:
        """List anew; a preview becomes a result, a result is merged anew."""
        if event.type in ("inserted", "removed", *_SHOWN):
            self._refresh(event)
        if event.type in _SHOWN and unwrapped(self._all[event.index]) is self._chosen:
            self.changed.emit()


def _alike(known: list[Any]) -> list[Any]:
    """Return the layers of pores, or of phases: what there are two of, and else what is newest."""
    phases = [layer for layer in known if phases_of(layer)]
    pores = [layer for layer in known if layer not in phases]
    kinds = [phases, pores] if known[:1] == phases[:1] else [pores, phases]
    return next((kind for kind in kinds if len(kind) > 1), kinds[0])
