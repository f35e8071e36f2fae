"""GUI tests run without a screen, with napari's settings in a file of their own."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

_NO_SCREEN = sys.platform == "linux" and not os.environ.get("DISPLAY")
if _NO_SCREEN:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["NAPARI_CONFIG"] = str(Path(tempfile.mkdtemp()) / "settings.yaml")

pytest.importorskip("napari", reason="the viewer needs napari")
pytest.importorskip("pytestqt", reason="the GUI tests need pytest-qt")

# imports stand here, not at the top: napari reads at once where its settings lie
from napari.components import ViewerModel  # noqa: E402
from napari.layers import Layer  # noqa: E402
from vispy.scene import SceneCanvas  # noqa: E402

from hushpore import jobs  # noqa: E402
from hushpore.base.events import Progress  # noqa: E402
from hushpore.base.volume import Volume  # noqa: E402
from hushpore.device.backend import Backend  # noqa: E402
from hushpore.viewer.forms import choices  # noqa: E402
from hushpore.viewer.results.pore_layer import pore_layer  # noqa: E402
from hushpore.viewer.running import progress  # noqa: E402
from hushpore.viewer.running import worker as worker_module  # noqa: E402
from hushpore.viewer.running.worker import JobWorker  # noqa: E402

#: Milliseconds after which a test hangs: on a busy computer kernels alone take minutes to compile.
HANGING = 600_000


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gui)


@pytest.fixture
def qtbot(qtbot, monkeypatch):
    """Waits for minutes where it must: a time says here that a test hangs, not that it is slow."""

    def patient(wait):
        return lambda *given, timeout=0, **more: wait(*given, timeout=max(timeout, HANGING), **more)

    for name in ("waitUntil", "waitSignal", "waitExposed"):
        monkeypatch.setattr(qtbot, name, patient(getattr(qtbot, name)))
    return qtbot


@pytest.fixture(autouse=True)
def gl_without_a_screen(monkeypatch):
    """napari asks the graphics driver for limits; without a screen there is none to ask."""
    if os.environ.get("QT_QPA_PLATFORM") != "offscreen":
        return
    for name in ("layers.image", "layers.base", "layers.labels", "canvas"):
        module = importlib.import_module(f"napari._vispy.{name}")
        if hasattr(module, "get_gl_extensions"):
            monkeypatch.setattr(module, "get_gl_extensions", lambda: "")
        if hasattr(module, "get_max_texture_sizes"):
            monkeypatch.setattr(module, "get_max_texture_sizes", lambda: (16384, 2048))
    # under the mouse vispy finds visuals by a picture, or else by their bounds
    monkeypatch.setattr(SceneCanvas, "visual_at", SceneCanvas._visual_bounds_at)


@pytest.fixture(autouse=True)
def cpu_only(monkeypatch):
    """No test looks for a GPU: that imports PyTorch, and differs from machine to machine."""

    def cpu(device="auto"):
        return device if isinstance(device, Backend) else Backend(reason="as the test says")

    monkeypatch.setattr(choices, "choose_backend", cpu)
    monkeypatch.setattr(jobs, "choose_backend", cpu)
    choices.find_devices.cache_clear()
    yield
    choices.find_devices.cache_clear()


@pytest.fixture(autouse=True)
def begun_at_once(monkeypatch):
    """What waits until a widget is drawn needs no time where none is."""
    monkeypatch.setattr(worker_module, "UNTIL_DRAWN", 0)


@pytest.fixture(autouse=True)
def no_worker_left(qapp):
    """Every worker must be stopped when a test ends; its last signals are delivered."""
    yield
    workers = list(JobWorker.running)
    for worker in workers:
        worker.cancel()
    assert all(worker.wait(60.0) for worker in workers)
    for _ in range(3):
        qapp.processEvents()
    JobWorker.running.clear()
    JobWorker.queues.clear()


@pytest.fixture
def make_napari_viewer(make_napari_viewer, qapp):
    """Let threads end that hold a viewer before napari looks for leaks."""
    made = []

    def make(*given, **more):
        made.append(make_napari_viewer(*given, **more))
        return made[-1]

    yield make
    # a widget looks at the layer that is left when another goes, in a thread
    while made:
        made.pop().layers.clear()
    for worker in list(JobWorker.running):
        worker.cancel()
    end = time.monotonic() + HANGING / 1000
    while time.monotonic() < end and (
        # a worker leaves after its last signals, whose slots may hold the viewer
        JobWorker.running
    ):
        qapp.processEvents()
        time.sleep(0.01)


class FakeResult:
    """What every result has."""

    def __init__(self, volume):
        self.volume = volume
        self.headline, self.remarks = "It is done", ()
        self.model = None
        self.timings = {"reading": 1.0, "training": 3.0}
        self.provenance = {"job": "denoise", "notes": [], "remarks": []}


class FakeJob:
    """Stands in for an entry of the dictionary of jobs; a test scripts what it does.

    By default it waits at a gate, so that a test can look at the running widget without haste.
    """

    title = "Denoise"

    def __init__(self, kind):
        self.settings, self.backend, self.on_gpu = kind.settings, kind.backend, kind.on_gpu
        self.cpu_only, self.purpose, self.cluster = kind.cpu_only, kind.purpose, kind.cluster
        self.ends_early_in, self.gives = kind.ends_early_in, kind.gives
        self.gate = threading.Event()
        self.closed = threading.Event()
        self.calls = []
        self.script = self.wait_at_gate

    def load(self):
        return self.generate

    def generate(self, volume, settings, backend):
        self.calls.append((volume, settings, backend))
        try:
            result = yield from self.script(volume)
        finally:
            self.closed.set()
        return result

    def wait_at_gate(self, volume):
        while not self.gate.wait(0.005):
            yield Progress("training", 1, 4, "steps", 0.25)
        yield Progress("training", 4, 4, "steps", 1.0)
        return self.result(volume)

    def result(self, volume):
        return FakeResult(volume.replace(np.asarray(volume.data, np.float32)))


@pytest.fixture
def fake_job(monkeypatch):
    """Replace the denoising job, and have previews of it although it is soon over."""
    monkeypatch.setattr(progress, "MIN_REMAINING", 0.0)
    fake = FakeJob(jobs.JOBS["denoise"])
    monkeypatch.setitem(jobs.JOBS, "denoise", fake)
    yield fake
    fake.gate.set()


@pytest.fixture
def scan():
    """Values of a small stack: dark discs in a bright ground, with noise."""
    rng = np.random.default_rng(0)
    z, y, x = np.mgrid[:8, :32, :32]
    void = (y % 16 - 8) ** 2 + (x % 16 - 8) ** 2 + 0 * z < 20
    return (np.where(void, -500, 500) + rng.normal(0, 40, void.shape)).astype(np.float32)


def cubes(sides, spacing=(2.0, 0.5, 0.5), unit="um"):
    """Stand in for a result of pores that are cubes in a row, one for each side in voxels."""
    sides = np.asarray(sides)
    step, count = int(sides.max()) + 1, sides.size
    labels = np.zeros((step, step, step * count), np.int32)
    for number, side in enumerate(sides):
        labels[:side, :side, step * number : step * number + side] = number + 1
    volume = Volume(labels, spacing, unit, name="scan")
    start = step * np.arange(count)
    size = sides**3 * np.prod(spacing)
    pores = pd.DataFrame(
        {
            "label": np.arange(1, count + 1, dtype=np.int32),
            "num_voxels": sides**3,
            "volume": size,
            "equivalent_diameter": np.cbrt(6 * size / np.pi),
            "sphericity": 1 - 1 / (sides + 1),
            "centroid_z": (sides - 1) / 2 * spacing[0],
            "centroid_y": (sides - 1) / 2 * spacing[1],
            "centroid_x": (start + (sides - 1) / 2) * spacing[2],
            "is_open": sides % 2 == 0,
            "bbox_z_start": 0 * sides,
            "bbox_z_stop": sides,
            "bbox_y_start": 0 * sides,
            "bbox_y_stop": sides,
            "bbox_x_start": start,
            "bbox_x_stop": start + sides,
        }
    )
    ends = np.arange(1, count)
    throats = pd.DataFrame({"pore_1": ends, "pore_2": ends + 1, "area": ends * 0.5})
    totals = {
        "porosity": int((sides**3).sum()) / labels.size,
        "open_porosity": 0.25,
        "closed_porosity": 0.05,
        "specific_surface": 0.75,
        "sample_voxels": labels.size,
        "count": count,
        "unit": unit,
    }
    return SimpleNamespace(
        labels=labels,
        corrections=(),
        labels_volume=volume,
        volume=volume,
        pores=pores,
        pores_of_form=pores,
        throats=throats,
        porosity_profile=(labels > 0).mean(axis=(1, 2)),
        thickness={},
        transport=None,
        curve={},
        provenance={"job": "pores", "settings": {"merge_height": 0.5}, "result": totals},
        summary="Porosity, pores",
    )


@pytest.fixture
def made_of_cubes():
    """Return the maker of results whose every number is known: see `cubes`."""
    return cubes


@pytest.fixture
def viewer():
    """A viewer without its window, which is all that most tests need."""
    return ViewerModel()


@pytest.fixture
def layer(viewer):
    """The pores of four cubes, as a layer of the viewer."""
    return viewer.add_layer(Layer.create(*pore_layer(cubes([2, 3, 5, 4]), "pores")))
