from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.base.errors import InputError, MemoryLimitError
from hushpore.device.backend import Backend
from hushpore.pores import work
from hushpore.pores.settings import PoreSettings
from hushpore.pores.work import AT_A_TIME, BYTES_A_VOXEL, LEAST_SLICES, plan_slabs


def volume_of(shape: tuple[int, ...]) -> Volume:
    """A volume that takes no memory."""
    return Volume(np.broadcast_to(np.zeros((), np.uint8), shape))


@pytest.fixture
def void() -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=(40, 44, 48))
    return ndimage.gaussian_filter(noise, 3) > 0


def test_noise_with_more_basins_than_memory_is_refused_before_they_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(work, "_LITTLE", 0)
    noise = np.random.default_rng(0).random((40, 44, 48)) > 0.3
    with pytest.raises(MemoryLimitError, match=r"1,\d+ parts, .* It may be noise: denoise"):
        hushpore.segment_pores(noise, memory_budget=0.001)
    assert len(hushpore.segment_pores(noise).pores)


def test_what_fits_is_in_memory_and_what_is_small_is_one_slab(void: np.ndarray) -> None:
    budget = void.size * BYTES_A_VOXEL / 1e9
    assert plan_slabs(Volume(void), PoreSettings(memory_budget=budget)).on_disk is False
    assert len(plan_slabs(Volume(void), PoreSettings())) == 1
    # an array that has to be copied first takes more
    turned = Volume(np.asfortranarray(void))
    assert plan_slabs(turned, PoreSettings(memory_budget=budget)).on_disk


@pytest.mark.parametrize(("threads", "planned"), [(1, (10, 30)), (2, (5, 60))])
def test_slabs_in_memory_are_even_and_take_a_tenth_of_a_second_of_all_threads(
    threads: int, planned: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hushpore.pores.work.cpu_threads", lambda: threads)
    slabs = plan_slabs(volume_of((300, 256, 256)), PoreSettings())
    assert not slabs.on_disk
    assert (len(slabs), slabs.thickness) == planned
    assert slabs.thickness * 256**2 <= threads * AT_A_TIME
    # of large slices there are a few in a slab, for what lies beside a slab is read twice
    assert plan_slabs(volume_of((40, 4096, 4096)), PoreSettings()).thickness == LEAST_SLICES


def test_the_smaller_the_budget_the_thinner_the_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "check_disk", lambda needed: None)
    scan = volume_of((1000, 500, 500))
    thickness = []
    for budget in (3, 1, 0.3, 0.1):
        slabs = plan_slabs(scan, PoreSettings(memory_budget=budget))
        assert slabs.on_disk
        assert sum(last - first for first, last in slabs) == 1000
        thickness.append(slabs.thickness)
    assert thickness == sorted(thickness, reverse=True)
    assert thickness[0] > 3 * thickness[-1]


def test_more_voxels_than_32_bits_can_index_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "check_disk", lambda needed: None)
    monkeypatch.setattr(Backend, "free_memory", lambda self: 10**15)
    slabs = plan_slabs(volume_of((3000, 1024, 1024)), PoreSettings())
    assert len(slabs) == 2
    assert (slabs.thickness + 4) * 1024**2 < 2**31


def test_a_ball_that_32_bits_cannot_index_is_refused_by_its_name() -> None:
    settings = PoreSettings(exterior="remove", ball_radius=1e9)
    with pytest.raises(InputError, match=r"A ball of radius 1e\+09 voxels .* \(ball_radius\)"):
        plan_slabs(volume_of((16, 20, 24)), settings)


def test_a_slice_that_32_bits_cannot_index_is_refused() -> None:
    with pytest.raises(InputError, match="Crop it, or bin it"):
        plan_slabs(volume_of((3, 2**15, 2**15)), PoreSettings())


def test_a_budget_below_the_thinnest_slab_says_what_the_least_is(void: np.ndarray) -> None:
    small = np.tile(void, (1, 4, 4))
    with pytest.raises(MemoryLimitError, match=r"at least .* 0\.001 GB are allowed") as refused:
        hushpore.segment_pores(small, memory_budget=0.001)
    least = float(str(refused.value).split("at least ")[1].split(" GB")[0])
    result = hushpore.segment_pores(small, memory_budget=1.01 * least)
    assert isinstance(result.labels, np.memmap)


def test_slabs_of_the_budget_give_the_same_labels_and_are_told(void: np.ndarray) -> None:
    expected = hushpore.segment_pores(void)
    found = hushpore.segment_pores(void, memory_budget=0.001)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert any("slabs of" in note for note in found.provenance["notes"])
    assert not expected.notes


def test_a_full_disk_is_found_out_before_any_work(
    void: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(needed: int) -> None:
        assert needed >= 9 * void.size
        raise MemoryLimitError("no room on the disk")

    monkeypatch.setattr(work, "check_disk", full)
    with pytest.raises(MemoryLimitError, match="no room on the disk"):
        hushpore.segment_pores(void, memory_budget=0.001)
