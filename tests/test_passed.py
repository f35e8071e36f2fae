"""Count the files and functions that a warm call passes: how many a reader has to open.

    python tests/test_passed.py [--list]

Warm: each is called once before, so that imports, kernels and what is made but once do not count.
Functions are those of the package that run in any thread; comprehensions, lambdas and the bodies of
classes are none. As a test: neither number may rise above `MOST`, which is lowered when they fall.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

#: Files and functions that each call passes at most.
MOST = {
    "segment_pores": (50, 472),
    "denoise": (44, 407),
    # by which timers fire while the job runs, up to twenty functions more or less (749 to 772)
    "pores in napari": (69, 772),
}

SOURCE = str(Path(__file__).parents[1] / "src" / "hushpore") + os.sep


class Passed:
    """What was passed while it watched."""

    def __init__(self):
        self.functions = set()

    def _see(self, frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_name[0] != "<" and code.co_filename.startswith(SOURCE):
            self.functions.add((code.co_filename, code.co_qualname))

    @contextlib.contextmanager
    def watching(self):
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def files(self):
        return sorted({file.removeprefix(SOURCE) for file, _ in self.functions})


def passed_by(call):
    """Call twice, and watch the second time."""
    call()
    passed = Passed()
    with passed.watching():
        call()
    return passed


def in_napari(volume):
    """Return what segments the pores of a layer in a viewer, and waits for it."""
    from napari.components import ViewerModel
    from qtpy.QtWidgets import QApplication

    from hushpore.viewer.segment.widget import PoresWidget

    application = QApplication.instance() or QApplication([])
    viewer = ViewerModel()
    scan = viewer.add_image(volume.data, name="scan", scale=volume.spacing)
    widget = PoresWidget(viewer)

    def run():
        widget.layer.value = scan
        widget.run()
        while widget.is_running:
            application.processEvents()

    # the last one made is kept, or Qt goes with it
    run.application = application
    return run


def main():
    import hushpore
    from hushpore.sample_data import foam_phantom

    volume = foam_phantom((16, 64, 64)).volume
    # float32: bfloat16, which some processors are fast at, passes functions of its own
    quick = {"steps": 2, "patch_size": 16, "batch_size": 2, "device": "cpu", "precision": "float32"}
    calls = {
        "segment_pores": lambda: hushpore.segment_pores(volume, device="cpu"),
        "denoise": lambda: hushpore.denoise(volume, **quick),
        "pores in napari": in_napari(volume),
    }
    for name, call in calls.items():
        passed = passed_by(call)
        print(f"{name}: {len(passed.files)} files, {len(passed.functions)} functions")
        if "--list" in sys.argv:
            print(*(f"    {file}" for file in passed.files), sep="\n")


@pytest.fixture(scope="module")
def passed() -> dict[str, tuple[int, int]]:
    """Files and functions by call, counted in a process without other tests."""
    pytest.importorskip("napari")
    counting = subprocess.run(
        [sys.executable, __file__], capture_output=True, text=True, check=True, timeout=300
    )
    lines = re.findall(r"^(.+): (\d+) files, (\d+) functions$", counting.stdout, re.MULTILINE)
    return {name: (int(files), int(functions)) for name, files, functions in lines}


@pytest.mark.parametrize("call", MOST)
def test_the_way_of_a_call_does_not_get_longer(passed, call: str) -> None:
    files, functions = passed[call]
    most_files, most_functions = MOST[call]
    assert files <= most_files, "see them with 'python tests/test_passed.py --list'"
    assert functions <= most_functions


if __name__ == "__main__":
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    with tempfile.TemporaryDirectory() as folder:
        # nobody's preferences, neither of this program nor of napari
        os.environ["HUSHPORE_CONFIG"] = folder
        os.environ["NAPARI_CONFIG"] = os.path.join(folder, "settings.yaml")
        main()
