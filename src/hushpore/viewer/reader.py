"""napari's way to hushpore's readers: refuses fast, and reads large files in a thread."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from napari import current_viewer
from napari.layers import Layer
from napari.utils.notifications import show_error, show_info, show_warning
from qtpy.QtCore import QTimer

import hushpore
from hushpore.io import kind_of, load
from hushpore.viewer.layers import layer_data
from hushpore.viewer.problem import explain
from hushpore.viewer.progress import Activity
from hushpore.viewer.result_files import labels_from_result
from hushpore.viewer.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.viewer.problem import Problem

#: Milliseconds between two looks at a file that is being read.
LOOK = 125

#: Bytes on disk from which a file is read in a thread.
LARGE = 16_000_000

LayerData = tuple[Any, dict[str, Any], str]

#: What a reader returns when there is nothing to add, or not yet.
NOTHING: list[Any] = [(None,)]


def get_reader(path: str | list[str]) -> Callable[[str | list[str]], list[Any]] | None:
    """Return hushpore's reader for a file or folder, or None where it is not ours.

    Looks at the beginning of a file, or at a few files of a folder. Several paths at once are not
    ours: a scan is one folder or one file.
    """
    if not isinstance(path, str) or kind_of(path) is None:
        return None
    return read_layers


def read_layers(path: str | list[str]) -> list[Any]:
    """Read a file or folder into one layer a series.

    A large one is read in a thread, with progress in the activity dock, and its layers are added
    when they are there. What cannot be read is said in a notification.
    """
    assert isinstance(path, str)
    viewer = current_viewer()
    if viewer is not None and size_of(path, LARGE) >= LARGE:
        _Loading(viewer, path).start()
        return NOTHING
    try:
        found = [_layer(volume) for volume in hushpore.read_all(path)]
    except Exception as error:
        if viewer is None:
            raise
        _say(explain(error))
        return NOTHING
    _mention_notes(found)
    return found


def size_of(path: str, enough: int) -> int:
    """Return the bytes of a file, or of the files in a folder until there are `enough`."""
    place = Path(path)
    if not place.is_dir():
        return place.stat().st_size
    total = 0
    for folder, _, names in os.walk(place):
        for name in names:
            total += (Path(folder) / name).stat().st_size
            if total >= enough:
                return total
    return total


class _Loading:
    """One file that is read in a thread."""

    #: Keeps them alive while they read: a connection to a bound method does not.
    running: ClassVar[set[_Loading]] = set()

    def __init__(self, viewer: Any, path: str) -> None:
        self._viewer = viewer
        self._worker = JobWorker(partial(_read, path), f"hushpore reads {path}")
        self._worker.returned.connect(self._returned)
        self._worker.failed.connect(self._failed)
        self._worker.cancelled.connect(self._close)
        self._activity = Activity(f"Reading {Path(path).name}", self._worker.cancel)
        self._timer = QTimer()
        self._timer.setInterval(LOOK)
        self._timer.timeout.connect(self._look)

    def start(self) -> None:
        """Begin to read."""
        _Loading.running.add(self)
        self._worker.start()
        self._timer.start()

    def _look(self) -> None:
        progress = self._worker.take().progress
        if progress is not None:
            self._activity.show(progress)

    def _returned(self, found: list[LayerData]) -> None:
        self._close()
        for data in found:
            self._viewer.add_layer(Layer.create(*data))
        _mention_notes(found)

    def _failed(self, problem: Problem) -> None:
        self._close()
        _say(problem)

    def _close(self) -> None:
        _Loading.running.discard(self)
        self._timer.stop()
        self._activity.close()


def _read(path: str) -> Job:
    volumes = yield from load(path)
    return [_layer(volume) for volume in volumes]


def _layer(volume: Volume) -> LayerData:
    """Return a volume as a layer, with the contrast that the scanner's operator chose."""
    labels = labels_from_result(volume)
    if labels is not None:
        return labels
    data, keywords, kind = layer_data(volume)
    keywords["contrast_limits"] = volume.metadata.get(
        "contrast_limits", keywords["contrast_limits"]
    )
    return data, keywords, kind


def _say(problem: Problem) -> None:
    (show_warning if problem.expected else show_error)(problem.message)


def _mention_notes(found: list[LayerData]) -> None:
    """Say what the reader met; the notes also stay in the layers."""
    for _, keywords, _ in found:
        notes = keywords["metadata"]["hushpore"]["notes"]
        if notes:
            show_info(f"{keywords['name']}: " + " ".join(notes))
