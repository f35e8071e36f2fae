from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hushpore.device import allocation
from hushpore.device.allocation import freed_memory_kept

_FAULTS = """
import resource, numpy as np
from hushpore.device.allocation import freed_memory_kept

def pages():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.full(5_000_000, 1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start

def held():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

before = held()
plain = [pages() for _ in range(3)][-1]
with freed_memory_kept():
    kept = [pages() for _ in range(3)][-1]
print(plain, kept, held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of GNU's C library")
def test_freed_memory_is_taken_again_and_given_back_at_the_end() -> None:
    if allocation._library() is None:
        pytest.skip("another C library")
    command = [sys.executable, "-c", _FAULTS]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    plain, kept, more = map(int, found.stdout.split())
    # 40 MB are some 10,000 pages, or 20 huge ones
    assert kept <= plain / 10
    assert more < 20e6


def test_what_one_ends_another_may_still_use() -> None:
    with freed_memory_kept():
        with freed_memory_kept():
            pass
        assert len(allocation._users) == 1
        assert np.ones(10).sum() == 10
    assert not allocation._users


def test_without_such_a_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "_library", lambda: None)
    with freed_memory_kept():
        assert len(allocation._users) == 1
    assert not allocation._users
