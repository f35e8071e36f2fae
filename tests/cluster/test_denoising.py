"""What a cluster denoises is what one machine denoises; what was broken off goes on."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
import torch
from scipy import ndimage

import hushpore
from hushpore.base.errors import DeviceError, InputError, NotTrustedError, OutputError
from hushpore.base.events import Metric, Note, Progress, StopEarly, Timing, result_of
from hushpore.base.volume import Volume
from hushpore.denoising.fill_value import fill_value_of
from hushpore.denoising.noise import restore_detail_in_place
from hushpore.denoising.plane_reader import PlaneReader, measure_scale
from hushpore.denoising.rings import without_rings
from hushpore.denoising.settings import DenoiseSettings
from hushpore.io import guards, read, read_all
from hushpore.io.results import write_image
from hushpore.runs.rerun import rerun
from hushpore.scan.noise_model import NoiseDiagnosis

distributed = pytest.importorskip("distributed")
pytest.importorskip("zarr")

from hushpore.cluster import denoise_tasks, denoising  # noqa: E402
from hushpore.cluster.connection import connect  # noqa: E402
from hushpore.cluster.denoising import denoise_on  # noqa: E402
from hushpore.io.zarr import write_zarr  # noqa: E402
from hushpore.io.zarr_reader import open_zarr  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt
    from distributed import Client

    from hushpore.denoising.trained_model import Model

pytestmark = pytest.mark.usefixtures("small_network")

QUICK = DenoiseSettings(steps=3, patch_size=16, batch_size=4, test_time_augmentation=False)

#: As by default, where results of small volumes are averaged over orientations.
AVERAGED = dataclasses.replace(QUICK, test_time_augmentation=None)


@pytest.fixture(scope="module")
def client(start_workers: Callable[[int], Any]) -> Iterator[Client]:
    """Two workers in this process."""
    with distributed.Client(start_workers(2), set_as_default=False) as opened:
        opened.wait_for_workers(2, timeout=60)
        yield opened


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from hushpore.denoising.inference import blocks, volumes
    from hushpore.io import zarr

    cores = {2: (4, 32, 32), 3: (1, 8, 16, 16)}
    for module in (blocks, volumes, denoising):
        monkeypatch.setattr(module, "CORES", cores)
    monkeypatch.setattr(zarr, "_CHUNK", 16)
    monkeypatch.setattr(zarr, "_BLOCK", 32)
    monkeypatch.setattr(zarr, "_SMALLEST", 40)


@pytest.fixture
def noisy() -> Volume:
    z, y, x = np.ogrid[:20, :50, :70]
    values = 1000 + 300 * np.sin(y / 6) * np.cos(x / 7) + 0 * z
    values = values + np.random.default_rng(0).normal(0, 60, values.shape)
    return Volume(values.astype(np.int16), spacing=(2, 1, 1), unit="um", name="scan")


@pytest.fixture
def scan(tmp_path: Path, noisy: Volume) -> Path:
    return write_zarr(tmp_path / "scan.ome.zarr", noisy)


def on_one_thread(
    model: Model, volume: Volume, averaged: bool | None = False
) -> npt.NDArray[np.float32]:
    """What one machine predicts; on more threads PyTorch rounds differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return model.predict(volume, "cpu", test_time_augmentation=averaged).array()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_values_are_those_of_one_machine_with_the_same_model(
    client: Client, noisy: Volume, tmp_path: Path, dimensions: int
) -> None:
    if dimensions == 3:
        noisy = noisy.replace(noisy.data[:, :33, :17])
    scan = write_zarr(tmp_path / "scan.ome.zarr", noisy)
    settings = dataclasses.replace(
        AVERAGED, dimensions=dimensions, patch_depth=8, precision="float32", steps=2
    )
    found = result_of(denoise_on(client, scan, tmp_path / "clean.ome.zarr", settings))
    expected = on_one_thread(found.model, noisy, averaged=None)
    back = read(tmp_path / "clean.ome.zarr")
    np.testing.assert_array_equal(back.data, expected)
    assert (back.spacing, back.unit, back.name) == ((2, 1, 1), "um", "scan denoised")
    assert found.volume.shape == noisy.shape
    assert len(found.losses) > 0
    scale = measure_scale(PlaneReader(noisy, dimensions))
    np.testing.assert_allclose(
        [*found.model.mean, *found.model.std], [*scale.mean, *scale.std], rtol=1e-12
    )
    residual = noisy.data - expected.astype(np.float64)
    assert found.provenance["residual"]["mean"] == pytest.approx(residual.mean(), abs=1e-6)
    assert found.provenance["residual"]["deviation"] == pytest.approx(residual.std())
    assert found.headline.startswith("Denoised · noise removed: SD ")
    provenance = json.loads((tmp_path / "clean.ome.json").read_text())
    assert provenance["job"] == "denoise"
    assert provenance["settings"]["steps"] == 2
    assert provenance["cluster"] == {"blocks": 12 if dimensions == 2 else 4, "written_before": 0}


@pytest.mark.parametrize("dimensions", [2, 3])
def test_detail_is_restored_in_blocks_as_on_one_machine(
    client: Client, tmp_path: Path, rng: np.random.Generator, dimensions: int
) -> None:
    # wider than a block with its margins, with lines finer than a blind spot can see
    shape = (20, 50, 70) if dimensions == 2 else (20, 50, 17)
    values = np.where(np.arange(shape[-1]) % 9, 1000, 1900) + rng.normal(0, 60, shape)
    noisy = Volume(values.astype(np.float32), name="scan")
    scan = write_zarr(tmp_path / "scan.ome.zarr", noisy)
    settings = dataclasses.replace(
        QUICK, method="n2v2", dimensions=dimensions, patch_depth=8, precision="float32", steps=2,
        restore_detail=True,
    )  # fmt: skip
    found = result_of(denoise_on(client, scan, tmp_path / "clean.ome.zarr", settings))
    expected = on_one_thread(found.model, noisy)
    plain = expected.copy()
    told = {key: value for key, value in found.provenance["noise"].items() if key != "summary"}
    noise = NoiseDiagnosis(**told)
    result_of(restore_detail_in_place(PlaneReader(noisy, dimensions), expected, noise))
    np.testing.assert_array_equal(found.volume.array(), expected)
    assert (expected != plain).mean() > 0.9
    residual = noisy.data - expected.astype(np.float64)
    assert found.provenance["residual"]["deviation"] == pytest.approx(residual.std())
    assert found.provenance["timings"]["detail restoration"] > 0
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "clean.ome.json", "clean.ome.zarr", "scan.ome.zarr"
    ]  # fmt: skip


def test_no_detail_is_restored_where_noise_could_not_be_told_from_it(
    client: Client, tmp_path: Path, rng: np.random.Generator
) -> None:
    values = 1000 + 300 * ndimage.gaussian_filter(rng.normal(size=(20, 50, 70)), (0, 0, 1.5))
    scan = write_zarr(tmp_path / "scan.ome.zarr", Volume(values.astype(np.float32)))
    settings = dataclasses.replace(QUICK, method="n2v2", precision="float32", restore_detail=True)
    events: list[Any] = []
    job = denoise_on(client, scan, tmp_path / "clean.ome.zarr", settings)
    found = result_of(job, events.append)
    notes = [event.message for event in events if isinstance(event, Note)]
    assert any(note.startswith("No detail was restored") for note in notes)
    expected = on_one_thread(found.model, read(scan))
    np.testing.assert_array_equal(found.volume.array(), expected)


@pytest.mark.parametrize("restore_detail", [False, True])
def test_what_is_filled_in_stays_as_it_is_in_blocks_too(
    client: Client, tmp_path: Path, restore_detail: bool
) -> None:
    y, x = np.indices((50, 70)) - np.array([24.5, 34.5])[:, None, None]
    outside = np.hypot(y, x) > 24
    noisy = np.random.default_rng(0).normal(100, 20, (6, 50, 70))
    values = np.where(outside, -500, noisy).astype(np.int16)
    known = {"padding_value": -500}
    scan = write_zarr(tmp_path / "scan.ome.zarr", Volume(values, metadata=known))
    settings = dataclasses.replace(
        QUICK, method="n2v2", precision="float32", steps=2, restore_detail=restore_detail
    )
    found = result_of(denoise_on(client, scan, tmp_path / "clean.ome.zarr", settings))
    # across blocks, too
    np.testing.assert_array_equal(found.volume.array() == -500, fill_value_of(values, -500))
    assert found.provenance["padding_value"] == -500
    assert found.volume.metadata == known | {"denoised": True}


def test_it_tells_what_one_machine_tells(client: Client, scan: Path, tmp_path: Path) -> None:
    events: list[Any] = []
    result_of(denoise_on(client, scan, tmp_path / "clean.zarr", QUICK), events.append)
    kinds = {type(event) for event in events}
    assert {Progress, Timing, Metric, Note} <= kinds
    shares = [event.fraction for event in events if isinstance(event, Progress)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9
    newest = [event for event in events if isinstance(event, Timing)][-1]
    assert {"training", "denoising", "writing", "reading", "coarser levels"} <= set(newest.stages)
    # by the workers, in the place where the volume lies
    assert newest.stages["denoising"].voxels == 20 * 50 * 70
    assert "2 workers" in next(event.message for event in events if isinstance(event, Note))


def test_a_model_is_applied_without_training(
    client: Client, scan: Path, noisy: Volume, tmp_path: Path
) -> None:
    quick = {"steps": 2, "patch_size": 16, "batch_size": 4, "test_time_augmentation": False}
    trained = hushpore.denoise(noisy, device="cpu", precision="float32", **quick)
    trained.model.save(tmp_path / "model.safetensors")
    settings = DenoiseSettings(model=str(tmp_path / "model.safetensors"), precision="float32")
    found = result_of(denoise_on(client, scan, tmp_path / "clean.zarr", settings))
    model = hushpore.load_model(tmp_path / "model.safetensors")
    expected = on_one_thread(model, noisy, averaged=None)
    np.testing.assert_array_equal(found.volume.array(), expected)
    assert found.provenance["result"]["steps"] == 0
    # as one machine says which it was
    alone = hushpore.denoise(noisy, model=settings.model, device="cpu").provenance
    assert found.provenance["auxiliary"] == alone["auxiliary"]
    assert alone["auxiliary"]["model"]["blake2b"] == trained.model.fingerprint


def test_a_denoising_in_blocks_is_not_made_again_and_why(
    client: Client, scan: Path, tmp_path: Path
) -> None:
    result_of(denoise_on(client, scan, tmp_path / "clean.ome.zarr", QUICK))
    with pytest.raises(InputError, match=r"denoised on a cluster, .* without --cluster"):
        result_of(rerun(tmp_path / "clean.ome.json", tmp_path / "again.tif"))
    assert not (tmp_path / "again.tif").exists()


def test_a_model_makes_nothing_of_values_that_are_no_numbers(
    client: Client, noisy: Volume, tmp_path: Path
) -> None:
    model = hushpore.denoise(noisy, steps=1, patch_size=16, batch_size=2, device="cpu").model
    model.save(tmp_path / "model.safetensors")
    values = noisy.data.astype(np.float32)
    values[3, 4, 5:9] = np.nan
    scan = write_zarr(tmp_path / "holed.ome.zarr", Volume(values))
    settings = DenoiseSettings(model=str(tmp_path / "model.safetensors"))
    with pytest.raises(InputError, match="contains 4 NaN or infinite values"):
        result_of(denoise_on(client, scan, tmp_path / "clean.ome.zarr", settings))
    assert not (tmp_path / "clean.ome.zarr").exists()


def test_the_grey_scale_of_half_precision_is_that_of_one_machine(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(1000, 200, (4, 32, 32)).astype(np.float16)
    scan = write_zarr(tmp_path / "scan.ome.zarr", Volume(values))
    paths = denoise_tasks.Paths(open_zarr(scan)[0], "", "")
    block = (slice(0, 4), slice(0, 32), slice(0, 32))
    (measured,), _ = denoise_tasks.measure_block(paths, block)
    volume = Volume(values)
    found, expected = (
        denoise_tasks.scale_of([measured], volume),
        measure_scale(PlaneReader(volume, 2)),
    )
    assert found.mean == pytest.approx(expected.mean, rel=1e-6)
    assert found.std == pytest.approx(expected.std, rel=1e-6)


def test_training_ends_early_with_what_was_learnt(
    client: Client, scan: Path, tmp_path: Path
) -> None:
    settings = dataclasses.replace(QUICK, steps=100_000)
    job = denoise_on(client, scan, tmp_path / "clean.zarr", settings)
    event = next(job)
    while not (isinstance(event, Progress) and event.stage == "training" and event.done > 3):
        event = next(job)
    event = job.throw(StopEarly())
    found = result_of(job)
    assert 3 < found.provenance["result"]["steps"] < 100_000
    assert any("Training stopped by the user" in note for note in found.provenance["notes"])


def test_cancelled_it_leaves_nothing_behind(client: Client, scan: Path, tmp_path: Path) -> None:
    before = sorted(item.name for item in tmp_path.iterdir())
    settings = dataclasses.replace(QUICK, steps=100_000)
    for stage in ("measuring", "training"):
        job = denoise_on(client, scan, tmp_path / "clean.zarr", settings)
        event = next(job)
        while not (isinstance(event, Progress) and event.stage == stage):
            event = next(job)
        job.close()
        assert sorted(item.name for item in tmp_path.iterdir()) == before


def test_what_was_lost_with_the_cluster_goes_on_from_its_blocks(
    client: Client, scan: Path, noisy: Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(QUICK, precision="float32")
    job = denoise_on(client, scan, tmp_path / "clean.zarr", settings)
    event = next(job)
    while not (isinstance(event, Progress) and event.stage == "denoising" and event.done == 5):
        event = next(job)
    with pytest.raises(DeviceError):
        job.throw(DeviceError("gone"))
    assert not (tmp_path / "clean.zarr").exists()
    assert not (tmp_path / "clean.json").exists()
    trained = []
    monkeypatch.setattr(denoising, "watch", lambda *_: trained.append(1))
    found = result_of(denoise_on(client, scan, tmp_path / "clean.zarr", settings))
    there = found.provenance["cluster"]["written_before"]
    assert 5 <= there < 12
    assert any(f"{there} of 12 blocks" in note for note in found.provenance["notes"])
    assert not trained
    expected = on_one_thread(found.model, noisy)
    np.testing.assert_array_equal(found.volume.array(), expected)
    # also of all blocks, those of the first run included
    residual = noisy.data - expected.astype(np.float64)
    assert found.provenance["residual"]["deviation"] == pytest.approx(residual.std())
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "clean.json", "clean.zarr", "scan.ome.zarr"
    ]  # fmt: skip


def test_what_is_no_ome_zarr_is_converted_first_and_that_is_said(
    client: Client, noisy: Volume, tmp_path: Path
) -> None:
    path = write_image(tmp_path / "scan.tif", noisy)
    for given in (path, noisy):
        events: list[Any] = []
        work = denoise_on(client, given, tmp_path / "clean.zarr", QUICK, overwrite=True)
        found = result_of(work, events.append)
        assert any("converted first" in note.message for note in events if isinstance(note, Note))
        assert found.volume.shape == noisy.shape
        assert sorted(item.name for item in tmp_path.iterdir()) == [
            "clean.json", "clean.zarr", "scan.tif"
        ]  # fmt: skip


def test_an_image_of_a_zarr_folder_is_found_by_its_volume(
    client: Client, scan: Path, tmp_path: Path
) -> None:
    (volume,) = read_all(scan, lazy=True)
    events: list[Any] = []
    result_of(denoise_on(client, volume, tmp_path / "clean.zarr", QUICK), events.append)
    assert not any("converted" in note.message for note in events if isinstance(note, Note))


def test_a_voxel_size_that_was_given_is_that_of_the_result(
    client: Client, scan: Path, tmp_path: Path
) -> None:
    (volume,) = read_all(scan, lazy=True)
    given = dataclasses.replace(volume, spacing=15.4, unit="um")
    target = tmp_path / "clean.zarr"
    result_of(denoise_on(client, given, target, QUICK))
    (written,) = read_all(target)
    assert (written.spacing, written.unit) == ((15.4,) * written.n_spatial, "um")


def test_two_scans_give_what_they_give_on_one_machine_where_their_files_are_trusted(
    client: Client, scan: Path, noisy: Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # all that is compressed needs consent
    monkeypatch.setattr(guards, "LARGEST_RATIO", 1)
    monkeypatch.setattr(guards, "SMALL", 0)
    values = noisy.data + np.random.default_rng(1).normal(0, 80, noisy.shape)
    # of another format, which is converted as the first would be
    other = noisy.replace(values.astype(np.int16), name="second")
    pair = str(write_image(tmp_path / "second.tif", other))
    mask = str(write_image(tmp_path / "mask.tif", noisy.replace((values > 1300).astype(np.uint8))))
    settings = dataclasses.replace(QUICK, pair=pair, leave_out=mask, precision="float32")
    for named in (settings, dataclasses.replace(QUICK, leave_out=mask)):
        with pytest.raises(NotTrustedError, match="trust=True"):
            result_of(denoise_on(client, scan, tmp_path / "clean.zarr", named))
    work = denoise_on(client, scan, tmp_path / "clean.zarr", settings, trust=True)
    found = result_of(work)
    first, second = (on_one_thread(found.model, each) for each in (noisy, other))
    np.testing.assert_allclose(found.volume.array(), (first + second) / 2, rtol=1e-5, atol=0.01)
    made = found.provenance
    assert made["network"]["method"] == "n2n"
    assert len(made["auxiliary"]["pair"]["blake2b_of_blocks"]) == 32
    assert made["auxiliary"]["leave_out"]["shape"] == [20, 50, 70]
    assert made["pair"]["likeness"] > 0.9
    settings = dataclasses.replace(QUICK, pair=str(scan))
    with pytest.raises(InputError, match="same noise"):
        result_of(denoise_on(client, scan, tmp_path / "a.zarr", settings, trust=True))


def test_rings_are_taken_out_of_both_scans_as_on_one_machine(
    client: Client, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:64, :64]
    offsets = rng.normal(0, 100, (8, 48))
    rings = np.stack([np.interp(np.hypot(y - 31.5, x - 31.5), np.arange(48), e) for e in offsets])
    first, second = (
        Volume((1000 + rings + rng.normal(0, 50, rings.shape)).astype(np.int16), name=name)
        for name in ("first", "second")
    )
    paths = [write_zarr(tmp_path / f"{each.name}.zarr", each) for each in (first, second)]
    settings = dataclasses.replace(
        QUICK, correct_rings=True, pair=str(paths[1]), precision="float32"
    )
    found = result_of(denoise_on(client, paths[0], tmp_path / "clean.zarr", settings))
    free = [result_of(without_rings(each)) for each in (first, second)]
    assert [each["centre"] for each in found.provenance["rings"]] == [[31.5, 31.5]] * 2
    each = [on_one_thread(found.model, volume) for volume in free]
    np.testing.assert_allclose(found.volume.array(), (each[0] + each[1]) / 2, rtol=1e-5, atol=0.01)
    assert np.asarray(free[0].data).std() < 0.7 * first.data.std()


def test_it_refuses_what_cannot_work(client: Client, scan: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"\.zarr"):
        denoise_on(client, scan, tmp_path / "clean.tif", QUICK)
    bad = np.ones((4, 40, 40), np.float32)
    flat = write_zarr(tmp_path / "flat.zarr", Volume(bad))
    bad[1, 2, 3] = np.nan
    nan = write_zarr(tmp_path / "nan.zarr", Volume(bad))
    for path, message in ((flat, "constant"), (nan, "1 NaN or infinite")):
        with pytest.raises(InputError, match=message):
            result_of(denoise_on(client, path, tmp_path / "a.zarr", QUICK))
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.long
def test_a_worker_that_is_killed_costs_its_block_alone(noisy: Volume, tmp_path: Path) -> None:
    scan = write_zarr(tmp_path / "scan.zarr", noisy)
    settings = dataclasses.replace(QUICK, precision="float32")
    with connect("local:2") as client:
        job = denoise_on(client, scan, tmp_path / "clean.zarr", settings)
        killed = False
        while True:
            try:
                event = next(job)
            except StopIteration as end:
                found = end.value
                break
            if isinstance(event, Progress) and event.stage == "denoising" and not killed:
                pid = next(iter(client.run(os.getpid).values()))
                psutil.Process(pid).send_signal(signal.SIGKILL)
                killed = True
    assert killed
    np.testing.assert_array_equal(found.volume.array(), on_one_thread(found.model, noisy))


def test_the_residual_is_compared_with_the_noise_of_the_scan(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(0, 20, (12, 64, 64)).astype(np.float32)
    scan, clean = (
        write_zarr(tmp_path / f"{name}.ome.zarr", Volume(values))
        for name, values in (("scan", 100 + noise), ("clean", np.full_like(noise, 100)))
    )
    paths = denoise_tasks.Paths(read(scan), str(clean), str(tmp_path))
    residual, _ = denoise_tasks.examine(paths, DenoiseSettings(), 2, (float(noise.mean()), 20.0))
    assert residual.match is not None
    assert residual.match.share > 0.95
