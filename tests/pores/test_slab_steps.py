"""Slabs change nothing: not how many, nor where they lie, nor what the volume is read from."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

import hushpore
from hushpore import InputError, Volume
from hushpore.base import provenance
from hushpore.base.events import result_of
from hushpore.device.backend import Backend
from hushpore.pores import job, noise, parallel
from hushpore.pores.job import segment_pores
from hushpore.pores.settings import PoreSettings
from hushpore.pores.slabs import Slabs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hushpore.pores.result import Pores

    Cut = Callable[..., None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, empty."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setenv("HUSHPORE_TEMPORARY_FOLDER", str(place))
    return place


@pytest.fixture
def cut(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Cut:
    """Have jobs cut volumes into slabs, whatever their size."""

    def cut(thickness: int, *, on_disk: bool = True, threads: int = 2) -> None:
        def plan(volume: Volume, settings: PoreSettings) -> Slabs:
            depth = volume.shape[0] if volume.n_spatial == 3 else 1
            return Slabs(depth, min(thickness, depth), on_disk)

        monkeypatch.setattr(job, "plan_slabs", plan)
        monkeypatch.setattr(parallel, "cpu_threads", lambda: threads)

    return cut


@pytest.fixture(scope="module")
def scan() -> np.ndarray:
    """A noisy scan of a foam of two greys, so that there are many small parts too."""
    noise = np.random.default_rng(7).normal(size=(28, 36, 40))
    grey = np.where(ndimage.gaussian_filter(noise, 2.5) > 0, 60, 180)
    rng = np.random.default_rng(8)
    return (grey + rng.normal(0, 35, grey.shape)).clip(0, 255).astype(np.uint8)


def assert_same(found: Pores, expected: Pores) -> None:
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.pores.equals(expected.pores)
    assert found.throats.equals(expected.throats)
    assert found.threshold == expected.threshold
    assert found.provenance["result"] == expected.provenance["result"]
    np.testing.assert_array_equal(found.porosity_profile, expected.porosity_profile)
    for name, values in vars(expected.graph).items():
        np.testing.assert_array_equal(getattr(found.graph, name), values)


# 1, 2, 3, 7 and 28 slabs
@pytest.mark.parametrize("thickness", [28, 14, 10, 4, 1])
@pytest.mark.parametrize(("on_disk", "threads"), [(True, 1), (True, 2), (False, 2)])
def test_any_slabs_give_the_same_bits(
    scan: np.ndarray, cut: Cut, thickness: int, on_disk: bool, threads: int
) -> None:
    volume = Volume(scan, spacing=(1.5, 1, 1.2), unit="um")
    expected = hushpore.segment_pores(volume)
    cut(thickness, on_disk=on_disk, threads=threads)
    found = hushpore.segment_pores(volume)
    assert isinstance(found.labels, np.memmap) == on_disk
    assert_same(found, expected)


@pytest.mark.parametrize(
    "values",
    [
        {"pore_type": "closed"},
        {"pore_type": "open", "border_is_solid": True},
        {"threshold": 130, "hysteresis": 40},
        {"exterior": "remove", "ball_radius": 3},
        {"exterior": "remove", "ball_radius": 2, "border_is_solid": True, "pore_type": "closed"},
        {"exterior": "remove-slicewise", "ball_radius": 3, "pore_type": "open"},
        {"merging": "snow"},
        {
            "edge_pores": "remove",
            "minimum_voxels": 5,
            "minimum_shape_voxels": 30,
            "merge_height": 1.5,
        },
        {"threshold": "sauvola", "local_window": 9, "pores_are": "bright"},
        {"connectivity": "faces", "threshold": 110},
    ],
    ids=lambda values: " ".join(map(str, values.values())),
)
def test_slabs_change_nothing_whatever_is_asked_for(
    scan: np.ndarray, cut: Cut, values: dict[str, Any]
) -> None:
    # a sample in air: a block with the pores of the scan
    sample = np.pad(scan, ((3, 4), (5, 3), (2, 6)), constant_values=20)
    expected = hushpore.segment_pores(sample, **values)
    cut(6)
    assert_same(hushpore.segment_pores(sample, **values), expected)


@pytest.mark.parametrize("dtype", [np.uint8, ">i2", np.uint32, np.float32, np.bool_])
def test_slabs_are_read_from_any_source(
    scan: np.ndarray, cut: Cut, tmp_path: Path, dtype: Any
) -> None:
    dask_array, zarr = map(pytest.importorskip, ("dask.array", "zarr"))
    values = (scan > 120) if dtype == np.bool_ else (scan.astype(dtype) - 50)
    expected = hushpore.segment_pores(values)
    cut(9)
    mapped = np.memmap(tmp_path / "values.raw", values.dtype, "w+", shape=values.shape)
    mapped[...] = values
    read_only = values.copy()
    read_only.flags.writeable = False
    stored = zarr.array(values.astype(values.dtype.newbyteorder("=")), chunks=(5, 36, 17))
    for same in (
        mapped,
        read_only,
        stored,
        dask_array.from_array(values, chunks=(5, 20, 40)),
        np.asfortranarray(values),
        np.repeat(values, 2, axis=1)[:, ::2],
    ):
        assert_same(hushpore.segment_pores(same), expected)


@pytest.mark.parametrize("shape", [(30, 40), (1, 30, 40), (40, 1, 30), (30, 40, 1), (7, 1, 1)])
def test_images_and_thin_volumes_work_on_disk(cut: Cut, shape: tuple[int, ...]) -> None:
    void = np.random.default_rng(0).random(shape) > 0.4
    expected = hushpore.segment_pores(void)
    cut(3)
    found = hushpore.segment_pores(void)
    assert_same(found, expected)
    assert found.labels.shape == shape


@pytest.mark.parametrize("fill", [False, True])
def test_a_single_phase_is_followed_through_all_slabs(cut: Cut, fill: bool) -> None:
    void = np.full((9, 5, 6), fill)
    cut(2)
    result = hushpore.segment_pores(void)
    assert (result.labels == fill).all()
    assert len(result.pores) == fill


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    hnp.arrays(
        np.bool_,
        hnp.array_shapes(min_dims=3, max_dims=3, max_side=9),
        elements=st.sampled_from([True, True, False]),
    ),
    st.integers(1, 5),
    st.sampled_from([(1, 1, 1), (2.5, 1, 0.7), (0.4, 1, 1)]),
)
def test_any_void_in_any_slabs_is_filled_and_labelled_as_by_scipy(
    cut: Cut,
    monkeypatch: pytest.MonkeyPatch,
    void: np.ndarray,
    thickness: int,
    spacing: tuple[float, ...],
) -> None:
    with monkeypatch.context() as uncut:
        uncut.setattr(job, "plan_slabs", lambda volume, _: Slabs(len(void), len(void)))
        expected = hushpore.segment_pores(Volume(void, spacing=spacing), minimum_shape_voxels=1)
    cut(thickness, on_disk=False)
    found = hushpore.segment_pores(Volume(void, spacing=spacing), minimum_shape_voxels=1)
    assert_same(found, expected)
    assert found.provenance["result"]["components"] == ndimage.label(void)[1]
    closed = hushpore.segment_pores(void, pore_type="closed").labels > 0
    np.testing.assert_array_equal(closed, ndimage.binary_fill_holes(~void) & void)
    # the widest place is where SciPy finds it
    if len(found.pores) and not void.all():
        widest = ndimage.distance_transform_edt(void, sampling=spacing).max()
        assert found.pores["inscribed_diameter"].max() == pytest.approx(2 * widest, rel=1e-5)


def test_merging_again_works_on_disk(scan: np.ndarray, cut: Cut, folder: Path) -> None:
    first = hushpore.segment_pores(scan)
    markers = np.argwhere(first.labels > 0)[::400]
    cut(5)
    on_disk = hushpore.segment_pores(scan)
    again = on_disk.remerge(2.0)
    assert isinstance(again.labels, np.memmap)
    assert_same(again, first.remerge(2.0))
    assert_same(on_disk.remerge_to_markers(markers), first.remerge_to_markers(markers))
    # basins once, and labels twice
    gc.collect()
    assert len(list(folder.iterdir())) == 3
    np.testing.assert_array_equal(on_disk.labels, first.labels)
    labels = again.labels[3]
    del on_disk, again
    gc.collect()
    assert len(list(folder.iterdir())) == 1
    np.testing.assert_array_equal(labels, first.remerge(2.0).labels[3])


class OnlySlabs:
    """A volume of which the voxels of a few slices can be read at a time, and which can break."""

    def __init__(self, values: np.ndarray, most: int, readings: int = 1000) -> None:
        self.values, self.most, self.readings = values, most, readings
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise AssertionError("read whole")

    def __getitem__(self, key: int | slice) -> np.ndarray:
        self.readings -= 1
        if self.readings < 0:
            raise OSError("the disk was pulled out")
        found = self.values[key]
        assert found.size <= self.most * self.values[0].size
        return found


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_volume_on_disk_is_never_read_whole(
    scan: np.ndarray, cut: Cut, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = scan.astype(dtype)
    # noise is measured in a part of the volume
    monkeypatch.setattr(noise, "_PART", 5 * values[0].size)
    expected = hushpore.segment_pores(values)
    cut(5)
    # nor for its fingerprint
    monkeypatch.setattr(provenance, "_AT_ONCE", 5 * values[0].nbytes)
    assert_same(hushpore.segment_pores(Volume(OnlySlabs(values, 5))), expected)


def test_nothing_is_left_when_a_job_is_closed_at_any_event(
    scan: np.ndarray, cut: Cut, folder: Path
) -> None:
    cut(8)
    sample = Volume(scan[:16, :20, :20])
    how = PoreSettings(exterior="remove", ball_radius=2)
    begin = partial(segment_pores, sample, how, Backend())
    # once whole, so that kernels are compiled: that goes on without the job, in folders of its own
    result_of(begin())
    gc.collect()
    count = 0
    while True:
        work = begin()
        try:
            for _ in range(count + 1):
                next(work)
        except StopIteration:
            break
        work.close()
        assert not list(folder.iterdir())
        count += 1
    # at least once a slab of every stage
    assert count > 2 * 7


def test_nothing_is_left_when_reading_fails(scan: np.ndarray, cut: Cut, folder: Path) -> None:
    cut(7)
    # the threshold takes four readings
    with pytest.raises(OSError, match="pulled out"):
        hushpore.segment_pores(Volume(OnlySlabs(scan, 7, readings=6)))
    gc.collect()
    assert not list(folder.iterdir())


def test_slabs_refuse_what_a_whole_volume_refuses(scan: np.ndarray, cut: Cut) -> None:
    cut(6)
    values = scan.astype(np.float32)
    values[20, 4, 5] = np.nan
    values[3, 4, 5] = np.inf
    with pytest.raises(InputError, match=rf"2 NaN or infinite values of {values.size}"):
        hushpore.segment_pores(values)
    for constant in (np.full((8, 5, 6), 7, np.uint8), np.full((8, 5, 6), 7.0)):
        with pytest.raises(InputError, match="constant"):
            hushpore.segment_pores(constant)
    with pytest.raises(InputError, match=r"no solid in .*Choose another threshold"):
        hushpore.segment_pores(np.ones((8, 5, 6), bool), exterior="remove")
