"""Denoise X-ray CT stacks without clean data and count their pores.

>>> import hushpore
>>> scan = hushpore.read("scan/")                      # doctest: +SKIP
>>> clean = hushpore.denoise(scan, time_budget=120)    # doctest: +SKIP
>>> pores = hushpore.segment_pores(clean.volume)       # doctest: +SKIP
>>> pores.porosity, len(pores.pores)                   # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushpore._version import __version__
from hushpore.base.errors import HushporeError, InputError
from hushpore.base.volume import Volume

if TYPE_CHECKING:
    from hushpore.denoising.trained_model import load_model
    from hushpore.io import read, read_all
    from hushpore.jobs import run, start
    from hushpore.jobs.functions import (
        denoise,
        measure_labels,
        measure_phases,
        sample_patches,
        segment_pores,
        train_together,
    )
    from hushpore.pores.corrections.session import Corrections, correct
    from hushpore.pores.transport.job import transport
    from hushpore.runs.compare import compare
    from hushpore.runs.convert import convert
    from hushpore.runs.plots import export_plots
    from hushpore.runs.pore_result import export

__all__ = [
    "Corrections",
    "HushporeError",
    "InputError",
    "Volume",
    "__version__",
    "compare",
    "convert",
    "correct",
    "denoise",
    "export",
    "export_plots",
    "load_model",
    "measure_labels",
    "measure_phases",
    "read",
    "read_all",
    "run",
    "sample_patches",
    "segment_pores",
    "start",
    "train_together",
    "transport",
]

# imported on first use: `import hushpore` stays quick, and napari starts with it
_LATER = {
    "Corrections": "hushpore.pores.corrections.session",
    "read": "hushpore.io",
    "read_all": "hushpore.io",
    "compare": "hushpore.runs.compare",
    "convert": "hushpore.runs.convert",
    "correct": "hushpore.pores.corrections.session",
    "denoise": "hushpore.jobs.functions",
    "export": "hushpore.runs.pore_result",
    "export_plots": "hushpore.runs.plots",
    "load_model": "hushpore.denoising.trained_model",
    "measure_labels": "hushpore.jobs.functions",
    "measure_phases": "hushpore.jobs.functions",
    "run": "hushpore.jobs",
    "sample_patches": "hushpore.jobs.functions",
    "segment_pores": "hushpore.jobs.functions",
    "start": "hushpore.jobs",
    "train_together": "hushpore.jobs.functions",
    "transport": "hushpore.pores.transport.job",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'hushpore' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return __all__
