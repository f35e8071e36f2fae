"""The guided tour of the widgets, shown by napari's own tour of the window."""

from __future__ import annotations

from functools import partial
from typing import Any

from napari import current_viewer

from hushpore.viewer.forms.layout import dock_of
from hushpore.viewer.launch import WIDGETS
from hushpore.viewer.layers.conversion import unwrapped

DENOISE, PORES, PATCHES = WIDGETS

#: Widget of each step, title and text.
STEPS = (
    (DENOISE, "Open a scan", "Drop a file or folder on the window. The line below Layer shows "
     "shape, voxel size, noise, and problems with the file."),
    (DENOISE, "Denoise", "Run trains on this scan; no clean reference is needed. The slice clears "
     "while you watch, and Finish now ends the training. Skip this step if there is little noise."),
    (PORES, "Check the threshold", "Drag the line in the histogram. Show void paints the void on "
     "the slice."),
    (PORES, "Segment pores", "Run gives porosity, number of pores and median diameter. A link "
     "below the result opens table and plots; Save result writes all files."),
    (PATCHES, "Inspect the training", "Shows where training patches are and which have a high "
     "loss. You need it only to check or tune a training."),
)  # fmt: skip


def take_tour(viewer: Any = None) -> None:
    """Start the tour, and open the widgets it needs.

    `viewer`: by default the one in front.
    """
    # napari has these since 0.9.0, in private modules
    from napari._qt._qapp_model.qactions._help import _start_viewer_tour
    from napari._qt.widgets.qt_viewer_tour import GuidedTour, TourAnchor, TourStep

    window = unwrapped(viewer or current_viewer()).window
    steps = []
    docks = {name: _dock(window, name) for name in WIDGETS}
    for name, title, text in STEPS:
        dock = docks[name]
        steps.append(
            TourStep(lambda dock=dock: dock, title, text, TourAnchor.LEFT,
                     ensure_visible=partial(_bring_to_front, dock))
        )  # fmt: skip
    _start_viewer_tour(window, tour=GuidedTour(steps, window._qt_window))


def _dock(window: Any, name: str) -> Any:
    return dock_of(window.add_plugin_dock_widget("hushpore", name, tabify=True)[0])


def _bring_to_front(dock: Any) -> bool:
    """Show a dock in front of its tabs; return whether it was not."""
    if dock.isVisible() and not dock.visibleRegion().isEmpty():
        return False
    dock.show()
    dock.raise_()
    return True
