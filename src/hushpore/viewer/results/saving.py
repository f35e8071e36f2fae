"""What goes out of the window into files: results, records, timings, tables, plots."""

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

    #: The unit of a column, and its meaning.
    Column = tuple[str, str]


def ask_and_save(parent: QWidget, title: str, name: str, make: Callable[[], Any]) -> None:
    """Ask for a file and write JSON values to it in a thread; says where, or why not.

    `name`: what to call the file, without its suffix. `make`: returns the values; called in the
    thread.
    """
    path = ask_for_file(parent, title, f"{name}.json", "JSON (*.json)")
    if path is not None:
        save(path, make)


def ask_for_file(
    parent: QWidget, title: str, name: str, kinds: str, folder: Path | None = None
) -> Path | None:
    """Ask where to write a file; None where the user does not want to.

    `name`: what to call it, of whatever characters the name of a layer has. `folder`: where it may
    go; by default where the last one went.
    """
    proposed = str((folder or Path()) / file_name(name))
    chosen, _ = QFileDialog.getSaveFileName(parent, title, proposed, kinds)
    return Path(chosen) if chosen else None


def with_ending(path: Path, known: Iterable[str], ending: str) -> Path:
    """Return a path whose name ends as a kind of file does that can be written.

    `known`: the endings, without a dot. `ending`: what else is added, as to ``foam v1.2``.
    """
    is_known = path.suffix.lower().lstrip(".") in set(known)
    return path if is_known else path.with_name(f"{path.name}.{ending}")


def save(path: Path, make: Callable[[], Any]) -> JobWorker:
    """Write JSON values to a file, which is complete or not there; an existing one is replaced."""
    return save_with(path, lambda part: part.write_text(to_json(make()) + "\n", encoding="utf-8"))


def save_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV in a thread, numbers in full precision; says where, or why not."""
    path = path if path.suffix else path.with_suffix(".csv")
    save_with(path, lambda part: as_csv(table, part))


def save_measures(path: Path, table: pd.DataFrame, describe: Callable[[str], Column]) -> None:
    """Write a table as CSV, and beside it what its columns are: ``NAME columns.csv``.

    Columns keep the names that filters, scripts and other files have for them; units stand in the
    second file, so that the first one is read without a further word.

    `describe`: returns the unit of a column, and what it means.
    """
    import pandas as pd

    save_table(path, table)
    rows = [(name, *describe(str(name))) for name in table.columns]
    columns = pd.DataFrame(rows, columns=["column", "unit", "meaning"])
    save_table(path.with_name(f"{path.stem} columns{path.suffix or '.csv'}"), columns)


def save_with(path: Path, write: Callable[[Path], object]) -> JobWorker:
    """Write a file in a thread, complete or not at all; says where, or why not.

    `path`: the file; an existing one is replaced. `write`: writes to the path that it is given;
    called in the thread.
    """
    worker = JobWorker(partial(calling, _write, path, write), f"hushpore writes {path.name}")
    worker.returned.connect(lambda path: show_info(f"Written: {path}"))
    worker.failed.connect(lambda problem: show_warning(problem.message))
    worker.start()
    return worker


def to_json(value: Any) -> str:
    """Return JSON as a person reads it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _write(path: Path, write: Callable[[Path], object]) -> Path:
    with new_file(path, overwrite=True) as part:
        write(part)
    return path


#: What the button, the link and the dialog are called.
SAVE_RESULT = "Save result …"


def ask_and_save_result(parent: QWidget, layer: Any) -> JobWorker | None:
    """Ask for a place and write a layer there in a thread; says where, or why not.

    What was measured goes into a folder: labels, tables, record and report; an image alone into a
    file with its record beside it. None where the user does not want to, or, as is said, nothing
    of the layer can be saved.
    """
    # widgets open without it: pandas and all of the pore engine take 0.3 s
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
    """Write a layer in a thread, complete or not at all; says where, or why not."""
    more = f". {saved.note}" if saved.note else ""
    worker = JobWorker(partial(calling, saved.write, path), f"hushpore writes {path.name}")
    worker.returned.connect(lambda written: show_info(f"Written: {written}{more}"))
    worker.failed.connect(lambda problem: show_warning(problem.message))
    worker.start()
    return worker
