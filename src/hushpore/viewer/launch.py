"""Start napari with the widgets of hushpore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.errors import MissingPackageError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

#: Widgets to open, as named in the manifest.
WIDGETS = ("Denoise", "Segment pores", "Show patches")


def open_viewer(paths: Sequence[str | os.PathLike[str]] = (), sample: bool = False) -> None:
    """Open napari on files, folders or the sample, and return when it is closed.

    `paths`: each is opened by hushpore's reader.
    Raises MissingPackageError if napari or a Qt binding is not installed.
    """
    try:
        import napari
        from qtpy import QtWidgets  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            'The viewer needs napari and Qt. Install them with: pip install "hushpore[all]"'
        ) from error
    viewer = napari.Viewer(title="hushpore")
    arrange(viewer)
    for path in paths:
        viewer.open(str(path), plugin="hushpore")
    if sample:
        viewer.open_sample("hushpore", "foam")
        viewer.layers.selection.active = viewer.layers[-2]  # the image, not its hidden truth
    napari.run()


def arrange(viewer: Any) -> None:
    """Dock the widgets as tabs, the first in front, and show a scale bar."""
    viewer.canvas.overlays.scale_bar.visible = True
    docks = [
        viewer.window.add_plugin_dock_widget("hushpore", name, tabify=number > 0)[0]
        for number, name in enumerate(WIDGETS)
    ]
    docks[0].show()
    docks[0].raise_()
