"""Settings of the test run itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = "import os\n\ndef test_it():\n    os.kill(os.getpid(), 9)\n"


@pytest.mark.skipif(sys.platform == "win32", reason="kills a process as on Linux and macOS")
def test_a_run_ends_after_a_crash_of_one_of_its_processes(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    for number in range(6):
        text = CRASH if number == 4 else "def test_it():\n    pass\n"
        (tmp_path / f"test_{number}.py").write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:napari", "-n", "2", "--dist", "loadfile"]
    own = {name: each for name, each in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=tmp_path, env=own, timeout=120
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "crashed while running 'test_4.py::test_it'" in done.stdout
