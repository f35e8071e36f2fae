from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter, uniform_filter1d

import hushpore
from hushpore import InputError, Volume
from hushpore.base.errors import MemoryLimitError
from hushpore.base.events import Attention, Batch, Metric, Note, Preview, Progress, StopEarly
from hushpore.denoising.inference import volumes
from hushpore.denoising.training import loop, run
from hushpore.denoising.training.loop import PreviewPace
from hushpore.denoising.training.step import Learner
from hushpore.device.backend import Backend
from hushpore.device.timing import Clock, HostClock, StageTimer

if TYPE_CHECKING:
    from pathlib import Path

QUICK = {"steps": 3, "patch_size": 16, "batch_size": 4, "device": "cpu"}

#: What learns next to nothing, quickly, for all that does not say how much is learnt.
small = pytest.mark.usefixtures("small_network")


@pytest.fixture
def scan(rng: np.random.Generator, small_network: None) -> Volume:
    values = rng.normal(100, 20, (5, 30, 35)).round().astype(np.int16)
    return Volume(values, spacing=(5, 0.5, 0.5), unit="mm", name="bread")


def test_denoising_removes_noise_and_keeps_the_image() -> None:
    rng = np.random.default_rng(0)
    clean = 1000 * (gaussian_filter(rng.normal(size=(6, 64, 64)), (0, 4, 4)) > 0)
    noisy = clean + rng.normal(0, 250, clean.shape)
    how = {"method": "n2v2", "context": 0, "patch_size": 32, "batch_size": 4, "device": "cpu"}
    result = hushpore.denoise(noisy, steps=120, **how)
    error_before = np.mean((noisy - clean) ** 2)
    error_after = np.mean((result.volume.data - clean) ** 2)
    assert 10 * np.log10(error_before / error_after) > 5.5
    assert result.provenance["result"]["noise_removed"] == pytest.approx(250, rel=0.25)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_result_lies_where_the_input_lay(scan: Volume, dimensions: int) -> None:
    result = hushpore.denoise(scan, dimensions=dimensions, patch_depth=4, **QUICK)
    assert result.volume.shape == scan.shape
    assert result.volume.dtype == np.float32
    assert (result.volume.spacing, result.volume.unit) == ((5, 0.5, 0.5), "mm")
    assert result.volume.name == "bread denoised"
    assert result.volume.is_denoised


def test_the_record_allows_to_do_it_again(scan: Volume) -> None:
    result = hushpore.denoise(scan, seed=5, **QUICK)
    provenance = json.loads(json.dumps(result.provenance))
    assert provenance["job"] == "denoise"
    again = hushpore.run("denoise", scan, provenance["settings"], "cpu")
    np.testing.assert_array_equal(again.volume.data, result.volume.data)
    assert list(result.timings) == [
        "reading", "upload", "diagnosis", "training", "validation", "examination", "denoising",
        "download",
    ]  # fmt: skip


def test_a_seed_decides_the_result_and_the_global_states_are_untouched(scan: Volume) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = hushpore.denoise(scan, seed=1, **QUICK).volume.data
    np.testing.assert_array_equal(hushpore.denoise(scan, seed=1, **QUICK).volume.data, first)
    deep = [
        hushpore.denoise(scan, seed=1, dimensions=3, patch_depth=4, **QUICK).volume.data
        for _ in range(3)
    ]
    np.testing.assert_array_equal(deep[0], deep[1])
    np.testing.assert_array_equal(deep[0], deep[2])
    assert not np.array_equal(hushpore.denoise(scan, seed=2, **QUICK).volume.data, first)
    assert torch.equal(torch_state, torch.get_rng_state())
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002


def test_the_input_is_left_as_it_was(scan: Volume) -> None:
    before = scan.data.copy()
    hushpore.denoise(scan, **QUICK)
    np.testing.assert_array_equal(scan.data, before)


@small
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", ">i2", "u4", "i8", "f2", "f4", ">f8"])
def test_every_dtype_is_denoised(rng: np.random.Generator, dtype: str) -> None:
    values = rng.integers(0, 100, (2, 20, 20)).astype(dtype)
    assert np.isfinite(hushpore.denoise(values, **QUICK).volume.data).all()


@small
def test_channels_are_normalised_each_on_its_own(rng: np.random.Generator) -> None:
    values = rng.normal(size=(2, 3, 20, 20)).astype(np.float32)
    values[1] = 1e4 + 100 * values[1]
    result = hushpore.denoise(Volume(values, axes="czyx"), **QUICK)
    assert result.model.mean == pytest.approx((values[0].mean(), values[1].mean()), rel=1e-3)
    assert result.volume.data[1].mean() == pytest.approx(1e4, rel=0.05)
    assert abs(result.volume.data[0].mean()) < 5


@small
@pytest.mark.parametrize(("shape", "edge"), [((50, 70), 48), ((3, 17, 90), 16), ((2, 64, 80), 64)])
def test_patches_fit_into_small_images_where_their_size_is_left_open(
    rng: np.random.Generator, shape: tuple[int, ...], edge: int
) -> None:
    job = hushpore.start("denoise", rng.normal(size=shape), {"steps": 1, "batch_size": 1}, "cpu")
    (size,) = {event.patch_shape for event in job if isinstance(event, Batch)}
    assert size == (edge, edge)


def test_a_time_budget_ends_the_training(scan: Volume) -> None:
    result = hushpore.denoise(
        scan, steps=100_000, time_budget=1, patch_size=16, batch_size=2, device="cpu"
    )
    assert 1 <= result.provenance["result"]["steps"] < 100_000
    assert result.timings["training"] + result.timings.get("preview", 0) > 0.9


def test_events_tell_progress_loss_and_show_the_middle_slice(
    scan: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreviewPace, "due", lambda *_: True)
    events: list[object] = []
    hushpore.run(
        "denoise", scan, {"steps": 100_000, "time_budget": 1, "patch_size": 16}, "cpu",
        events.append,
    )  # fmt: skip
    fractions = [event.fraction for event in events if isinstance(event, Progress)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    losses = [event for event in events if isinstance(event, Metric) and event.name == "loss"]
    assert [loss.step % loop.LOG_INTERVAL for loss in losses[:-1]] == [0] * (len(losses) - 1)
    previews = [event for event in events if isinstance(event, Preview)]
    assert previews
    assert all(shown.index == (2,) and shown.image.shape == (30, 35) for shown in previews)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_previews_are_of_the_slice_that_is_looked_at(
    scan: Volume, dimensions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreviewPace, "due", lambda *_: True)
    settings = {"steps": 12, "patch_size": 16, "batch_size": 4, "dimensions": dimensions}
    job = hushpore.start("denoise", scan, settings, "cpu")
    shown, sent, previews = [None, (0,), (4,), (99,)], 0, []
    event = next(job)
    while len(previews) < 6:
        if isinstance(event, Progress) and event.stage == "training":
            sent += 1
        if isinstance(event, Preview):
            previews.append(event)
        at = shown[min(sent // 2, 3)]
        answers = at is not None and isinstance(event, Progress)
        event = job.send(Attention(at) if answers else None)
    job.close()
    indices = [preview.index[0] for preview in previews]
    last = scan.shape[0] - 1
    assert indices[0] == 2
    assert set(indices) >= {0, 4}
    assert indices[-1] == last
    assert previews[0].image.shape == scan.shape[1:]


@small
def test_noise_that_neighbours_share_is_said_and_kept_in_the_record(
    rng: np.random.Generator,
) -> None:
    lines = uniform_filter1d(rng.normal(size=(4, 40, 40)), 3, axis=2)
    result = hushpore.denoise(lines, method="n2v2", **QUICK)
    assert result.provenance["noise"]["correlation"]["x"] == pytest.approx(2 / 3, abs=0.1)
    assert "Try correlated_along='x'" in result.provenance["notes"][0]
    answered = hushpore.denoise(lines, correlated_along="x", **QUICK)
    assert not any("voxels is correlated" in note for note in answered.provenance["notes"])


@small
@pytest.mark.parametrize(
    ("axes", "shape", "settings", "inputs"),
    [
        ("zyx", (5, 30, 35), {"context": 2}, 5),
        ("tzyx", (2, 3, 30, 35), {"context": 1}, 3),
        ("tyx", (3, 30, 35), {"context": 1}, 3),
        ("czyx", (2, 3, 30, 35), {"channels": "together"}, 2),
        ("tcyx", (2, 3, 30, 35), {"channels": "together"}, 3),
        ("tczyx", (2, 2, 5, 30, 35), {"channels": "together", "dimensions": 3}, 2),
        ("tczyx", (2, 2, 5, 30, 35), {"dimensions": 3}, 1),
        ("zyx", (1, 31, 33), {"dimensions": 3}, 1),
        ("zyx", (3, 31, 33), {"method": "n2v", "replacement": "mean", "replacement_window": 3}, 3),
    ],
)
def test_any_axes_are_denoised_in_their_place_and_the_model_knows_how(
    rng: np.random.Generator,
    tmp_path: Path,
    axes: str,
    shape: tuple[int, ...],
    settings: dict[str, object],
    inputs: int,
) -> None:
    offsets = 1000.0 * np.arange(math.prod(shape[:-2])).reshape(*shape[:-2], 1, 1)
    values = rng.normal(0, 20, shape) + (offsets if "c" not in axes else 0)
    scan = Volume(values.astype(np.float32), axes=axes)
    quick = {"steps": 8, "patch_size": 16, "batch_size": 4, "precision": "float32"}
    result = hushpore.denoise(scan, device="cpu", **quick, **settings)
    assert result.volume.data.shape == shape
    assert result.provenance["network"]["inputs"] == inputs
    again = hushpore.load_model(result.model.save(tmp_path / "m.safetensors"))
    np.testing.assert_allclose(
        again.predict(scan, "cpu").data, result.volume.data, rtol=1e-3, atol=0.5
    )


@small
@pytest.mark.parametrize(
    ("shape", "spacing", "flat"),
    [
        ((20, 20, 20), (1, 1, 1), False),
        ((20, 20, 20), (1.9, 1, 1), False),
        ((20, 20, 20), (2, 1, 1), True),
        ((15, 20, 20), (1, 1, 1), True),
    ],
)
def test_z_is_not_down_sampled_where_it_is_coarse_or_short(
    rng: np.random.Generator, shape: tuple[int, ...], spacing: tuple[float, ...], flat: bool
) -> None:
    scan = Volume(rng.normal(size=shape), spacing=spacing)
    result = hushpore.denoise(scan, dimensions=3, **QUICK)
    assert result.provenance["network"]["flat"] is flat
    assert result.model.network.architecture.flat is flat


def test_the_validation_curve_is_of_the_same_patches_each_time(scan: Volume) -> None:
    events: list[object] = []
    settings = {"steps": 60, "patch_size": 16, "batch_size": 4, "precision": "float32"}
    # two values: of noise alone nothing can be learnt
    two = scan.replace(scan.data + 100 * (np.arange(scan.shape[-1]) > 17).astype(np.int16))
    result = hushpore.run("denoise", two, settings, "cpu", events.append)
    curve = [(e.step, e.value) for e in events if isinstance(e, Metric) and e.name == "validation"]
    assert [step for step, _ in curve] == [25, 50]
    np.testing.assert_allclose(result.validation, curve, rtol=1e-6)
    assert curve[1][1] < 0.9 * curve[0][1]


def test_one_and_two_threads_agree(scan: Volume) -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(hushpore.denoise(scan, precision="float32", **QUICK).volume.data)
    finally:
        torch.set_num_threads(before)
    # three steps let rounding grow to some thousandths of the noise, and move the mean with it
    assert np.abs(found[0] - found[1]).max() < 1e-2 * scan.data.std()


@small
def test_extremes_and_saturation_are_denoised(rng: np.random.Generator) -> None:
    extremes = np.where(rng.random((2, 32, 32)) < 0.5, -(2**63), 2**63 - 1)
    saturated = np.clip(rng.normal(200, 60, (2, 32, 32)), 0, 255).astype(np.uint8)
    for values in (extremes, saturated):
        assert np.isfinite(hushpore.denoise(values, **QUICK).volume.data).all()


def test_cancel_stops_at_once_and_leaves_nothing_running(scan: Volume) -> None:
    work = hushpore.start("denoise", scan, {"steps": 100_000, "patch_size": 16}, "cpu")
    for _ in range(5):
        next(work)
    work.close()
    assert next(work, None) is None


def test_stopping_early_keeps_what_was_learnt(scan: Volume) -> None:
    work = hushpore.start("denoise", scan, {"steps": 100_000, "patch_size": 16}, "cpu")
    for event in work:
        if isinstance(event, Progress) and event.stage == "training" and event.done >= 3:
            break
    work.throw(StopEarly())
    try:
        while True:
            next(work)
    except StopIteration as end:
        result = end.value
    assert result.provenance["result"]["steps"] < 20
    assert result.volume.shape == scan.shape
    notes = result.provenance["notes"]
    assert any(note.startswith("Training stopped by the user after ") for note in notes)
    # something is wrong after so few steps, and whoever stopped it is not told to train longer
    assert set(result.provenance["residual"]["problems"]) <= set(notes) != set()
    assert not any("rain longer" in note for note in notes)


def test_a_budget_of_months_is_no_error(scan: Volume) -> None:
    settings = {"time_budget": 1e7, "patch_size": 16, "batch_size": 2, "context": 0}
    job = hushpore.start("denoise", scan, settings, "cpu")
    for event in job:
        if isinstance(event, Progress) and event.stage == "training" and event.done == 2:
            break
    job.close()


def run_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, method: str, fits: object, where: object = Learner
) -> None:
    original = getattr(where, method)

    def limited(*args: object, **kwargs: object) -> object:
        if not fits(*args, **kwargs):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return original(*args, **kwargs)

    monkeypatch.setattr(where, method, limited)


def test_training_takes_smaller_batches_where_memory_runs_out(
    scan: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_out_of_memory(
        monkeypatch, "step", lambda self, image, batches, rate, step: batches.count <= 2
    )
    events: list[object] = []
    settings = {"steps": 3, "patch_size": 16, "batch_size": 8, "method": "n2v2"}
    result = hushpore.run("denoise", scan, settings, "cpu", events.append)
    notes = [event.message for event in events if isinstance(event, Note)]
    assert notes[:2] == [
        "Out of memory: batch size reduced to 4 patches.",
        "Out of memory: batch size reduced to 2 patches.",
    ]
    assert result.provenance["notes"] == notes


def test_prediction_takes_smaller_tiles_where_memory_runs_out(
    scan: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = hushpore.denoise(scan, precision="float32", **QUICK).volume.data
    run_out_of_memory(
        monkeypatch, "predict_tile",
        lambda network, padded, tile, *_: tile.kept[0].stop <= 1, volumes,
    )  # fmt: skip
    result = hushpore.denoise(scan, precision="float32", **QUICK)
    assert any("applied to smaller tiles" in note for note in result.provenance["notes"])
    np.testing.assert_allclose(result.volume.data, expected, rtol=1e-4, atol=1e-3)


def test_a_gpu_too_small_for_the_volume_hands_over_to_the_cpu(
    scan: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(self: Backend, values: np.ndarray) -> torch.Tensor:
        if self.is_cuda:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return torch.from_numpy(values)

    monkeypatch.setattr(Backend, "put", put)
    clocks: list[Clock] = []
    monkeypatch.setattr(Backend, "timer", lambda self: StageTimer())
    monkeypatch.setattr(StageTimer, "run_on", lambda self, clock: clocks.append(clock))
    monkeypatch.setattr(Backend, "release", lambda self: None)
    monkeypatch.setattr(Backend, "free_memory", lambda self: 1e9)
    monkeypatch.setattr(run, "choose_precision", lambda *_: torch.float32)
    gpu = Backend("cuda:0", "a small GPU", "as requested")
    result = hushpore.denoise(scan, **{**QUICK, "device": gpu})
    # from then on it is timed there
    assert [type(clock) for clock in clocks] == [HostClock]
    assert result.provenance["notes"][0] == "The GPU ran out of memory: fell back to the CPU."
    assert result.provenance["device"].endswith("(the GPU ran out of memory)")


def test_memory_for_not_even_one_patch_is_an_error_in_words(
    scan: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_out_of_memory(monkeypatch, "step", lambda *args: False)
    with pytest.raises(MemoryLimitError, match="not even one training patch fits into memory"):
        hushpore.denoise(scan, **QUICK)


def test_other_errors_are_not_taken_for_lack_of_memory(
    scan: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(Learner, "step", broken)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        hushpore.denoise(scan, **QUICK)


@pytest.mark.parametrize(
    ("data", "settings", "words"),
    [
        (np.full((4, 64, 64), 3.0), {}, "constant"),
        (np.where(np.eye(64) > 0, np.nan, 1.0), {}, "64 NaN"),
        (np.where(np.eye(64) > 0, np.inf, 1.0), {}, "NaN or infinite"),
        (np.eye(64, dtype=bool), {}, "is a mask"),
        (np.eye(40), {"patch_size": 64}, r"40 x 40 pixels\) are smaller than a patch"),
        (np.eye(64), {"dimensions": 3}, "Denoise it with dimensions=2"),
        (np.eye(64) + np.zeros((20, 1, 1)), {"dimensions": 3, "patch_depth": 32}, "patch_depth"),
        (np.eye(64), {"patch_size": 18}, "multiple of 4"),
        (np.eye(64), {"replacement_window": 4}, "replacement_window must be an odd number"),
        (np.eye(64), {"context": 1}, "at least 3 slices"),
        (np.eye(64), {"method": "care"}, "'n2v2', 'n2v'"),
        (np.eye(64), {"masked_share": 0.5}, "'paper' or a number from"),
        (np.eye(64), {"correlated_along": "z"}, "needs dimensions=3; got 2"),
        (np.eye(64), {"step": 18}, "setting 'step' does not exist"),
        (np.zeros((64, 64, 3), np.uint8), {}, "photograph"),
        (np.zeros((0, 64, 64)), {}, "empty"),
        (np.zeros(64), {}, "2 to 5 axes"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(
    data: np.ndarray, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        hushpore.denoise(data, device="cpu", **settings)


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_a_scan_far_from_zero_is_denoised_as_one_near_it(
    dtype: type, rng: np.random.Generator
) -> None:
    values = (300 * (rng.normal(size=(1, 12, 12)) > 0)).repeat(8, 1).repeat(8, 2).repeat(4, 0)
    values = np.rint(values + rng.normal(0, 40, values.shape)).astype(np.int32)
    how = {"steps": 20, "patch_size": 32, "batch_size": 4, "method": "n2v2", "device": "cpu"}
    near = hushpore.denoise(values, **how)
    far = hushpore.denoise((values + 10**8).astype(dtype), **how)
    away = far.volume.data.astype(np.float64) - 1e8 - near.volume.data
    # which varies by 150; results have steps of 8, and the mean is where it was to half of one
    assert np.sqrt(np.mean(away**2)) < 5
    assert not any("float32" in note for note in near.notes)
    assert any("steps of 8" in note for note in far.notes)
