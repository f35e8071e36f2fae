"""Memory: when it ran out, and the most that was in use."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
import torch

from hushpore.device.memory import PeakMemory, is_out_of_memory


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 byte"), True),
        (RuntimeError("out of ideas"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_that_memory_ran_out_is_known_whichever_library_says_so(
    error: Exception, is_memory: bool
) -> None:
    assert is_out_of_memory(error) is is_memory


def test_the_most_memory_is_kept_after_it_was_given_back() -> None:
    peak = PeakMemory()
    before = psutil.Process().memory_info().rss
    taken = np.ones(1 << 25)
    peak.look()
    del taken
    peak.look()
    assert peak.host >= before + (1 << 27)
    assert peak.device == 0
