from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hushpore import InputError, Volume, load_model
from hushpore.base.errors import OutputError
from hushpore.base.events import Progress, StopEarly, result_of
from hushpore.io.results import write_image
from hushpore.jobs import JOBS
from hushpore.runs.batch import run_batch
from hushpore.runs.common_network import NETWORK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("small_network")


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Two noisy scans of a ball, the second brighter, and a file that is no image."""
    z, y, x = np.ogrid[:16, :32, :32]
    ball = (z - 8) ** 2 + (y - 16) ** 2 + (x - 16) ** 2 < 36
    for name, grey in (("one", 900), ("two", 1100)):
        scan = np.where(ball, 100, grey) + rng.normal(0, 40, ball.shape)
        write_image(tmp_path / f"{name}.tif", Volume(scan.astype(np.float32), axes="zyx"))
    (tmp_path / "bad.tif").write_text("no pixels")
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.fixture
def batch(folder: Path) -> Callable[..., object]:
    def run(steps: int = 2, *, scans: str = "*.tif", overwrite: bool = False, **more: object):
        settings = JOBS["denoise"].settings(steps=steps, patch_size=16, **more)
        return run_batch(
            f"{folder}/{scans}", folder / "out",
            {"denoise": settings, "pores": JOBS["pores"].settings()},
            device="cpu", one_network=True, overwrite=overwrite,
        )  # fmt: skip

    return run


def test_a_batch_trains_one_network_and_denoises_each_scan_with_it(
    folder: Path, batch: Callable[..., object]
) -> None:
    events: list[object] = []
    done = result_of(batch(), events.append)
    assert [state.state for state in done.states] == ["failed", "done", "done"]
    network = folder / "out" / NETWORK
    record = json.loads(network.with_suffix(".json").read_text())
    assert [each["name"] for each in record["trained_on"]] == ["one", "two"]
    # the grey scale is that of both
    ball = 4 / 3 * np.pi * 6**3 / (16 * 32 * 32)
    assert load_model(network).mean[0] == pytest.approx(1000 - 900 * ball, rel=0.01)
    for name in ("one", "two"):
        job, _ = json.loads((folder / "out" / name / "result.json").read_text())["jobs"]
        assert job["settings"]["model"] == str(network)
        assert job["result"]["steps"] == 0
    assert {each.unit for each in events if isinstance(each, Progress)} >= {"steps", "scans"}
    before = network.stat().st_mtime_ns
    again = result_of(batch())
    assert [state.state for state in again.states] == ["failed", "skipped", "skipped"]
    # a scan that is added later is denoised with the same network
    (folder / "bad.tif").write_bytes((folder / "one.tif").read_bytes())
    assert [state.state for state in result_of(batch()).states] == ["done", "skipped", "skipped"]
    assert network.stat().st_mtime_ns == before
    with pytest.raises(OutputError, match=r"was trained on other scans, or with other settings"):
        result_of(batch(steps=3))
    assert [s.state for s in result_of(batch(steps=3, overwrite=True)).states] == ["done"] * 3
    assert len(json.loads(network.with_suffix(".json").read_text())["trained_on"]) == 3


def test_a_stop_in_the_training_of_a_batch_keeps_no_network(
    folder: Path, batch: Callable[..., object]
) -> None:
    job = batch(steps=50)
    for event in job:
        if isinstance(event, Progress) and event.stage == "training":
            break
    with pytest.raises(StopEarly):
        job.throw(StopEarly())
    assert not [*(folder / "out").iterdir()]


def test_one_network_needs_two_scans_and_no_other_model(
    folder: Path, batch: Callable[..., object]
) -> None:
    with pytest.raises(InputError, match=r"at least two scans; got 1"):
        result_of(batch(scans="one.tif"))
    for name in ("model", "pair"):
        with pytest.raises(InputError, match=rf"cannot be trained with a .* \({name}\)"):
            result_of(batch(**{name: str(folder / "two.tif")}))
