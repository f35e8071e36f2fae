"""A layer that is edited while a job runs on it: the result says so."""

from types import SimpleNamespace

import numpy as np
import pytest

from hushpore.base.events import Note, Progress, result_of
from hushpore.base.rescaled import Scaled
from hushpore.base.volume import Volume
from hushpore.viewer.running import task


@pytest.mark.parametrize("is_edited", [True, False])
@pytest.mark.parametrize("kind", ["array", "scanner's integers", "strided"])
def test_an_edit_meanwhile_is_told_in_the_window_and_the_record(monkeypatch, is_edited, kind):
    data = np.random.default_rng(0).integers(0, 99, (8, 20, 30)).astype(np.uint16)
    values = {"array": data, "scanner's integers": Scaled(data, 2, -5), "strided": data[:, :, ::2]}
    widget = SimpleNamespace(
        job="pores", prepare=lambda target: Volume(values[kind]), result_layers=lambda *_: []
    )

    def start(job, volume, settings, device):
        yield Progress("working", 0, 1, "", 0.5)
        if is_edited:
            data[3, 4, 6] += 1
        return SimpleNamespace(
            provenance={"notes": [], "remarks": []}, headline="", remarks=(), timings={}
        )

    monkeypatch.setattr(task.jobs, "start", start)
    events = []
    outcome = result_of(task.local_task(widget, None, None, "cpu"), events.append)
    told = [event for event in events if isinstance(event, Note) and event.warning]
    assert len(told) == len(outcome.result.provenance["remarks"]) == is_edited
