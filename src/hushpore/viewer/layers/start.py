"""Links in an empty window that open a scan, a sample or a result, and the documentation.

Sample data are a foam and a core with known pores, and one real CT slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QUrl
from qtpy.QtGui import QDesktopServices
from qtpy.QtWidgets import QFileDialog

from hushpore import sample_data
from hushpore.viewer.forms.layout import link
from hushpore.viewer.layers.conversion import LayerData, layer_data

if TYPE_CHECKING:
    from qtpy.QtWidgets import QWidget

#: Targets of the links, with their texts.
LINKS = {
    "open scan": "Open scan …",
    "open slices": "Open folder of slices …",
    "open sample": "Open sample",
    "open result": "Open result …",
    "https://hushpore.readthedocs.io": "Help: hushpore.readthedocs.io",
}


def start_links() -> str:
    """Return the links as HTML, one per line."""
    return "<br>".join(link(target, text) for target, text in LINKS.items())


def follow_start_link(target: str, widget: QWidget, viewer: Any) -> None:
    """Open what a link names: after a dialog where it is to be chosen, help in the browser."""
    if target == "open sample":
        viewer.open_sample("hushpore", "foam")
        return
    if target.startswith("https:"):
        QDesktopServices.openUrl(QUrl(target))
        return
    text = LINKS[target].removesuffix(" …")
    if target == "open scan":
        path, _ = QFileDialog.getOpenFileName(widget, text)
    else:
        path = QFileDialog.getExistingDirectory(widget, text)
    if path:
        viewer.open(path, plugin="hushpore")


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
