"""Make hushpore the reader of scans in napari's preferences, where the user asks for it."""

from __future__ import annotations

from napari.settings import get_settings
from napari.utils.notifications import show_info

from hushpore.io.registry import READERS

#: Patterns as napari's preferences have them: every folder, and DICOM files. napari's own dialog
#: remembers a folder by its full name alone, and its preferences take no pattern for all of them.
PATTERNS = ("*/", *READERS["dicom"].extensions)


def prefer_hushpore() -> None:
    """Open folders and DICOM files with hushpore from now on, without napari's question."""
    plugins = get_settings().plugins
    plugins.extension2reader = {
        **plugins.extension2reader,
        **dict.fromkeys(PATTERNS, "hushpore"),
    }
    show_info(
        "Folders and DICOM files are opened with hushpore from now on. "
        "Preferences > Plugins lists this choice, and there it can be taken back."
    )
