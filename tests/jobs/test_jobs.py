from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import hushpore
from hushpore import InputError, Volume
from hushpore.base.events import Progress
from hushpore.base.settings import Settings, option
from hushpore.denoising.settings import DenoiseSettings
from hushpore.jobs import JOBS, JobDescription


def test_nothing_runs_before_the_first_event(rng: np.random.Generator) -> None:
    work = hushpore.start("patches", rng.normal(size=(40, 40)), {"patch_size": 16}, "cpu")
    assert isinstance(next(work), Progress)
    work.close()


def test_run_hands_every_event_over_and_returns_the_result(rng: np.random.Generator) -> None:
    events: list[object] = []
    result = hushpore.run(
        "patches", rng.normal(size=(40, 40)), {"patch_size": 16, "n_patches": 3}, "cpu",
        events.append,
    )  # fmt: skip
    assert len(result.patches) == 3
    fractions = [event.fraction for event in events if isinstance(event, Progress)]
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


def test_settings_may_be_an_object_a_mapping_or_left_out() -> None:
    image = np.eye(70)
    for settings in (DenoiseSettings(steps=5), {"steps": 5}, None):
        hushpore.start("denoise", image, settings, "cpu").close()


@pytest.mark.parametrize(
    ("job", "settings", "words"),
    [
        (
            "denoice",
            {},
            "Unknown job 'denoice'. Available: denoise, pores, measure, phases, patches",
        ),
        ("pores", {"tresh": 1}, "setting 'tresh' does not exist. Available: threshold"),
        (
            "pores",
            {"merge_height": -1},
            "merge_height must be 'auto' or a number of at least 0; got -1",
        ),
    ],
)
def test_what_is_not_known_is_refused_at_once(
    job: str, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        hushpore.start(job, np.eye(70), settings)


@pytest.mark.parametrize("job", JOBS)
def test_every_job_takes_arrays_and_volumes_and_tells_progress_that_never_falls(job: str) -> None:
    image = np.random.default_rng(0).integers(0, 99, (3, 40, 40)).astype(np.uint16)
    quick: dict[str, dict[str, object]] = {
        "denoise": {"steps": 2, "patch_size": 16, "batch_size": 2},
        "patches": {"patch_size": 16},
        "measure": {"values": "labels"},
    }
    for given in (image, Volume(image, spacing=(2, 1, 1), unit="mm")):
        events: list[object] = []
        result = hushpore.run(job, given, quick.get(job, {}), "cpu", events.append)
        fractions = [event.fraction for event in events if isinstance(event, Progress)]
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1
        assert result.headline
        assert result.provenance["job"] == job
        assert set(result.provenance["settings"]) == {o.name for o in JOBS[job].settings.options()}


def test_pores_do_not_wait_for_pytorch_to_load() -> None:
    code = (
        "import sys, numpy as np, hushpore; hushpore.segment_pores(np.eye(9) > 0); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@dataclass(frozen=True)
class Masked(Settings):
    mask: str = option("", "What to keep.", auxiliary=("labels",))


def kept(volume: Volume, settings: Masked, backend: object) -> object:
    """A job that returns what its setting names beside the volume."""
    yield Progress("looking", 0, 0, "", 0.0)
    return volume.auxiliary_of(settings, "mask")


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> None:
    look = JobDescription("Look", f"{__name__}:Masked", f"{__name__}:kept", on_gpu=False)
    monkeypatch.setitem(JOBS, "masked", look)


@pytest.mark.usefixtures("masked")
def test_an_array_given_as_a_setting_lies_beside_the_volume() -> None:
    mask = np.ones((5, 5), bool)
    assert hushpore.run("masked", np.eye(5), {"mask": mask}) is mask
    assert hushpore.run("masked", np.eye(5), {"mask": Volume(mask)}) is mask
    named = Volume(np.eye(5), auxiliary={"crumb": mask})
    assert hushpore.run("masked", named, {"mask": "crumb"}) is mask
    assert hushpore.run("masked", np.eye(5)) is None


@pytest.mark.usefixtures("masked")
def test_what_does_not_fit_the_volume_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="does not match"):
        hushpore.start("masked", np.eye(5), {"mask": np.ones((4, 4))})
    with pytest.raises(InputError, match="available: none"):
        hushpore.start("masked", np.eye(5), {"mask": "crumb"})
