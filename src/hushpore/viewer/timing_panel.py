"""Where the time went: stages as bars, the longest in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Qt
from qtpy.QtWidgets import QGridLayout, QLabel, QProgressBar, QWidget

from hushpore.viewer.fold import Fold

if TYPE_CHECKING:
    from collections.abc import Mapping


class TimingPanel(Fold):
    """A folded table of stages; hidden until there is something to show."""

    def __init__(self) -> None:
        super().__init__("Timing")
        self._table = QWidget()
        self._grid = QGridLayout(self._table)
        self._grid.setContentsMargins(0, 0, 0, 0)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(2, 1)
        self.add(self._table)
        self._rows: dict[str, tuple[QLabel, QProgressBar]] = {}
        self.hide()

    def show_stages(self, seconds: Mapping[str, float]) -> None:
        """Show seconds by stage, in their order."""
        total = sum(seconds.values())
        self.setVisible(total > 0)
        if total <= 0:
            return
        for name in [name for name in self._rows if name not in seconds]:
            self._remove(name)
        for name, spent in seconds.items():
            label, bar = self._rows.get(name) or self._add(name)
            label.setText(in_words(spent))
            bar.setValue(round(100 * spent / total))
        longest = max(seconds, key=lambda name: seconds[name])
        share = round(100 * seconds[longest] / total)
        self.set_title(f"Timing: {in_words(total)}, {share} % of it {longest}")

    def _add(self, name: str) -> tuple[QLabel, QProgressBar]:
        label, bar = QLabel(), QProgressBar()
        label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        bar.setRange(0, 100)
        bar.setFormat("%p %")
        row = self._grid.rowCount()
        for column, widget in enumerate((QLabel(name), label, bar)):
            self._grid.addWidget(widget, row, column)
        self._rows[name] = label, bar
        return label, bar

    def _remove(self, name: str) -> None:
        label, _ = self._rows.pop(name)
        row = self._grid.getItemPosition(self._grid.indexOf(label))[0]
        for column in range(3):
            item = self._grid.itemAtPosition(row, column)
            item.widget().deleteLater()
            self._grid.removeItem(item)


def in_words(seconds: float) -> str:
    """Write a time so that it can be read at a glance: 2.4 ms, 3.1 s, 12 min."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.3g} min"
