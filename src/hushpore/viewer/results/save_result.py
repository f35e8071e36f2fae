"""'Save result': a layer with tables, record and a picture, in a place that is asked for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_info, show_warning

from hushpore.base.errors import InputError
from hushpore.viewer.results.saving import ask_for_file
from hushpore.viewer.running.worker import JobWorker, calling

if TYPE_CHECKING:
    from pathlib import Path

    from qtpy.QtWidgets import QWidget

    from hushpore.viewer.layers.saved import SavedLayer

#: What the button, the link and the dialog are called.
SAVE_RESULT = "Save result …"


def ask_and_save_result(parent: QWidget, layer: Any) -> JobWorker | None:
    """Ask for a place and write a layer there in a thread; says where, or why not.

    What was measured goes into a folder: labels, tables, record and report; an image alone into a
    file with its record beside it. None where the user does not want to, or, as is said, nothing
    of the layer can be saved.
    """
    # widgets open without it: pandas and all of the pore engine take 0.3 s
    from hushpore.viewer.layers.saved import SavedLayer

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
