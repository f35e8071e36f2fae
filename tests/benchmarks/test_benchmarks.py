"""Every benchmark runs to its end, at a size at which its figures mean nothing.

A new benchmark: add what makes it tiny to `TINY`, by the names of its constants.
"""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from hushpore.sample_data import foam_phantom

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "results"

pytestmark = pytest.mark.usefixtures("small_network")

small_foam = partial(foam_phantom, (16, 64, 64))

#: A training step that takes a millisecond.
STEP = {"denoise_step.FEATURES": 4, "denoise_step.IMAGES": (2, 32, 32), "denoise_step.EDGE": 16,
        "denoise_step.BATCH": 1}  # fmt: skip

#: One of the simulated scans.
ONE_SCAN = {"_scans.STRUCTURES": ("rock",), "_scans.BLURS": (0.0,)}

#: Of each benchmark the constants that make it tiny; ``module.NAME`` for those of another module of
#: the benchmarks, or of hushpore. A new benchmark is added here, with constants such that it takes
#: less than a second: volumes of some 16 voxels, one round, two steps.
TINY: dict[str, dict[str, Any]] = {
    "cluster_overhead": {"SIZES": (24,), "WARMED": 16},
    "convert": {"SHAPE": (32, 64, 64), "TILE": 32, "BUDGETS": (0.25,)},
    "corners": {"ROUNDS": 1, "EDGE": 12, "IMAGE": 24, "PLATE": 16, "pores.ROCK": 24},
    "corrections": {"EDGES": (2,), "ROUNDS": 1},
    "demo": {"TIME_BUDGET": 1.0, "hushpore.cli.demo.foam_phantom": small_foam},
    "denoise_quality": {"BUDGETS": (1,), "APART": 0.3},
    "denoise_set12": {"SETTINGS": {"steps": 1}},
    "denoise_step": {"PAIRS": 1, "WARM_UP": 0, **STEP},
    "first_call": {"ROUNDS": 1, "SHAPE": (8, 16, 16)},
    "detection": {"EDGE": 60, "SEEDS": 1, "BALLS": 30, "KINDS": {"sharp": {"near": 3.1}}},
    "flow_intervals": {"RADII": (5.2,), "NOISES": (0.05,)},
    "flow_peers": {"EDGE": 40, "ROCKS": 1, "PORES": 50, "pores.ROCK": 24},
    "live_overhead": {
        **STEP,
        "PAIRS": {"training step": 2, "short step": 2},
        "DRAWN": 10,
        "TOLD": 50,
    },
    "ndimage": {"ARRAYS": 6, "EDGES": (16,), "REPEATS": 1},
    "noise_model": {"LARGE": 16, **ONE_SCAN},
    "pores": {"SIZES": (16, 20, 24), "ROCK": 24, "ROUNDS": 1},
    "pores_on_disk": {"SIZE": 48, "_tiles.TILE": 24, "BUDGET": 0.001},
    "reading": {"ROUNDS": 1, "SLICES": 2, "EDGE": 32},
    "regression": {"ROUNDS": 1, "BLOBS": 16, "NOISE": 12, "pores.ROCK": 24},
    "strokes": {"SHAPE": (16, 40, 40), "SEEDS": 1, "ROUNDS": 1, "PAINTED": 60, "STEPS": 2},
    "stokes": {
        "DUCTS": ((2, 2),),
        "TUBES": (3,),
        "SPHERES": ((0.125, 4.292),),
        "CELL": 8,
        "EDGES": (20,),
        "SMOOTHING": 1.0,
        "POROSITY": 0.4,
    },
    "transport": {"SIZES": (32,), "SHARE": 0.5, "BLUR": 1.5, "CELL": 12, "EDGE": 40},
    "threshold_grid": {
        "SHAPE": (24, 40, 40),
        "POROSITIES": (0.2,),
        "CONTRASTS": (8.0, 15.0),
        "KINDS": ("plain",),
        "RADII": (2.0, 3.0),
    },
    "threads": {
        "ROUNDS": 1,
        "ROUNDS_OF_LARGE": 1,
        "BLOBS": 16,
        "LARGE_BLOBS": 20,
        "pores.ROCK": 24,
    },
    "thresholds_auto": {"EDGE": 24, "SCANS": 2, "KINDS": {"rock": ((0.2, 0.4), (2.0, 3.0))}},
    "waiting": {**STEP, "STEPS": 1, "ROUNDS": 1},
}


#: What some need that tests may not have; see tests/conftest.py.
NEEDS = {"cluster_overhead": ("distributed",), "flow_peers": ("openpnm", "porespy")}


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="they read memory as Linux tells it")
# of imageio, which napari's own reader loads
@pytest.mark.filterwarnings("ignore:The legacy `DICOM` plugin:DeprecationWarning")
@pytest.mark.usefixtures("in_this_process", "data_beside", "workers_of_threads")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs(*NEEDS.get(name, ()))) for name in sorted(TINY)],
)
def test_it_runs_to_its_end_and_its_figures_are_those_that_are_kept(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_tiny(name, monkeypatch)
    main = import_module("benchmarks.__main__")
    found = {}
    for result, _ in main.results(import_module(f"benchmarks.{name}"), tmp_path / "out"):
        found = json.loads(json.dumps(result, allow_nan=False))["figures"]
    assert found
    kept = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))["figures"]
    assert leaves(kept) <= leaves(found)


def make_tiny(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for constant, value in TINY[name].items():
        module, _, own = constant.rpartition(".")
        inside = "" if module.startswith("hushpore.") else "benchmarks."
        target = import_module(f"{inside}{module or name}")
        monkeypatch.setattr(target, own, value)


def leaves(figures: Any) -> set[str]:
    """Return the names of single figures, without numbers and commits: those of sizes and runs."""
    if not isinstance(figures, dict):
        return set()
    found: set[str] = set()
    for name, value in figures.items():
        figure = re.sub(r" \(of \w+\)", "", name)
        found |= leaves(value) if isinstance(value, dict) else {re.sub(r"[\d.,]+", "#", figure)}
    return found


#: Benchmarks that are not run here, and why not.
NOT_HERE = {
    **dict.fromkeys(
        ("gpu", "gpu_jobs", "gpu_search", "gpu_steps", "gpu_transfers", "pores_gpu"),
        "on a pretended GPU by tests/pores/test_gpu_benchmark.py",
    ),
    "gpu_counts": "compiles kernels; what it counts, tests/pores/gpu/test_engine.py does",
    **dict.fromkeys(
        ("denoise_real", "strokes_woven", "validation"), "its scans are not in the repository"
    ),
    "denoise_correlated": "compares diameters of pores, of which a tiny scan has none",
    **dict.fromkeys(
        ("live", "positions", "window_purposes", "window_steps"),
        "opens a window in a process of its own, on a screen that is drawn on",
    ),
}  # fmt: skip


def test_every_benchmark_is_run_or_it_is_said_why_not() -> None:
    names = import_module("benchmarks.__main__").names()
    for name in names:
        assert (name in TINY) != (name in NOT_HERE), (
            f"add {name} to TINY in tests/benchmarks/test_benchmarks.py, with what makes it tiny"
        )
    assert {*TINY, *NOT_HERE} == set(names)


@pytest.mark.parametrize("name", sorted(NOT_HERE))
def test_what_is_not_run_here_can_be_imported_at_least(name: str) -> None:
    module = import_module(f"benchmarks.{name}")
    assert callable(module.measure)


@pytest.mark.usefixtures("data_beside")
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        *((f"denoise_{name}", "photos") for name in ("quality", "set12")),
        ("noise_model", "snow.tif"),
        *((name, "a screen") for name in ("live", "positions", "window_purposes", "window_steps")),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    name: str, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for module in ("_photos", "noise_model"):
        monkeypatch.setattr(import_module(f"benchmarks.{module}"), "DATA", tmp_path / "nowhere")
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "platform", "linux")
    import_module("benchmarks.__main__").main([name, "--out", str(tmp_path / "out")])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{name} was not run: ")
    assert missing in line
    assert not list((tmp_path / "out").iterdir())
