"""What stands in for the surroundings of benchmarks: processes, photographs, scans, a screen."""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]

if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["NAPARI_CONFIG"] = str(Path(tempfile.mkdtemp()) / "settings.yaml")


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Benchmarks are imported as they are by ``python -m benchmarks``."""
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a Python that a benchmark starts run here: neither an import of PyTorch nor a screen."""
    started = subprocess.run

    def end(status: int) -> None:
        raise SystemExit(status)

    def run(command: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
        if sys.executable not in command:
            return started(command, **more)
        # what comes before gives it a screen
        words = list(map(str, command))[list(command).index(sys.executable) + 1 :]
        while words[0] == "-W":
            del words[:2]
        kind, code, *arguments = words
        said = io.StringIO()
        status = 0
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
            patch.setattr(sys, "argv", [kind, *arguments])
            patch.setattr(os, "_exit", end)
            try:
                if kind == "-m":
                    module = importlib.import_module(code)
                    exec(_main_block(Path(str(module.__file__))), vars(module))
                else:
                    exec(compile(code, "<code of a process>", "exec"), {"__name__": "__main__"})
            except SystemExit:
                pass
            except Exception:
                if more.get("check"):
                    raise
                status = 1
        return subprocess.CompletedProcess(command, status, said.getvalue(), "")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.fixture
def workers_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers be threads of this process, which start at once."""

    @contextlib.contextmanager
    def local(count: int, memory: int) -> Iterator[Any]:
        distributed = importlib.import_module("distributed")
        place = {"processes": False, "dashboard_address": "127.0.0.1:0", "memory_limit": memory}
        with (
            distributed.LocalCluster(n_workers=count, threads_per_worker=1, **place) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client

    monkeypatch.setattr("hushpore.cluster.connection._local", local)


def _main_block(path: Path) -> Any:
    """Return what a module does when it is run, to be done in one that a test has changed."""
    *_, last = ast.parse(path.read_text(encoding="utf-8")).body
    assert isinstance(last, ast.If), f"{path.name} ends with no `if __name__ == ...`"
    return compile(ast.Module(last.body, []), str(path), "exec")


@pytest.fixture
def data_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photographs and a scan in the place of those that no copy of this project has."""
    from skimage.io import imsave

    from benchmarks import _photos, _scans

    rng = np.random.default_rng(0)
    folder = tmp_path / "data"
    for name, count in (("photos", 2), ("photos_train", 2)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            values = rng.integers(60, 200, (64, 64))
            imsave(
                folder / name / f"{number:02}.png", values.astype(np.uint8), check_contrast=False
            )
    (folder / "ct").mkdir()
    snow = rng.normal(100, 8, (8, 64, 64)).astype(np.uint8)
    tifffile = importlib.import_module("tifffile")
    tifffile.imwrite(folder / "ct" / "snow.tif", snow)
    monkeypatch.setattr(_photos, "DATA", folder)
    monkeypatch.setattr(importlib.import_module("benchmarks.noise_model"), "DATA", folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name, value in {"SHAPE": (8, 64, 64), "_ANGLES": 24, "KEPT": tmp_path / "scans"}.items():
        monkeypatch.setattr(_scans, name, value)
    _scans.sinogram_of.cache_clear()
    _scans._back_projector.cache_clear()
    return folder
