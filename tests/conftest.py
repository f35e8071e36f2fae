"""Fixtures for all tests."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hushpore.base.volume import Volume

#: What some tests need beside what `make test` installs, and how to get it.
NEEDS = {
    "asan": "the address sanitizer of g++",
    "cuda": "a CUDA device",
    "cupy": "CuPy: pip install 'hushpore[cuda12]' or 'hushpore[cuda13]'",
    "g++": "the compiler g++",
    "itk": "ITK's Scanco module: pip install itk-ioscanco",
    "nvrtc": "NVRTC: pip install nvidia-cuda-nvrtc",
    "ome_zarr": "ome-zarr: pip install ome-zarr",
    "openpnm": "OpenPNM: pip install --group peers",
    "porespy": "PoreSpy: pip install --group bench",
    "SimpleITK": "SimpleITK: pip install --group peers",
    "vtk": "VTK: pip install --group peers",
}


@functools.cache
def is_there(name: str) -> bool:
    """Whether something of that list is there."""
    if name == "cuda":
        import torch

        return torch.cuda.is_available()
    if name == "g++":
        return shutil.which(name) is not None
    if name == "asan":
        command = ["g++", "-print-file-name=libasan.so"]
        return is_there("g++") and os.path.isabs(subprocess.check_output(command, text=True))
    if name == "nvrtc":
        spec = importlib.util.find_spec("nvidia")
        folders = (spec and spec.submodule_search_locations) or []
        return any(list(Path(each).glob("cu*/lib/libnvrtc.so.[0-9]*")) for each in folders)
    return importlib.util.find_spec(name) is not None


def pytest_configure(config: pytest.Config) -> None:
    """Have processes share the cores and each compiled kernel, and a crash end the run."""
    if getattr(config.option, "numprocesses", None):
        # each would take all cores, and wait for them in a busy loop; said before they start, as
        # plugins import NumPy, which asks but once
        os.environ["OMP_NUM_THREADS"] = "1"
        # a process that crashes ends the run: with another in its place the files that it had
        # finished are given out again, empty, and the run hangs (pytest-xdist 3.8, issue 1378)
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = "0"
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    from filelock import FileLock  # of PyTorch
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    folder = Path(tempfile.gettempdir()) / "hushpore-kernels"
    folder.mkdir(exist_ok=True)
    compile_it = Dispatcher.compile

    def compile_alone(self: Dispatcher, signature: object) -> object:
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}"
        if not name.startswith("hushpore."):
            return compile_it(self, signature)
        # in this order in every thread: what compiles a kernel compiles those that it calls
        with global_compiler_lock, FileLock(folder / name, is_singleton=True, thread_local=False):
            return compile_it(self, signature)

    Dispatcher.compile = compile_alone


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what takes minutes to `make test-long`, and to who asks for it by `-m`."""
    if "long" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_collection_finish() -> None:
    """Leave what collecting made out of later garbage collections.

    napari collects garbage whenever a layer is removed: the more objects, the longer that takes.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs something that is not there."""
    names = ["cuda"] if item.get_closest_marker("gpu") else []
    names += [name for mark in item.iter_markers("needs") for name in mark.args]
    names += ["g++"] if "emulated" in getattr(item, "fixturenames", ()) else []
    for name in names:
        if not is_there(name):
            pytest.skip(f"needs {NEEDS[name]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were skipped for each reason, not where each is."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    if reasons:
        terminalreporter.section(f"{len(reports)} skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:4}  {reason}")


def load_beside(path: Path) -> Any:
    """Import a file of the tests that is none of them."""
    spec = importlib.util.spec_from_file_location(f"beside_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look there
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pretended() -> Any:
    """A CPU that has all that a GPU has, and counts what is used of it."""
    return load_beside(Path(__file__).parent / "cuda_shim" / "pretended.py")


@pytest.fixture
def used(pretended: Any) -> Any:
    """What jobs on the pretended GPU have used of each optimisation."""
    return pretended.Used()


@pytest.fixture
def pretended_gpu(pretended: Any, used: Any) -> Callable[..., Any]:
    """Make a pretended GPU with some switches; what is preferred holds where none are given."""
    from hushpore.device.switches import Switches

    def make(**switches: str) -> Any:
        chosen = Switches(**switches) if switches else None
        return pretended.PretendedGpu(switches=chosen, used=used)

    return make


@pytest.fixture(scope="session")
def cuda_shim() -> Any:
    """What compiles CUDA kernels for the CPU, and runs them there."""
    return load_beside(Path(__file__).parent / "cuda_shim" / "shim.py")


@pytest.fixture(scope="session")
def strict() -> Any:
    """Arrays and captures that refuse what would make the host wait for a GPU."""
    return load_beside(Path(__file__).parent / "cuda_shim" / "strict.py")


# how long an example takes says what else runs; the examples are the same in every run, so that a
# change is judged by what it changes, and new ones are looked for with --hypothesis-profile=search
any_speed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", any_speed, derandomize=True)
settings.register_profile("search", any_speed)
settings.load_profile("same")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Files to read: their README says where each comes from, and what is true of it."""
    return Path(__file__).parent / "data"


@pytest.fixture(scope="session", autouse=True)
def preferences_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nor does what several tests share, which is made before what is of one test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUSHPORE_CONFIG", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True)
def preferences_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes the preferences of whoever runs it."""
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "config" / "hushpore"))
    for name in ("DEVICE", "MEMORY", "TEMPORARY_FOLDER", "SWITCHES"):
        monkeypatch.delenv(f"HUSHPORE_{name}", raising=False)


@pytest.fixture(scope="module")
def start_workers() -> Iterator[Callable[[int], Any]]:
    """Start clusters whose workers are threads of this process, reached by this machine alone."""
    distributed = pytest.importorskip("distributed")
    import dask
    import torch

    place = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tcp://"}
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        # a computer that sleeps for minutes within a test still has its workers when it wakes
        stack.enter_context(dask.config.set({"distributed.scheduler.worker-ttl": None}))

        def start(count: int) -> Any:
            work = {"n_workers": count, "threads_per_worker": 1, "processes": False}
            cluster = distributed.LocalCluster(**work, **place)
            return stack.enter_context(cluster)

        yield start
    # two tasks at a time in one process take each other's number of threads for the one before
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def address(start_workers: Callable[[int], Any]) -> str:
    """A scheduler with one worker, in this process."""
    return str(start_workers(1).scheduler_address)


@pytest.fixture(scope="session")
def smooth_and_rough() -> Callable[..., np.ndarray]:
    """Make noise that is smooth on the left and rough on the right, of one mean grey value."""
    from scipy.ndimage import gaussian_filter

    def make(shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng(seed)
        rough = rng.normal(0, 30, shape)
        smooth = gaussian_filter(rng.normal(size=shape), 2.5)
        is_left = np.indices(shape)[2] < shape[2] // 2
        grey = 1000 + np.where(is_left, 30 * smooth / smooth.std(), rough)
        return np.rint(grey).astype(np.uint16)

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have networks of few channels trained, where what they learn does not matter.

    Nor does how well the noise is known: it is looked at in few places.
    """
    from hushpore.denoising import automatic
    from hushpore.scan import flat_blocks

    monkeypatch.setattr(automatic, "FEATURES", dict.fromkeys(automatic.FEATURES, 4))
    monkeypatch.setattr(flat_blocks, "_DRAWN", 1000)
    monkeypatch.setattr(flat_blocks, "_TRIES", 1)


@pytest.fixture
def noisy_ball(rng: np.random.Generator) -> Volume:
    """A scan with one pore, 10 voxels wide."""
    from hushpore.base.volume import Volume

    z, y, x = np.ogrid[:12, :48, :48]
    ball = (z - 6) ** 2 + (y - 24) ** 2 + (x - 24) ** 2 < 25
    values = np.where(ball, 100, 1000) + rng.normal(0, 50, ball.shape)
    return Volume(values.astype(np.int16), spacing=0.5, unit="mm", name="scan")


@pytest.fixture
def patient() -> dict[str, str]:
    """What the headers of a scan say of a person, in words that stand nowhere else."""
    return {
        "PatientName": "Quastenflosser^Ilse",
        "PatientID": "ID-4711-X",
        "PatientBirthDate": "19010203",
        "PatientAddress": "Wiesenweg 13",
        "OtherPatientIDs": "ID-0815-Y",
        "AccessionNumber": "ACC-99",
        "InstitutionName": "Klinikum Morgenrot",
        "ReferringPhysicianName": "Doktor^Fern",
        "OperatorsName": "Nah^Olga",
        "StudyID": "STUDY-77",
    }


@pytest.fixture
def scan_of_a_patient(tmp_path: Path, patient: dict[str, str], rng: np.random.Generator) -> Path:
    """A DICOM series with some pores, whose headers name a person."""
    import pydicom

    from hushpore.base.volume import Volume
    from hushpore.io.dicom import write_series

    values = rng.normal(0, 40, (8, 32, 32)) + 1000
    for z, y, x in rng.integers(4, 28, (6, 3)) // [4, 1, 1]:
        values[z : z + 2, y : y + 4, x : x + 4] -= 1500
    (tmp_path / "scans").mkdir()
    volume = Volume(values, spacing=(1, 1, 1), unit="mm")
    folder = write_series(volume, tmp_path / "scans" / "scan", seed=1)
    for path in folder.iterdir():
        dataset = pydicom.dcmread(path)
        for keyword, value in patient.items():
            setattr(dataset, keyword, value)
        dataset.save_as(path)
    return folder
