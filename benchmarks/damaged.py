"""Reading 10,000 damaged DICOM files and as many TIFF files: what comes of them.

Bits flipped, files cut, numbers and value representations replaced, bytes lost, inserted and moved,
as in ``tests/io/test_mutations.py``. A crash, or any error but a clear one, ends it.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import Any

COUNT = 10_000


def measure() -> dict[str, Any]:
    """How many files were read and refused, the longest time (s), and memory taken (MB)."""
    mutations = _mutations()
    figures = {}
    for kind in mutations.KINDS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "whole").mkdir()
            for path in mutations.originals(kind, folder / "whole"):
                mutations.is_read(path)
            before, read, longest = mutations.peak(), 0, 0.0
            for path in mutations.damaged(kind, folder, COUNT):
                start = time.perf_counter()
                read += mutations.is_read(path)
                longest = max(longest, time.perf_counter() - start)
        figures[kind] = {
            "files": COUNT,
            "read": read,
            "refused with a clear error": COUNT - read,
            "longest_seconds": round(longest, 3),
            "memory_beyond_undamaged_mb": round((mutations.peak() - before) / 1e6, 1),
        }
    return figures


def _mutations() -> Any:
    path = Path(__file__).parents[1] / "tests" / "io" / "test_mutations.py"
    spec = importlib.util.spec_from_file_location("mutations", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
