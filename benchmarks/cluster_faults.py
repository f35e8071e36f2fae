"""Pores in blocks on a cluster whose workers are killed, and whose client is killed.

Ten runs on two workers, in each of which one worker is killed with SIGKILL at a random moment; then
one whose own process is killed, and which is started again. All results are compared with a run on
one machine, bit for bit.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks._cluster import Run, foam, is_same
from hushpore.cluster.connection import connect
from hushpore.device.backend import Backend
from hushpore.io import read
from hushpore.jobs import segment_pores

SIZE, THICKNESS, TIMES = 200, 16, 10

_CLIENT = """
import sys
from pathlib import Path
from benchmarks._cluster import Run
from hushpore.cluster.connection import connect

if __name__ == "__main__":
    with connect("local:2", 2) as client:
        print("begun", flush=True)
        run = Run(Path(sys.argv[1]), client, thickness=int(sys.argv[2]))
        print(run.runner.computed, run.crew.reused, flush=True)
"""


def measure() -> dict[str, Any]:
    """Run all; about a minute and a half."""
    with tempfile.TemporaryDirectory() as name:
        path = foam(Path(name), SIZE)
        expected = segment_pores(read(path), device=Backend())
        with connect("local:2", 2) as client:
            Run(path, client, thickness=THICKNESS)
            whole = Run(path, client, thickness=THICKNESS)
        moments = random.Random(0)
        kills = []
        for _ in range(TIMES):
            with connect("local:2", 2) as client:
                pids = list(client.run(os.getpid).values())
                # a fresh worker takes some seconds to load its libraries
                Run(path, client, thickness=THICKNESS * 2)
                after = moments.uniform(0, whole.wall)
                killer = threading.Timer(after, os.kill, (moments.choice(pids), signal.SIGKILL))
                killer.start()
                run = Run(path, client, thickness=THICKNESS)
                killer.join()
                kills.append((round(after, 2), is_same(run.folder, expected), round(run.wall, 2)))
        return {
            "voxels": SIZE**3,
            "blocks": whole.slabs,
            "tasks": whole.runner.computed,
            "undisturbed, s": round(whole.wall, 2),
            "killed after, s": [after for after, _, _ in kills],
            "done after, s": [wall for _, _, wall in kills],
            "right results": sum(same for _, same, _ in kills),
            "client killed and started again": _client_killed(path, whole.wall, expected),
        }


def _client_killed(path: Path, wall: float, expected: Any) -> dict[str, Any]:
    """Kill the client and its workers half-way, and start it again."""
    command = [sys.executable, "-c", _CLIENT, str(path), str(THICKNESS)]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stdout is not None
    first.stdout.readline()
    # until some of the basins are there
    while len(list(path.parent.glob(".result.*.unfinished/scratch/done-basins-*"))) < 4:
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    left = len(list(path.parent.glob(".result.*.unfinished/scratch/done-*")))
    second = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    computed, reused = map(int, second.stdout.split()[-2:])
    return {
        "tasks left behind": left,
        "tasks taken over": reused,
        "tasks computed": computed,
        "right result": is_same(path.with_name("result"), expected),
    }
