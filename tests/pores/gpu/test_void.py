"""The void that is found on a GPU against the host's, and its parts against SciPy's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as how_often
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np
from scipy import ndimage as ndi

from hushpore import Volume
from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.rescaled import Scaled
from hushpore.device.timing import StageTimer
from hushpore.pores.engine import Engine
from hushpore.pores.gpu import engine as gpu_arrays
from hushpore.pores.gpu import void as gpu_grey
from hushpore.pores.gpu.engines import GpuWhole
from hushpore.pores.gpu.void import GpuGrey, GpuParts, why_on_host
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slab_steps import classify_void, find_air, find_grey_value, find_void
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.void.threshold import GreyValues, survey
from hushpore.pores.work import Work

if TYPE_CHECKING:
    from hushpore.pores.parallel import KernelThreads

SHAPE = (9, 14, 40)


class Void(NamedTuple):
    threshold: float | None
    problem: str
    phase: np.ndarray
    parts: int
    opened: int
    closed: int
    border_crossings: list[int]
    sample: list[int]


def found_by(
    volume: Volume, settings: PoreSettings, threads: KernelThreads, gpu: Any = None
) -> Void:
    depth = volume.shape[0] if volume.n_spatial == 3 else 1
    engine = Engine(threads) if gpu is None else GpuWhole(gpu, threads, StageTimer())
    how = Slabs(depth, depth), Scratch(on_disk=False), threads
    work = Work(volume, settings, *how, engine=engine)
    grey = result_of(find_grey_value(work))
    phase = result_of(find_void(work, grey))
    counts = result_of(classify_void(work, phase, result_of(find_air(work, phase))))
    phase_of, totals, crossings, air = (
        each if type(each) in (int, np.ndarray) else gpu.get_all([each])[0].astype(each.dtype)
        for each in (phase.read(0, depth), *counts)
    )
    sample = math.prod(volume.shape[1:]) - air
    beside = (np.zeros(13, np.int64) + np.asarray(crossings).astype(np.int64)).tolist()
    threshold, problem, *_ = grey.threshold
    return Void(threshold, problem, phase_of, *totals.tolist(), beside, sample.tolist())


def assert_equal(gpu: Any, volume: Volume, threads: KernelThreads, **how: Any) -> Void:
    settings = PoreSettings(**how)
    found = found_by(volume, settings, threads, gpu)
    expected = found_by(volume, settings, threads)
    np.testing.assert_array_equal(found.phase, expected.phase)
    assert found._replace(phase=None) == expected._replace(phase=None)
    return found


def smooth(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    values = ndi.gaussian_filter(np.random.default_rng(4).normal(size=shape), 1.2)
    return np.asarray(values / values.std())


def kinds() -> dict[str, Volume]:
    values = smooth()
    whole = np.clip(values * 40, -120, 120)
    lines = np.linspace(0.5, 1.7, SHAPE[0]), np.arange(SHAPE[0]) - 1000.1
    return {
        "the void itself": Volume(values > 0.3),
        "bytes": Volume((whole + 120).astype(np.uint8)),
        "bytes with a sign": Volume(whole.astype(np.int8)),
        "16 bits": Volume((whole * 200 + 30_000).astype(np.uint16)),
        "16 bits with a sign": Volume((whole * 250).astype(np.int16)),
        "the ends of a type": Volume(np.where(values > 0, 32767, -32768).astype(np.int16)),
        "the other byte order": Volume((whole * 200 + 30_000).astype(">u2")),
        "floats": Volume((values * 1e-3).astype(np.float32)),
        "floats with both zeros": Volume(np.copysign(np.abs(whole) > 90, values).astype("f4")),
        "on a line": Volume(Scaled((whole * 9 + 2000).astype(np.uint16), 1.0, -1024.0)),
        "on a line of fractions": Volume(Scaled(whole.astype(np.int8), 0.7301, -3.3)),
        "on a line for each slice": Volume(Scaled((whole + 120).astype(np.uint8), *lines)),
        "on a falling line": Volume(Scaled((whole * 9 + 2000).astype(np.uint16), -0.3, 7.0)),
        "an image": Volume((whole[0] * 9 + 2000).astype(np.uint16)),
        "an image on lines": Volume(
            Scaled((whole[0] + 120).astype(np.uint8), np.linspace(1, 2, SHAPE[1]), 5.0)
        ),
    }


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled", "parallel", "warps"])
def test_whatever_crosses_the_void_is_that_of_the_host(
    kind: str, order: str, emulated: Any, threads: KernelThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_arrays, "_THREADS", 700)
    # several blocks
    monkeypatch.setattr(gpu_grey, "_LEAST", 1500)
    emulated.run_threads(order)
    volume = kinds()[kind]
    for how in ({}, {"threshold": "li", "pores_are": "bright", "pore_type": "open"}):
        assert_equal(emulated, volume, threads, **how)
    if volume.dtype == np.bool_:
        return
    middle = float(np.median(np.asarray(volume.data)))
    low = middle - 0.5 * float(np.asarray(volume.data, float).std())
    assert_equal(emulated, volume, threads, threshold=middle, hysteresis=low, pore_type="closed")


@pytest.mark.parametrize("threshold", [-1e9, -0.5, 0.0, 99.5, 255.0, 1e9])
def test_a_threshold_beyond_all_values_is_said_as_on_the_host(
    threshold: float, emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads("forward")
    for dtype in (np.uint8, np.float32):
        volume = Volume(np.clip(smooth() * 60 + 128, 0, 255).astype(dtype))
        found = assert_equal(emulated, volume, threads, threshold=threshold)
        assert ("separates nothing" in found.problem) == (threshold not in (0.0, 99.5))


def voids() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    comb = np.zeros((6, 20, 24), bool)
    comb[1:-1, 1:-1, 1:-1:2] = comb[3, 3, 1:-1] = True
    return {
        "nothing": np.zeros(SHAPE, bool),
        "everything": np.ones(SHAPE, bool),
        "one voxel": np.ones((1, 1, 1), bool),
        "dust": rng.random(SHAPE) < 0.25,
        "a sponge": rng.random(SHAPE) < 0.45,
        "a comb": comb,
    }


@pytest.mark.parametrize("name", voids())
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled", "parallel"])
def test_parts_are_those_of_scipy(
    name: str, order: str, emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads(order)
    void = voids()[name]
    found = assert_equal(emulated, Volume(void), threads)
    labels, count = ndi.label(void)
    inner = np.zeros_like(void)
    inner[1:-1, 1:-1, 1:-1] = True
    at_face = np.isin(labels, np.unique(labels[~inner & void]))
    closed = int(np.count_nonzero(void & ~at_face))
    expected = (count, int(void.sum()) - closed, closed)
    assert (found.parts, found.opened, found.closed) == expected


@given(void=st_np.arrays(bool, st_np.array_shapes(min_dims=2, max_dims=3, max_side=7)))
@how_often(max_examples=80, deadline=None)
def test_any_small_void_is_taken_apart_as_on_the_host(
    void: np.ndarray, emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads("shuffled")
    assert_equal(emulated, Volume(void), threads)


@given(
    values=st_np.arrays(np.float32, (2, 3, 4), elements=st.floats(-(2.0**100), 2.0**100, width=32))
)
@how_often(max_examples=80, deadline=None)
def test_any_floats_are_counted_as_on_the_host(
    values: np.ndarray, emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads("parallel")
    volume = Volume(values)
    if values.min() == values.max():
        with pytest.raises(InputError, match="is constant"):
            GpuGrey(emulated, volume).survey(with_histogram=True)
        return
    engine: Any = GpuWhole(emulated, threads, StageTimer())
    found, histogram = result_of(engine.survey(GpuGrey(emulated, volume), True, None))
    expected, counted = result_of(survey(GreyValues(volume, Slabs(2, 2)), True, threads))
    assert found == expected
    assert histogram is not None
    assert counted is not None
    np.testing.assert_array_equal(histogram.counts, counted.counts)
    np.testing.assert_array_equal(histogram.centers, counted.centers)


def samples() -> dict[str, Volume]:
    """Solid with pores, and air around it."""
    z, y, x = np.ogrid[:12, :30, :34]
    grain = (y - 15) ** 2 + (x - 16) ** 2 < 13**2
    solid = np.broadcast_to(grain, (12, 30, 34)) & (smooth((12, 30, 34)) > -0.8)
    solid[:, 10:13, :16] = False
    inside = solid & (z > 1) & (z < 10)
    return {
        "from end to end": Volume(~solid, spacing=(2.0, 1.0, 1.0)),
        "free on all sides": Volume(~inside),
        "flat voxels": Volume(~inside, spacing=(0.7, 1.0, 1.3)),
        "an image": Volume(~solid[5]),
        "no air": Volume(np.pad(smooth((5, 6, 7)) < 0.2, 4)),
    }


@pytest.mark.parametrize("name", samples())
@pytest.mark.parametrize("order", ["forward", "reverse", "shuffled", "parallel"])
def test_the_air_outside_is_that_of_the_host(
    name: str, order: str, emulated: Any, threads: KernelThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_arrays, "_THREADS", 700)
    emulated.run_threads(order)
    volume = samples()[name]
    for outside in ("remove", "remove-slicewise"):
        for mode in ("all", "open", "closed"):
            how = {"exterior": outside, "pore_type": mode, "ball_radius": 3.0}
            found = assert_equal(emulated, volume, threads, **how)
        whole = math.prod(volume.shape)
        assert (sum(found.sample) < whole) == (name != "no air")


def test_a_void_without_a_sample_is_refused(emulated: Any, threads: KernelThreads) -> None:
    emulated.run_threads("forward")
    with pytest.raises(InputError, match="no sample that air could surround"):
        found_by(Volume(np.ones(SHAPE, bool)), PoreSettings(exterior="remove"), threads, emulated)


@pytest.mark.parametrize("threshold", ["otsu", 0.5])
@pytest.mark.parametrize(
    "bad", [[np.nan], [np.inf, -np.inf], [], [np.nan] * math.prod(SHAPE)], ids=len
)
def test_what_cannot_be_used_is_refused_as_on_the_host(
    bad: list[float], threshold: str | float, emulated: Any, threads: KernelThreads
) -> None:
    emulated.run_threads("parallel")
    values = np.full(SHAPE, 3, np.float32)
    values.reshape(-1)[: len(bad)] = bad
    settings = PoreSettings(threshold=threshold)
    with pytest.raises(InputError) as said:
        found_by(Volume(values), settings, threads)
    with pytest.raises(InputError) as said_there:
        found_by(Volume(values), settings, threads, emulated)
    assert str(said_there.value) == str(said.value)


def test_hysteresis_that_is_not_stricter_is_refused(emulated: Any, threads: KernelThreads) -> None:
    emulated.run_threads("forward")
    how = PoreSettings(threshold=0.0, hysteresis=0.1)
    with pytest.raises(InputError, match="below it for dark pores"):
        found_by(kinds()["floats"], how, threads, emulated)


@pytest.mark.parametrize(
    ("how", "dtype", "reason"),
    [
        ({}, np.uint16, ""),
        ({"exterior": "remove"}, np.uint8, ""),
        ({"sample_mask": "m"}, np.uint8, "the host applies the sample mask"),
        ({"threshold": "sauvola"}, np.uint8, "the host finds the local threshold sauvola"),
        ({"threshold": "sauvola"}, bool, ""),
        ({}, np.int32, "values of int32 are larger than their void"),
        ({}, np.float64, "values of float64 are larger than their void"),
    ],
)
def test_why_the_host_finds_the_void_is_said(how: dict[str, Any], dtype: Any, reason: str) -> None:
    assert why_on_host(Volume(np.zeros((2, 3, 4), dtype)), PoreSettings(**how)) == reason


def test_only_faces_are_looked_at_for_open_parts(
    emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = []
    emulated.watch(monkeypatch, lambda name, number, *rest: blocks.append((name, number)))
    parts = GpuParts(emulated, emulated.put(np.ones((64, 64, 64), np.uint8)))
    blocks.clear()
    parts.mark_faces(along_z=(True, True), along_y=True)
    assert {name for name, _ in blocks} == {"mark_face"}
    # of 256 threads each
    assert 256 * sum(number for _, number in blocks) == 6 * 64**2


@pytest.mark.gpu
@pytest.mark.needs("cupy")
@pytest.mark.parametrize("kind", kinds())
def test_on_a_gpu_the_void_is_that_of_the_host(kind: str, threads: KernelThreads) -> None:
    from hushpore.device.backend import choose_backend
    from hushpore.pores.gpu.engine import Gpu

    gpu, volume = Gpu.of(choose_backend("cuda")), kinds()[kind]
    for how in ({}, {"threshold": "li", "pores_are": "bright", "pore_type": "open"}):
        assert_equal(gpu, volume, threads, **how)


@pytest.mark.gpu
@pytest.mark.needs("cupy")
@pytest.mark.parametrize("name", voids())
def test_on_a_gpu_parts_are_those_of_the_host(name: str, threads: KernelThreads) -> None:
    from hushpore.device.backend import choose_backend
    from hushpore.pores.gpu.engine import Gpu

    assert_equal(Gpu.of(choose_backend("cuda")), Volume(voids()[name]), threads)


@pytest.mark.gpu
@pytest.mark.needs("cupy")
@pytest.mark.parametrize("name", samples())
def test_on_a_gpu_the_air_outside_is_that_of_the_host(name: str, threads: KernelThreads) -> None:
    from hushpore.device.backend import choose_backend
    from hushpore.pores.gpu.engine import Gpu

    gpu = Gpu.of(choose_backend("cuda"))
    for outside in ("remove", "remove-slicewise"):
        assert_equal(gpu, samples()[name], threads, exterior=outside, ball_radius=3.0)


@pytest.mark.parametrize("hot", [(1e8,), (-1e6,), (1e12, -1e9)])
def test_voxels_far_outside_are_seen_as_on_the_host(
    emulated: Any, threads: KernelThreads, hot: tuple[float, ...]
) -> None:
    emulated.run_threads("forward")
    values = np.where(smooth((20, 30, 40)) > 0, 300, 1000).astype(np.float32)
    values += np.random.default_rng(0).normal(0, 20, values.shape).astype(np.float32)
    values[2, 2, 2 : 2 + len(hot)] = hot
    found = assert_equal(emulated, Volume(values), threads)
    assert found.threshold is not None
    assert 300 < found.threshold < 1000
