"""The panel with the record of the active layer, and saving of results, tables and plots."""

from __future__ import annotations

import html
import json
import re
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_info, show_warning
from qtpy.QtCore import QEvent, Qt
from qtpy.QtWidgets import (
    QApplication,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from hushpore._version import __version__
from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError
from hushpore.base.formatting import file_name
from hushpore.base.provenance import environment
from hushpore.device.backend import choose_backend
from hushpore.jobs import JOBS
from hushpore.pores.tables.totals import total_of
from hushpore.viewer.forms.choices import is_preview
from hushpore.viewer.forms.layout import fill, plain_label
from hushpore.viewer.layers.conversion import METADATA_KEY, unwrapped
from hushpore.viewer.running.worker import JobWorker, calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

    #: Unit and meaning of a column.
    Column = tuple[str, str]


def ask_and_save(parent: QWidget, title: str, name: str, make: Callable[[], Any]) -> None:
    """Ask for a file and write JSON values to it in a thread; notifies of the outcome.

    `name`: proposed name without suffix. `make`: returns the values; called in the thread.
    """
    path = ask_for_file(parent, title, f"{name}.json", "JSON (*.json)")
    if path is not None:
        save_with(path, lambda part: part.write_text(to_json(make()) + "\n", encoding="utf-8"))


def ask_for_file(
    parent: QWidget, title: str, name: str, kinds: str, folder: Path | None = None
) -> Path | None:
    """Ask where to save a file; None if the user cancels.

    `name`: proposed name; any characters. `folder`: by default the last one used.
    """
    proposed = str((folder or Path()) / file_name(name))
    chosen, _ = QFileDialog.getSaveFileName(parent, title, proposed, kinds)
    return Path(chosen) if chosen else None


def with_ending(path: Path, known: Iterable[str], ending: str) -> Path:
    """Return a path with a known ending, adding one if needed.

    `known`: the endings, without a dot. `ending`: added to a path without a known ending, for
    example ``foam v1.2``.
    """
    is_known = path.suffix.lower().lstrip(".") in set(known)
    return path if is_known else path.with_name(f"{path.name}.{ending}")


def save_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV in a thread, in full precision; notifies of the outcome."""
    path = path if path.suffix else path.with_suffix(".csv")
    # imported late, because widgets open before the formats of images
    from hushpore.io.results import as_csv

    save_with(path, lambda part: as_csv(table, part))


def save_measures(path: Path, table: pd.DataFrame, describe: Callable[[str], Column]) -> None:
    """Write a table as CSV, and a description of its columns beside it: ``NAME columns.csv``.

    Columns keep the names used in filters, scripts and other files. Units are in the second file,
    so that the first file needs no processing before it is read.

    `describe`: returns the unit and the meaning of a column.
    """
    import pandas as pd

    save_table(path, table)
    rows = [(name, *describe(str(name))) for name in table.columns]
    columns = pd.DataFrame(rows, columns=["column", "unit", "meaning"])
    save_table(path.with_name(f"{path.stem} columns{path.suffix or '.csv'}"), columns)


def save_with(path: Path, write: Callable[[Path], object]) -> JobWorker:
    """Write a file atomically in a thread; notifies of the outcome.

    `path`: the file, replaced if it exists. `write`: writes to the given path; called in the
    thread.
    """
    return save_in_thread(path, partial(_write, path, write))


def save_in_thread(path: Path, save: Callable[[], object], more: str = "") -> JobWorker:
    """Save something in a thread; notifies of the outcome.

    `save`: returns the path of what was saved. `more`: text after it.
    """
    worker = JobWorker(partial(calling, save), f"Saving {path.name}")
    worker.returned.connect(lambda saved: show_info(f"Saved: {saved}{more}"))
    worker.failed.connect(lambda problem: show_warning(problem.message))
    worker.start()
    return worker


def to_json(value: Any) -> str:
    """Return indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _write(path: Path, write: Callable[[Path], object]) -> Path:
    with new_file(path, overwrite=True) as part:
        write(part)
    return path


#: Text of the button and the link.
SAVE_RESULT = "Save result …"


def ask_and_save_result(parent: QWidget, layer: Any) -> JobWorker | None:
    """Ask for a path and save a layer in a thread; notifies of the outcome.

    Results are saved as a folder with labels, tables, record and report; an image as a file with
    its record beside it. Returns None if the user cancels or the layer cannot be saved.
    """
    # imported late: pandas and the pore engine take 0.3 s
    from hushpore.viewer.layers.layer_files import SavedLayer

    try:
        saved = SavedLayer.of(layer)
    except InputError as error:
        show_warning(str(error))
        return None
    kinds = "Result folder (*)" if saved.is_folder else "OME-TIFF (*.tif);;OME-Zarr (*.zarr)"
    proposed = saved.proposed
    path = ask_for_file(parent, "Save result", proposed.name, kinds, proposed.parent)
    if path is None:
        return None
    return save_in_thread(path, partial(saved.write, path), f". {saved.note}" if saved.note else "")


#: Parts that are unfolded at first.
_OPEN = ("result", "settings", "notes", "input")

#: Titles for parts of a record with JSON names that are hard to understand.
_TITLES = {
    "hushpore": "hushpore version",
    "blake2b": "fingerprint",
    "timings": "seconds by stage",
    "platform": "operating system",
}


#: Parts of a record that hold names of files, and paths in its texts.
_NAMES = ("name", "source", "path", "stamp", "metadata")
#: A path ends with the ending of a file in the same sentence, also after blanks, or else its word.
_PATH = re.compile(r"\S*[/\\](?:(?:(?![.:;,] )[^\n\"<>|*?])*?(?:\.[A-Za-z]\w{1,4})+\b|\S+)")


class RecordWidget(QWidget):
    """Shows the record of the active layer: settings, input, device, versions, times and notes."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self._layers = napari_viewer.layers
        self._title = QLabel(textFormat=Qt.TextFormat.RichText, wordWrap=True)
        self._why = plain_label()
        # a text too long for the dock is shown in full in its tooltip
        self.tree = QTreeWidget(
            columnCount=2, headerHidden=True, accessibleName="Record of the layer",
            horizontalScrollBarPolicy=Qt.ScrollBarPolicy.ScrollBarAlwaysOff,
        )  # fmt: skip
        self._copy = QPushButton(
            "Copy", toolTip="Copy the record as JSON.", clicked=self._to_clipboard
        )
        self._save = QPushButton(
            "Save …", toolTip="Save the record as JSON.", clicked=self._to_file
        )
        self._report = QPushButton(
            "Copy details for a report",
            toolTip="Copy versions, device and record as JSON, without names of files and folders.",
            clicked=self._copy_report,
        )
        buttons = fill(QHBoxLayout(), self._copy, self._save)
        column = fill(
            QVBoxLayout(self), self._title, self._why, self.tree, buttons, self._report, margin=6,
            wide=self.tree,
        )  # fmt: skip
        column.addStretch(0)
        self.tree.viewport().installEventFilter(self)
        self._layers.selection.events.active.connect(self._show)
        self._layers.events.connect(self._follow)
        self._show()

    def provenance(self) -> dict[str, Any]:
        """Return the displayed record as JSON values; empty if there is none."""
        return {} if self._layer is None else provenance_of(self._layer)

    def _follow(self, event: Any) -> None:
        # a preview can become a result without leaving the list
        is_shown = event.type in ("metadata", "name")
        if is_shown and unwrapped(self._layers[event.index]) is unwrapped(self._layer):
            self._show()

    def _show(self, event: Any = None) -> None:
        self._layer = self._layers.selection.active
        provenance = self.provenance()
        self._title.setText("" if self._layer is None else _heading(self._layer.name, provenance))
        self._why.setText("" if provenance else _why_no_record(self._layer))
        self._why.setVisible(not provenance)
        self.tree.clear()
        job = str(provenance.get("job"))
        for title, value in provenance.items():
            item = _item(title, _in_words(job, title, value))
            self.tree.addTopLevelItem(item)
            item.setExpanded(title in _OPEN)
        self._share_width()
        self.tree.setVisible(bool(provenance))
        for button in (self._copy, self._save):
            button.setEnabled(bool(provenance))

    def eventFilter(self, watched: Any, event: Any) -> bool:  # noqa: N802
        """Divide the width again when it has changed."""
        if event.type() == QEvent.Type.Resize:
            self._share_width()
        return False

    def _share_width(self) -> None:
        """Give the names at most half of the width, so that the values can be read."""
        self.tree.resizeColumnToContents(0)
        most = self.tree.viewport().width() // 2
        if self.tree.columnWidth(0) > most:
            self.tree.setColumnWidth(0, most)

    def _to_clipboard(self) -> None:
        QApplication.clipboard().setText(to_json(self.provenance()))

    def _copy_report(self) -> JobWorker:
        """Copy details once the device is known; looking for it imports PyTorch."""
        worker = JobWorker(
            partial(calling, _for_report, self.provenance()), "Looking at the device"
        )
        worker.returned.connect(lambda text: QApplication.clipboard().setText(text))
        worker.returned.connect(lambda _: show_info("The details are on the clipboard."))
        worker.start()
        return worker

    def _to_file(self) -> None:
        provenance = self.provenance()
        ask_and_save(self, "Save record", f"{self._layer.name} record", lambda: provenance)


def _for_report(record: dict[str, Any]) -> str:
    backend = choose_backend()
    here = {"hushpore": __version__, **environment(), "device": backend.description}
    known = {**here, "details": backend.details(), "record": record}
    names = sorted(filter(None, map(re.escape, _names_in(record))), key=len, reverse=True)
    named = re.compile(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)" if names else "(?!)")
    return to_json(_without_names(known, named))


def _names_in(value: Any) -> set[str]:
    """Return what the parts of a record say that hold names: paths, files, files without ending."""
    if not isinstance(value, dict):
        return set().union(*map(_names_in, value)) if isinstance(value, list | tuple) else set()
    held = {str(value[key]) for key in _NAMES[:3] if isinstance(value.get(key), str)}
    paths = [PureWindowsPath(each) for each in held]  # divides at both kinds of slash
    held |= {path.name for path in paths} | {path.stem for path in paths}
    return held.union(*map(_names_in, value.values()))


def _without_names(value: Any, named: re.Pattern[str]) -> Any:
    """Return a record without what names a file or a folder; its texts also without `named`."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in _NAMES}
        return {key: _without_names(each, named) for key, each in kept.items()}
    if isinstance(value, list | tuple):
        return [_without_names(each, named) for each in value]
    if not isinstance(value, str) or value.isidentifier():  # a word of a setting
        return value
    return _PATH.sub("…", named.sub("…", value))


def provenance_of(layer: Any) -> dict[str, Any]:
    """Return the record of a layer, from the job that made it or from its file.

    Empty for layers of other programs and for previews.
    """
    known = layer.metadata.get(METADATA_KEY)
    if not isinstance(known, dict) or is_preview(layer):
        return {}
    made = known.get("provenance")
    if isinstance(made, dict):
        # the most important parts first
        first = {name: made[name] for name in ("job", "date", "result", "settings") if name in made}
        return {**first, **made}
    return {name: known[name] for name in ("source", "notes", "metadata") if known.get(name)}


def _heading(name: str, provenance: Mapping[str, Any]) -> str:
    text = f"<b>{html.escape(name)}</b>"
    job = provenance.get("job")
    if isinstance(job, str) and job in JOBS:
        return f"{text}: result of <b>{html.escape(JOBS[job].title)}</b>"
    return f"{text}: read from a file" if provenance else text


def _why_no_record(layer: Any) -> str:
    if layer is None:
        return "Select one layer in the list to see its record."
    if is_preview(layer):
        return "This is a preview; the record is made with the result."
    return "This layer was not made by hushpore and has no record."


def _in_words(job: str, title: str, value: Any) -> Any:
    """Return a part of a record with labels and units as in the window, if available."""
    match title:
        case "job":
            return JOBS[job].title if job in JOBS else value
        case "date":
            # 2026-01-02T03:04:05+00:00
            return str(value).replace("T", " ")
        case "settings":
            return _as_in_the_form(job, value)
        case "result" if isinstance(value, dict):
            return _as_in_tables(value)
    return value


def _as_in_tables(result: dict[str, Any]) -> dict[str, Any]:
    """Rename totals as in the report and the comparison, and add their units."""
    shown, unit = {}, str(result.get("unit", "pixel"))
    for name, value in result.items():
        total = total_of(name)
        if total is None or not isinstance(value, int | float):
            shown[name] = f"{value:,}" if type(value) is int else value
        else:
            shown[total.phrase] = total.in_words(value, unit)
    return shown


def _as_in_the_form(job: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Rename settings as in the form of the job, and add their units."""
    if job not in JOBS:
        return settings
    options = {opt.name: opt for opt in JOBS[job].settings.options()}
    shown = {}
    for name, value in settings.items():
        opt = options.get(name)
        if opt is None:
            shown[name] = value
        elif isinstance(value, str):
            shown[opt.label.lower()] = opt.in_words(value)
        else:
            unit = f" {opt.unit}" if opt.unit and value is not None else ""
            shown[opt.label.lower()] = f"{_words(value)}{unit}" if unit else value
    return shown


def _item(title: str, value: Any) -> QTreeWidgetItem:
    item = QTreeWidgetItem([_TITLES.get(title, title.replace("_", " ")), ""])
    item.setToolTip(0, item.text(0))
    if isinstance(value, list | tuple) and any(
        isinstance(each, str | dict | list) for each in value
    ):
        value = {str(number): each for number, each in enumerate(value, 1)}
    if isinstance(value, dict) and value:
        item.addChildren([_item(name, part) for name, part in value.items()])
    else:
        item.setText(1, _words(value))
        item.setToolTip(1, _words(value))
    return item


def _words(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case list() | tuple():
            return " x ".join(_words(part) for part in value) or "none"
        case dict():
            return "none"
    return str(value)
