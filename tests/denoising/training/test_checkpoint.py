from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import OutputError
from hushpore.base.events import Progress
from hushpore.denoising.trained_model import HEADER, read_tensors, write_tensors
from hushpore.denoising.training import blocks, loop, schedule
from hushpore.denoising.training import loop as training_loop
from hushpore.denoising.training.step import Learner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = {
    "steps": 20, "patch_size": 16, "batch_size": 2, "device": "cpu", "seed": 3,
    "test_time_augmentation": False,
}  # fmt: skip


def make_scan() -> np.ndarray:
    return np.random.default_rng(0).normal(100, 20, (4, 30, 35)).astype(np.float32)


@pytest.fixture
def scan() -> np.ndarray:
    return make_scan()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_loop, "SAVE_INTERVAL", 0.0)


#: A program that trains, a checkpoint after every step, and is killed while it writes the tenth.
PROGRAM = """
import os, signal, sys
import numpy as np
import torch
import hushpore
torch.set_num_threads(int(sys.argv[2]))
from hushpore.denoising import automatic
from hushpore.denoising.noise import flat_blocks
automatic.FEATURES = dict.fromkeys(automatic.FEATURES, 4)
flat_blocks._DRAWN, flat_blocks._TRIES = 1000, 1
from hushpore.denoising.training import loop
loop.SAVE_INTERVAL = 0.0
settings = dict(steps=20, patch_size=16, batch_size=2, seed=3, checkpoint=sys.argv[1])
scan = np.random.default_rng(0).normal(100, 20, (4, 30, 35)).astype(np.float32)
written, replace = [], os.replace

def killed_in(part, target):
    written.append(str(target) == sys.argv[1])
    if sum(written) == 10:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    replace(part, target)

os.replace = killed_in
for event in hushpore.start("denoise", scan, settings, "cpu"):
    pass
print("not killed")
"""


@pytest.mark.long
def test_a_killed_run_goes_on_to_the_result_of_an_unbroken_one(
    scan: np.ndarray, tmp_path: Path
) -> None:
    unbroken = hushpore.denoise(scan, **QUICK)
    path = tmp_path / "training.safetensors"
    # sums depend on how many threads they are made by
    command = [sys.executable, "-c", PROGRAM, str(path), str(torch.get_num_threads())]
    assert b"not killed" not in subprocess.run(command, check=False, stdout=subprocess.PIPE).stdout
    resumed = hushpore.denoise(scan, checkpoint=str(path), **QUICK)
    note = next(
        note
        for note in resumed.provenance["notes"]
        if note.startswith("Resumed from the checkpoint")
    )
    assert 0 < int(note.removesuffix(".").split()[-1]) < 20
    np.testing.assert_array_equal(resumed.volume.data, unbroken.volume.data)
    np.testing.assert_array_equal(resumed.losses, unbroken.losses)
    np.testing.assert_array_equal(resumed.validation, unbroken.validation)


def cancel_after(steps: int, scan: np.ndarray, settings: dict[str, object]) -> None:
    work = hushpore.start("denoise", scan, {**settings}, "cpu")
    for event in work:
        if isinstance(event, Progress) and event.stage == "training" and event.done >= steps:
            break
    work.close()


def test_where_the_curve_ends_a_training_it_ends_a_resumed_one(
    scan: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "CHECK_INTERVAL", 10)
    monkeypatch.setattr(schedule, "CHECK_INTERVAL", 10)
    monkeypatch.setattr(schedule, "FIRST_CHECK", 10)
    monkeypatch.setattr(schedule, "LEAST_GAIN", 1e9)
    monkeypatch.setattr(loop, "LOG_INTERVAL", 5)
    how = {**QUICK, "steps": None}
    unbroken = hushpore.denoise(scan, **how)
    # 10, and those in which the rate comes down
    assert len(unbroken.losses) == 3
    assert unbroken.provenance["result"]["steps"] == 15
    why = "no further improvement"
    assert unbroken.provenance["result"]["ended"] == why
    assert why in unbroken.headline
    assert f"Training ended after 15 steps: {why}." in unbroken.notes
    assert not any("rain longer" in note for note in unbroken.notes)
    for steps in (7, 12):
        path = str(tmp_path / f"{steps}.safetensors")
        settings = {name: value for name, value in how.items() if name != "device"}
        cancel_after(steps, scan, {**settings, "checkpoint": path})
        resumed = hushpore.denoise(scan, checkpoint=path, **how)
        np.testing.assert_array_equal(resumed.volume.data, unbroken.volume.data)
        np.testing.assert_array_equal(resumed.validation, unbroken.validation)
    record = tmp_path / "result.json"
    record.write_text(json.dumps(unbroken.provenance))
    again = hushpore.denoise(scan, repeat=str(record), **how)
    assert again.provenance["result"]["steps"] == 15


@pytest.mark.parametrize(
    "more",
    [
        {"method": "n2v2", "context": 0},
        {"method": "n2v2", "dimensions": 3, "patch_depth": 4},
        {"method": "n2v2", "context": 1},
        {"method": "r2r"},
        {"method": "r2r", "dimensions": 3, "patch_depth": 4},
    ],
    ids=["2D", "3D", "2.5D", "2.5D with drawn noise", "3D with drawn noise"],
)
def test_a_cancelled_run_goes_on_too(
    scan: np.ndarray, tmp_path: Path, more: dict[str, object]
) -> None:
    settings = {**QUICK, **more, "steps": 8}
    unbroken = hushpore.denoise(scan, **settings)
    del settings["device"]
    settings["checkpoint"] = str(tmp_path / "training.safetensors")
    cancel_after(3, scan, settings)
    resumed = hushpore.run("denoise", scan, settings, "cpu")
    np.testing.assert_array_equal(resumed.volume.data, unbroken.volume.data)
    assert resumed.provenance["result"]["steps"] == 8


@pytest.mark.usefixtures("small_network")
@pytest.mark.parametrize(
    ("dimensions", "where"), [(2, "anywhere"), (2, "at points"), (3, "at points")]
)
def test_a_cancelled_run_that_reads_block_by_block_goes_on_with_the_same_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dimensions: int, where: str
) -> None:
    monkeypatch.setattr(blocks, "STEPS_PER_BLOCK", 2)
    scan = np.random.default_rng(0).normal(100, 20, (24, 38, 40)).astype(np.float32)
    settings: dict[str, Any] = {**QUICK, "steps": 7, "patch_depth": 4, "denoise_memory": 0.001}
    settings["dimensions"] = dimensions
    if where == "at points":
        settings["train_at"] = np.argwhere(scan > 165).astype(float)
    unbroken = hushpore.denoise(scan, **settings)
    assert any("block by block" in note for note in unbroken.provenance["notes"])
    del settings["device"]
    settings["checkpoint"] = str(tmp_path / "training.safetensors")
    cancel_after(3, scan, settings)
    resumed = hushpore.run("denoise", scan, settings, "cpu")
    assert any("Resumed from the checkpoint" in note for note in resumed.provenance["notes"])
    np.testing.assert_array_equal(resumed.volume.data, unbroken.volume.data)


def lacking_memory(monkeypatch: pytest.MonkeyPatch, fits: Callable[[int, int], bool]) -> None:
    """Let memory run out in a step, of so many patches and with this number, that does not fit."""
    original = Learner.step

    def limited(self: Learner, image: Any, batches: Any, rate: float, step: int) -> torch.Tensor:
        if not fits(batches.count, step):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return original(self, image, batches, rate, step)

    monkeypatch.setattr(Learner, "step", limited)


def test_where_memory_runs_out_a_training_goes_on_from_its_checkpoint(
    scan: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking_memory(monkeypatch, lambda count, step: count == 1 or step < 8)
    result = hushpore.denoise(scan, checkpoint=str(tmp_path / "t.safetensors"), **QUICK)
    told = result.provenance["notes"]
    assert "Out of memory: batch size reduced to 1 patch." in told
    assert "Resumed from the checkpoint at step 8." in told
    assert result.provenance["result"]["steps"] == 20


def test_a_run_that_lacked_memory_is_resumed_with_the_patches_that_it_had(
    scan: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**QUICK, "method": "n2v2", "context": 0}
    lacking_memory(monkeypatch, lambda count, step: count == 1)
    unbroken = hushpore.denoise(scan, **settings)
    del settings["device"]
    settings["checkpoint"] = str(tmp_path / "t.safetensors")
    cancel_after(6, scan, settings)
    # as much memory as may be
    lacking_memory(monkeypatch, lambda count, step: count == 1)
    resumed = hushpore.run("denoise", scan, settings, "cpu")
    assert not any("ran out" in note for note in resumed.provenance["notes"])
    np.testing.assert_array_equal(resumed.volume.data, unbroken.volume.data)


def test_a_cancelled_run_keeps_its_model(scan: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    cancel_after(3, scan, {"steps": 100, "patch_size": 16, "checkpoint": str(path)})
    model = hushpore.load_model(path)
    assert model.mean == pytest.approx((scan.mean(),))
    applied = hushpore.denoise(scan, model=str(path), device="cpu", precision="float32")
    np.testing.assert_allclose(
        applied.volume.data, model.predict(scan, "cpu").data, rtol=1e-4, atol=1e-3
    )
    assert applied.provenance["result"]["steps"] == 0


def test_a_finished_training_is_not_done_again(scan: np.ndarray, tmp_path: Path) -> None:
    path = str(tmp_path / "training.safetensors")
    first = hushpore.denoise(scan, checkpoint=path, **QUICK)
    again = hushpore.denoise(scan, checkpoint=path, **QUICK)
    np.testing.assert_array_equal(again.volume.data, first.volume.data)
    assert "Resumed from the checkpoint at step 20." in again.provenance["notes"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 21}, "steps was 20 and is now 21"),
        ({"seed": 4}, "seed was 3 and is now 4"),
        ({"batch_size": 3}, "batch_size was 2 and is now 3"),
        ({"method": "n2v"}, "method was 'auto' and is now 'n2v'"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    scan: np.ndarray, tmp_path: Path, change: dict[str, object], words: str
) -> None:
    settings = {**QUICK, "checkpoint": str(tmp_path / "training.safetensors")}
    del settings["device"]
    cancel_after(1, scan, settings)
    with pytest.raises(InputError, match=words):
        hushpore.run("denoise", scan, {**settings, **change}, "cpu")


def test_a_checkpoint_of_another_volume_is_refused(scan: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "training.safetensors"
    settings = {"steps": 40, "patch_size": 16, "checkpoint": str(path)}
    cancel_after(1, scan, settings)
    before = path.read_bytes()
    with pytest.raises(InputError, match="belongs to another training: volume was"):
        hushpore.run("denoise", scan + 1, settings, "cpu")
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"something dear", pickle.dumps({"a": 1}), "model"])
def test_what_is_no_checkpoint_is_refused_and_kept(
    scan: np.ndarray, tmp_path: Path, content: bytes | str
) -> None:
    path = tmp_path / "training.safetensors"
    if content == "model":
        hushpore.denoise(scan, **QUICK).model.save(path)
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    with pytest.raises(InputError, match="is not a hushpore checkpoint"):
        hushpore.denoise(scan, checkpoint=str(path), **QUICK)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "facts", [{"step": 10**18}, {"step": -5}, {"spent": float("nan")}, {"shares": "eNpjYGBg"}]
)
def test_a_state_that_no_training_comes_to_is_refused(
    scan: np.ndarray, tmp_path: Path, facts: dict[str, object]
) -> None:
    path = tmp_path / "training.safetensors"
    settings = {"steps": 40, "patch_size": 16, "batch_size": 2, "checkpoint": str(path)}
    cancel_after(1, scan, settings)
    known, tensors = read_tensors(path, "training")
    model, _ = read_tensors(path, HEADER)
    write_tensors(path, tensors, {HEADER: model, "training": {**known, **facts}})
    with pytest.raises(InputError, match="is incomplete"):
        hushpore.run("denoise", scan, settings, "cpu")


def test_a_place_without_a_folder_is_refused_before_the_training(
    scan: np.ndarray, tmp_path: Path
) -> None:
    with pytest.raises(OutputError, match="there is no folder"):
        hushpore.denoise(scan, checkpoint=str(tmp_path / "no" / "t.safetensors"), **QUICK)


def test_a_broken_write_leaves_the_older_checkpoint(
    scan: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "training.safetensors"
    settings = {"steps": 40, "patch_size": 16, "batch_size": 2, "checkpoint": str(path)}
    cancel_after(1, scan, settings)
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="the disk is full"):
        hushpore.run("denoise", Volume(scan), settings, "cpu")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
