"""How often a training shows what it has come to."""

from types import SimpleNamespace
from typing import Any

import torch

from hushpore.denoising.training.loop import PreviewPace


def pace_of(pixels: int, batch_voxels: int) -> Any:
    shown: Any = SimpleNamespace(image=SimpleNamespace(planes=torch.zeros(1, pixels)))
    return PreviewPace(shown, batch_voxels)


def test_previews_that_take_no_time_come_once_a_second() -> None:
    pace = pace_of(pixels=3, batch_voxels=1000)
    assert not pace.due(0.1, 0.9)
    assert pace.due(0.1, 1.0)
    pace.done(0.001, 1.0)
    assert not pace.due(0.1, 1.9)
    assert pace.due(0.1, 2.1)


def test_the_first_preview_waits_until_its_share_of_the_time_is_small() -> None:
    # of three times as many pixels as a batch it is expected to take as long as a step
    pace = pace_of(pixels=3000, batch_voxels=1000)
    assert not pace.due(0.5, 9.9)
    assert pace.due(0.5, 10.0)


def test_previews_take_a_twentieth_of_the_time_at_most() -> None:
    pace = pace_of(pixels=3, batch_voxels=1000)
    now = spent = 0.0
    while now < 1000:
        if pace.due(0.1, now):
            spent += 2.0
            now += 2.0
            pace.done(2.0, now - 2.0)
        now += 0.1
    assert 0.04 < spent / now <= 0.05
