"""The most memory that was in use."""

from __future__ import annotations

import numpy as np
import psutil

from hushpore.device.memory import PeakMemory


def test_the_most_memory_is_kept_after_it_was_given_back() -> None:
    peak = PeakMemory()
    before = psutil.Process().memory_info().rss
    taken = np.ones(1 << 25)
    peak.look()
    del taken
    peak.look()
    assert peak.host >= before + (1 << 27)
    assert peak.device == 0
