"""What benchmarks with a window share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def own_settings() -> None:
    """Keep what napari and its widgets save apart from what whoever measures has saved.

    Must be called before napari is imported.
    """
    folder = Path(tempfile.mkdtemp())
    os.environ["NAPARI_CONFIG"] = str(folder / "settings.yaml")
    os.environ["HUSHPORE_CONFIG"] = str(folder / "hushpore")
