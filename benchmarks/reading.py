"""Reading a DICOM series: seconds and peak memory, beside pydicom, SimpleITK and napari's builtin.

Each reading is a process of its own, in turn, since these machines are shared and memory that was
once taken is not given back. The series is written first: 500 CT slices of 512 x 512, uncompressed
and as JPEG-LS (lossless), which of the usual compressions decodes fastest. Imports are not timed.
napari's builtin runs once, and cannot read the compressed one. pydicom decodes with pyjpegls.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.volume import Volume
from hushpore.io.dicom import write_series

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
SLICES, EDGE = 500, 512
SLOW = "napari builtin"


def measure() -> dict[str, object]:
    """Median seconds and peak of memory over the volume's bytes, for each reader and series."""
    with tempfile.TemporaryDirectory() as scratch:
        plain = _series(Path(scratch) / "plain")
        packed = _compress(_series(Path(scratch) / "packed"))
        figures: dict[str, object] = {}
        for name, folder in (("uncompressed", plain), ("jpeg-ls", packed)):
            runs: dict[str, list[dict[str, Any]]] = {reader: [] for reader in READERS}
            for turn in range(ROUNDS):
                for reader, results in runs.items():
                    if reader != SLOW or (turn == 0 and folder == plain):
                        results.append(_apart(reader, folder))
            figures[name] = {
                reader: {
                    "seconds": round(statistics.median(run["seconds"] for run in results), 3),
                    "peak_over_volume": round(max(run["peak"] for run in results), 2),
                }
                for reader, results in runs.items()
                if results and all(results)
            }
        times = [_apart("headers", plain)["seconds"] for _ in range(ROUNDS)]
        figures["headers of the uncompressed series"] = round(statistics.median(times), 3)
    return figures


def _series(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 60, (SLICES, EDGE, EDGE)).astype(np.int16)
    noise += (np.sin(np.arange(EDGE) / 20) * 500).astype(np.int16)
    return write_series(Volume(noise, spacing=(0.5, 0.25, 0.25), unit="mm"), folder, seed=0)


def _compress(folder: Path) -> Path:
    import imagecodecs
    import pydicom
    from pydicom.encaps import encapsulate
    from pydicom.uid import JPEGLSLossless

    for path in folder.iterdir():
        dataset = pydicom.dcmread(path)
        # as most scanners store it: not below zero, with an intercept
        stored = (dataset.pixel_array + 1024).clip(0).astype(np.uint16)
        dataset.PixelRepresentation, dataset.RescaleIntercept = 0, -1024
        dataset.PixelData = encapsulate([imagecodecs.jpegls_encode(stored)])
        dataset["PixelData"].is_undefined_length = True
        dataset.file_meta.TransferSyntaxUID = JPEGLSLossless
        dataset.save_as(path)
    return folder


def _apart(reader: str, folder: Path) -> dict[str, Any]:
    """Run one reader in a process of its own; nothing where it is not installed or fails."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.reading", reader, str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        return {}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _hushpore(folder: str) -> Callable[[], Any]:
    import hushpore

    hushpore.read(min(Path(folder).iterdir()))  # imports what it needs
    return lambda: hushpore.read(folder).data


def _headers(folder: str) -> Callable[[], Any]:
    from hushpore.io import describe

    describe(min(Path(folder).iterdir()))
    return lambda: describe(folder)[0].data


def _pydicom(folder: str) -> Callable[[], Any]:
    import pydicom

    def read() -> Any:
        slices = [pydicom.dcmread(path) for path in Path(folder).iterdir()]
        slices.sort(key=lambda each: float(each.ImagePositionPatient[2]))
        return np.stack([each.pixel_array for each in slices])

    return read


def _simpleitk(folder: str) -> Callable[[], Any]:
    import SimpleITK

    def read() -> Any:
        reader = SimpleITK.ImageSeriesReader()
        reader.SetFileNames(reader.GetGDCMSeriesFileNames(folder))
        return SimpleITK.GetArrayFromImage(reader.Execute())

    return read


def _napari(folder: str) -> Callable[[], Any]:
    from napari_builtins.io import magic_imread

    return lambda: np.asarray(magic_imread(sorted(map(str, Path(folder).iterdir())), stack=True))


READERS = {
    "hushpore": _hushpore,
    "pydicom in a loop": _pydicom,
    "SimpleITK": _simpleitk,
    SLOW: _napari,
}


def _peak() -> float:
    status = Path("/proc/self/status")
    if status.is_file():
        # unlike getrusage, not inherited from the process that started this one
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
        assert found is not None
        return 1024.0 * int(found.group(1))
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(used * (1 if sys.platform == "darwin" else 1024))


def _main(reader: str, folder: str) -> None:
    read = {**READERS, "headers": _headers}[reader](folder)
    before, start = _peak(), time.perf_counter()
    values = read()
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak": (_peak() - before) / values.nbytes}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
