"""Starting the other front end. Nothing of napari is imported before it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def open_viewer(paths: Sequence[str], sample: bool) -> None:
    """Open napari with image stacks, or with the sample, and wait until it is closed."""
    import_module("hushpore.viewer.launch").open_viewer(paths, sample=sample)
