"""Links in an empty window that open a scan, a sample or a result, or start the tour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QFileDialog

from hushpore.viewer.forms.layout import link

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
        from hushpore.viewer.tour import take_tour

        take_tour(viewer)
        return
    text = LINKS[target].removesuffix(" …")
    if target == "open scan":
        path, _ = QFileDialog.getOpenFileName(widget, text)
    else:
        path = QFileDialog.getExistingDirectory(widget, text)
    if path:
        viewer.open(path, plugin="hushpore")
