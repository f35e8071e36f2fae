"""Links in an empty window that open a scan, a sample or a result, or start the tour.

napari's own tour of the window shows the widgets. Sample data are a foam and a core with known
pores, and one real CT slice.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from napari import current_viewer
from qtpy.QtWidgets import QFileDialog

from hushpore import sample_data
from hushpore.viewer.forms.layout import dock_of, link
from hushpore.viewer.layers.conversion import LayerData, layer_data, unwrapped

if TYPE_CHECKING:
    from qtpy.QtWidgets import QWidget

#: Targets of the links, with their texts.
LINKS = {
    "open scan": "Open scan …",
    "open slices": "Open folder of slices …",
    "open sample": "Open sample",
    "open result": "Open result …",
    "take tour": "Take a tour",
}


def start_links() -> str:
    """Return the links as HTML, one per line."""
    return "<br>".join(link(target, text) for target, text in LINKS.items())


def follow_start_link(target: str, widget: QWidget, viewer: Any) -> None:
    """Open what a link names, after a dialog where a file or folder is to be chosen."""
    if target == "open sample":
        viewer.open_sample("hushpore", "foam")
        return
    if target == "take tour":
        # imported late, because few windows need it
        from hushpore.viewer.layers.start import take_tour

        take_tour(viewer)
        return
    text = LINKS[target].removesuffix(" …")
    if target == "open scan":
        path, _ = QFileDialog.getOpenFileName(widget, text)
    else:
        path = QFileDialog.getExistingDirectory(widget, text)
    if path:
        viewer.open(path, plugin="hushpore")


#: Widgets to open, as named in the manifest.
WIDGETS = DENOISE, PORES, PATCHES = "Denoise", "Segment pores", "Show patches"

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


def foam() -> list[LayerData]:
    """Return a noisy CT of foam, and its true pores as a hidden layer."""
    return _with_truth(sample_data.foam_phantom())


def core() -> list[LayerData]:
    """Return a CT of a concrete core in air, and its true pores as a hidden layer."""
    return _with_truth(sample_data.core_phantom())


def _with_truth(phantom: sample_data.Phantom) -> list[LayerData]:
    truth = phantom.volume.replace(phantom.void.astype("uint8"), name="true pores")
    return [layer_data(phantom.volume), layer_data(truth, "labels", visible=False, opacity=0.5)]


def slice_of_ct() -> list[LayerData]:
    """Return one real CT slice that comes with pydicom."""
    return [layer_data(sample_data.ct_slice())]
