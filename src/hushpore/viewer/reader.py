"""napari's way to hushpore's readers: refuses fast, and reads large files in a thread."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from napari import current_viewer
from napari.layers import Layer
from napari.utils.notifications import show_error, show_info, show_warning

import hushpore
from hushpore.base.events import Progress
from hushpore.io import kind_of
from hushpore.viewer.layers import layer_data
from hushpore.viewer.problem import explain
from hushpore.viewer.progress import Activity
from hushpore.viewer.worker import JobWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from hushpore.base.events import Job
    from hushpore.viewer.problem import Problem

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
        found = _layers(path)
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
        # how long it takes is not known: a bar that only moves
        self._activity.total = 0

    def start(self) -> None:
        """Begin to read."""
        _Loading.running.add(self)
        self._worker.start()

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
        self._activity.close()


def _read(path: str) -> Job:
    yield Progress("reading", 0, 0, "", 0.0)
    found = _layers(path)
    # here a cancel is noticed, and what was read is dropped
    yield Progress("reading", 1, 1, "", 1.0)
    return found


def _layers(path: str) -> list[LayerData]:
    return [layer_data(volume) for volume in hushpore.read_all(path)]


def _say(problem: Problem) -> None:
    (show_warning if problem.expected else show_error)(problem.message)


def _mention_notes(found: list[LayerData]) -> None:
    """Say what the reader met; the notes also stay in the layers."""
    for _, keywords, _ in found:
        notes = keywords["metadata"]["hushpore"]["notes"]
        if notes:
            show_info(f"{keywords['name']}: " + " ".join(notes))
