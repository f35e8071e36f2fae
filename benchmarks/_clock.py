"""The host's stopwatch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds_of(work: Callable[[], object]) -> float:
    """Return how long something takes on the host's clock."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
