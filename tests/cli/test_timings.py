from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from hushpore import Volume
from hushpore.base.events import StageTime, Timing
from hushpore.cli.timings import Measured

if TYPE_CHECKING:
    import pytest


def slowly() -> Volume:
    time.sleep(0.05)
    return Volume(np.zeros((1, 1000, 1000), np.uint8))


def test_slow_reading_is_named_as_what_takes_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measured(timings=True, trace=None, overwrite=False)
    assert measured.read(slowly).shape == (1, 1000, 1000)
    measured.listen("Segment pores", Timing({"basins": StageTime(1, 0.01, 0.01)}, 0.01))
    measured.listen("Other", Timing({"training": StageTime(1, 0.01, 0.01)}, 0.01))
    measured.show()
    pores, other = capsys.readouterr().err.split("Other")
    assert "reading files" in pores
    assert "Reading takes" in pores
    assert "GB/s" in pores
    assert "reading" not in other
