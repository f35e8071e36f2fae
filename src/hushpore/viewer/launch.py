"""Start napari with the widgets of hushpore."""

from __future__ import annotations

import json
import logging
import sys
import time
from functools import partial
from importlib.resources import files
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from hushpore._version import __version__
from hushpore.base.errors import MissingPackageError
from hushpore.base.preferences import preferred

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from hushpore.viewer.running.worker import JobWorker

_VERSIONS = "https://pypi.org/pypi/hushpore/json"

#: Docks to open, in the order of the work.
WIDGETS = ("Prepare", "Denoise", "Pores", "Results")


def open_viewer(paths: Sequence[str | os.PathLike[str]] = (), sample: bool = False) -> None:
    """Open napari on files, folders or the sample, and return when it is closed.

    `paths`: each is opened by hushpore's reader.
    Raises MissingPackageError if napari or a Qt binding is not installed.
    """
    try:
        import napari
        from qtpy.QtCore import Qt
        from qtpy.QtGui import QIcon, QPixmap
        from qtpy.QtWidgets import QApplication, QSplashScreen
    except ImportError as error:
        raise MissingPackageError(
            'The viewer needs napari and Qt. Install them with: pip install "hushpore[all]"'
        ) from error
    application = QApplication.instance() or QApplication(sys.argv[:1])
    picture = QPixmap(str(files("hushpore") / "icon.png"))
    splash = QSplashScreen(picture)
    splash.show()

    def say(text: str) -> None:
        place = Qt.AlignmentFlag.AlignHCenter | Qt.AlignmentFlag.AlignBottom
        splash.showMessage(f"{text}\n", place, Qt.GlobalColor.white)
        # it is drawn once the system has shown it, which may never be: where all is minimised
        latest = time.monotonic() + 0.5
        application.processEvents()
        while not splash.windowHandle().isExposed() and time.monotonic() < latest:
            time.sleep(0.001)
            application.processEvents()

    say("Loading napari …")
    viewer = napari.Viewer(title="hushpore")
    viewer.window.main_menu.window().setWindowIcon(QIcon(picture))  # napari has set its own
    say("Loading the widgets …")
    arrange(viewer)
    splash.close()
    if preferred("updates").value:
        look_for_update(viewer)
    for path in paths:
        viewer.open(str(path), plugin="hushpore")
    if sample:
        viewer.open_sample("hushpore", "foam")
        viewer.layers.selection.active = viewer.layers[-2]  # the image, not its hidden truth
    napari.run()


def look_for_update(viewer: Any) -> JobWorker:
    """Ask PyPI for its newest version in a thread, and say if it is newer than this one."""
    from hushpore.viewer.running.problem import notify_note
    from hushpore.viewer.running.worker import JobWorker, calling

    def say(newer: str) -> None:
        if newer:
            notify_note(viewer, f"hushpore {newer} can be installed; this is {__version__}.")

    worker = JobWorker(partial(calling, _newer_version), "Looking for an update")
    worker.returned.connect(say)
    # without a network there is nothing to say
    worker.failed.connect(lambda problem: logging.getLogger(__name__).info(problem.details))
    worker.start()
    return worker


def _newer_version() -> str:
    from urllib.request import urlopen

    from packaging.version import Version

    with urlopen(_VERSIONS, timeout=10) as answer:
        newest = json.load(answer)["info"]["version"]
    return str(newest) if Version(newest) > Version(__version__) else ""


def arrange(viewer: Any) -> None:
    """Dock the widgets as tabs, *Denoise* in front, and show a scale bar."""
    from hushpore.viewer.docks import require_canvas

    require_canvas(viewer)
    viewer.canvas.overlays.scale_bar.visible = True
    docks = {
        name: viewer.window.add_plugin_dock_widget("hushpore", name, tabify=name != WIDGETS[0])[0]
        for name in WIDGETS
    }
    docks["Denoise"].show()
    docks["Denoise"].raise_()


def show(shown: Any, viewer: Any = None) -> Any:
    """Add a volume, or the layers of a result over its volume, to a viewer, and return the viewer.

    `viewer`: by default the current one, or else a new one.
    """
    import napari
    from napari.layers import Layer

    from hushpore.viewer.docks import DOCKS, OF_JOB
    from hushpore.viewer.layers.conversion import layer_data
    from hushpore.viewer.running.task import capture

    viewer = viewer or napari.current_viewer() or napari.Viewer(title="hushpore")
    record = getattr(shown, "provenance", None)
    page = None if record is None else OF_JOB.get(record["job"])
    # the widgets of this dock make the layers of their results
    maker = DOCKS["Pores"].get(page) if page else None
    volume = getattr(shown, "volume", shown)
    kind = "labels" if volume.holds_labels else "image"
    made = layer_data(volume, kind, provenance=None if maker else record)
    # a volume that is shown already is not added again
    same = (layer for layer in viewer.layers if layer.data is made[0])
    layer = next(same, None) or viewer.add_layer(Layer.create(*made))
    if maker:
        target = capture(layer, tuple(volume.axes))
        for each in resolve_name(f"hushpore.viewer.{maker}").result_layers(shown, target):
            viewer.add_layer(Layer.create(*each))
    return viewer
