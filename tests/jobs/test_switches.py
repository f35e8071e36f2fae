"""Every optimisation is reached from a job, does what its switch says, and changes no result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import hushpore
from hushpore import Volume
from hushpore.base.preferences import SWITCHES
from hushpore.device.backend import Backend
from hushpore.device.switches import Switches

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("small_network")

STEPS = 12


@pytest.fixture
def scan(tmp_path: Path) -> Volume:
    """A scan in a file, that does not fit into the memory that the jobs below allow."""
    values = np.random.default_rng(0).normal(100, 10, (40, 48, 48)).astype(np.float32)
    np.save(tmp_path / "scan.npy", values)
    return Volume(np.load(tmp_path / "scan.npy", mmap_mode="r"))


def denoised(scan: Volume, backend: Backend) -> Any:
    how = {
        "steps": STEPS,
        "batch_size": 2,
        "patch_size": 16,
        "precision": "float32",
        "denoise_memory": 0.001,
        "test_time_augmentation": False,
    }
    return hushpore.run("denoise", scan, how, backend)


def test_an_optimisation_is_used_where_it_is_switched_on_and_nowhere_else(
    scan: Volume, used: Any, pretended_gpu: Callable[..., Backend]
) -> None:
    times: Counter[str] = used.times
    others = dict.fromkeys(SWITCHES, "off")
    plain = denoised(scan, pretended_gpu(**others))
    assert not +times
    for name in SWITCHES:
        times.clear()
        found = denoised(scan, pretended_gpu(**{**others, name: "on"}))
        assert set(+times) == {name}
        lines = found.provenance["optimisations"]
        told = {line for key, line in lines.items() if key.partition(" ")[0] == name}
        assert told == {"on, as requested"}
        assert {line for key, line in lines.items() if key.partition(" ")[0] != name} == {
            "off, as requested"
        }
        np.testing.assert_array_equal(found.volume.data, plain.volume.data)


def test_left_to_themselves_they_say_why_they_are_used_or_not(
    scan: Volume, used: Any, pretended_gpu: Callable[..., Backend]
) -> None:
    lines = denoised(scan, pretended_gpu()).provenance["optimisations"]
    assert lines["pinned"].endswith("MB are too few")
    assert set(+used.times) <= {"graphs"}


def test_the_preference_and_the_environment_set_switches(
    pretended_gpu: Callable[..., Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUSHPORE_SWITCHES", "graphs=on")
    backend = pretended_gpu()
    assert backend.choices.asked("graphs") is True
    assert backend.choices.asked("pinned") is None
    assert Backend(switches=Switches(graphs="off")).choices.asked("graphs") is False
