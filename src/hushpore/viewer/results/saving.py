"""Saving from the window: results, records, timings, tables, plots."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_info, show_warning
from qtpy.QtWidgets import QFileDialog, QWidget

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError
from hushpore.base.safe_text import as_csv, file_name
from hushpore.viewer.running.worker import JobWorker, calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pandas as pd
    from qtpy.QtWidgets import QWidget

    from hushpore.viewer.layers.layer_files import SavedLayer

    #: Unit and meaning of a column.
    Column = tuple[str, str]


def ask_and_save(parent: QWidget, title: str, name: str, make: Callable[[], Any]) -> None:
    """Ask for a file and write JSON values to it in a thread; notifies of the outcome.

    `name`: proposed name without suffix. `make`: returns the values; called in the thread.
    """
    path = ask_for_file(parent, title, f"{name}.json", "JSON (*.json)")
    if path is not None:
        save(path, make)


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


def save(path: Path, make: Callable[[], Any]) -> JobWorker:
    """Write JSON values to a file, atomically; an existing file is replaced."""
    return save_with(path, lambda part: part.write_text(to_json(make()) + "\n", encoding="utf-8"))


def save_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV in a thread, in full precision; notifies of the outcome."""
    path = path if path.suffix else path.with_suffix(".csv")
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
    worker = JobWorker(partial(calling, _write, path, write), f"Saving {path.name}")
    worker.returned.connect(lambda path: show_info(f"Saved: {path}"))
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
    return None if path is None else save_result(saved, path)


def save_result(saved: SavedLayer, path: Path) -> JobWorker:
    """Save a layer atomically in a thread; notifies of the outcome."""
    more = f". {saved.note}" if saved.note else ""
    worker = JobWorker(partial(calling, saved.write, path), f"Saving {path.name}")
    worker.returned.connect(lambda written: show_info(f"Saved: {written}{more}"))
    worker.failed.connect(lambda problem: show_warning(problem.message))
    worker.start()
    return worker
