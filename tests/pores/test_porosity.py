"""The threshold that gives a measured porosity.

Sub-voxel porosity: against volumes of which each voxel's share of void is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import ndimage

import hushpore
from hushpore.base.errors import InputError
from hushpore.base.volume import Volume


def scan(seed: int = 0, *, bright: bool = False, air: bool = False) -> Volume:
    """Return smooth noise, 0 to 20,000, whose void has no threshold of its own."""
    grey = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(48,) * 3), 2)
    grey = 10000 + 2500 * grey / grey.std()
    if air:
        y, x = np.ogrid[:48, :48]
        grey[:, (y - 23.5) ** 2 + (x - 23.5) ** 2 > 18**2] = 500
    grey = np.clip(20000 - grey if bright else grey, 0, 20000)
    return Volume(np.rint(grey).astype(np.uint16), name="rock")


@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ({}, {"exterior": "keep"}),
        ({"bright": True}, {"exterior": "keep", "pores_are": "bright"}),
        ({"air": True}, {"exterior": "remove"}),
        ({}, {"exterior": "keep", "pore_type": "open"}),
        ({}, {"exterior": "keep", "threshold": "sauvola"}),
    ],
)
@pytest.mark.parametrize("percent", [4.0, 21.0])
def test_the_porosity_is_the_measured_one(
    how: dict[str, Any], settings: dict[str, Any], percent: float
) -> None:
    found = hushpore.segment_pores(scan(**how), **settings, measured_porosity=percent)
    assert 100 * found.porosity == pytest.approx(percent, abs=0.05)
    totals = found.provenance["result"]
    assert any(f"The threshold {totals['threshold']:.0f} was" in note for note in found.notes)
    assert found.provenance["settings"]["measured_porosity"] == percent


def test_the_threshold_gives_the_same_pores_when_it_is_set() -> None:
    volume = scan()
    found = hushpore.segment_pores(volume, exterior="keep", measured_porosity=15)
    # all void counts, as in a pycnometer
    assert found.provenance["result"]["minimum_voxels"] == 1
    how = {"exterior": "keep", "threshold": found.threshold}
    same = hushpore.segment_pores(volume, **how, minimum_voxels=1)
    np.testing.assert_array_equal(found.labels, same.labels)
    # a minimum that is set holds all the same
    how = {"exterior": "keep", "measured_porosity": 15}
    large = hushpore.segment_pores(volume, **how, minimum_voxels=200)
    assert large.threshold == found.threshold
    assert 0 < large.porosity < found.porosity


def test_a_porosity_between_two_levels_is_a_warning() -> None:
    board = np.random.default_rng(0).random((20, 20, 20)) < 0.3
    volume = Volume(np.where(board, 10, 200).astype(np.uint8))
    found = hushpore.segment_pores(volume, exterior="keep", measured_porosity=50)
    assert found.porosity == pytest.approx(board.mean())
    assert any("No threshold comes closer" in note for note in found.notes)


def test_a_hysteresis_threshold_is_refused_beside_it() -> None:
    with pytest.raises(InputError, match="cannot be combined with a hysteresis"):
        hushpore.segment_pores(scan(), measured_porosity=15, hysteresis=100.0)


#: Grey values of void and solid.
VOID, SOLID = 2000, 12000


def shares(
    edge: int, radius: float, count: int, seed: int, fine: int = 4
) -> npt.NDArray[np.float64]:
    """Return the share of void of each voxel of a volume with balls (edge, edge, edge)."""
    rng = np.random.default_rng(seed)
    void = np.zeros((edge * fine,) * 3, bool)
    grid = np.arange(edge * fine) + 0.5
    for centre in rng.uniform(0, edge * fine, (count, 3)):
        near = [np.abs(grid - c) < radius * fine for c in centre]
        z, y, x = (grid[at] - c for at, c in zip(near, centre, strict=True))
        ball = z[:, None, None] ** 2 + y[:, None] ** 2 + x**2 < (radius * fine) ** 2
        void[np.ix_(*near)] |= ball
    return void.reshape(edge, fine, edge, fine, edge, fine).mean(axis=(1, 3, 5))


def scan_of(share: npt.NDArray[np.float64], noise: float = 0.0) -> Volume:
    grey = SOLID + (VOID - SOLID) * share
    grey += np.random.default_rng(1).normal(0, noise, share.shape) if noise else 0
    return Volume(np.rint(grey).astype(np.uint16), name="balls")


def test_pores_smaller_than_a_voxel_count_where_the_threshold_misses_them() -> None:
    share = shares(40, 0.6, 3000, 0)
    found = hushpore.segment_pores(
        scan_of(share, noise=300), threshold=(VOID + SOLID) / 2, exterior="keep",
        subvoxel_porosity=True, void_grey=VOID, solid_grey=SOLID,
    )  # fmt: skip
    totals = found.provenance["result"]
    assert found.porosity < 0.7 * share.mean()
    assert totals["subvoxel_porosity"] == pytest.approx(share.mean(), abs=5e-4)
    (remark,) = [note for note in found.remarks if "sub-voxel" in note.message]
    assert "2000 (void) and 12000 (solid)" in remark.message


def test_grey_values_are_found_and_kept_in_the_record() -> None:
    share = shares(50, 6, 30, 2)
    totals = hushpore.segment_pores(
        scan_of(share, noise=500), exterior="keep", subvoxel_porosity=True
    ).provenance["result"]
    assert totals["void_grey"] == pytest.approx(VOID, abs=40)
    assert totals["solid_grey"] == pytest.approx(SOLID, abs=40)
    assert totals["subvoxel_porosity"] == pytest.approx(share.mean(), abs=0.002)


def test_air_around_the_sample_does_not_count() -> None:
    share = shares(60, 3, 60, 3)
    _, y, x = np.ogrid[:60, :60, :60]
    inside = (y - 29.5) ** 2 + (x - 29.5) ** 2 < 24**2
    # pores stay below the surface, so that the mask alone says what is air
    deep = np.broadcast_to((y - 29.5) ** 2 + (x - 29.5) ** 2 < 20**2, share.shape)
    share[:5] = share[-5:] = 0
    share = np.where(deep, share, np.where(inside, 0.0, 1.0))
    totals = hushpore.segment_pores(
        scan_of(share), exterior="remove", subvoxel_porosity=True
    ).provenance["result"]
    # voxels that touch the air are left out
    inner = ndimage.binary_erosion(np.broadcast_to(inside, share.shape), border_value=1)
    assert totals["subvoxel_porosity"] == pytest.approx(share[inner].mean(), rel=0.002)
    mask = np.broadcast_to(inside, share.shape)
    masked = scan_of(share).replace(scan_of(share).data, auxiliary={"m": mask})
    by_mask = hushpore.segment_pores(masked, sample_mask="m", subvoxel_porosity=True)
    assert by_mask.provenance["result"]["subvoxel_porosity"] == pytest.approx(
        totals["subvoxel_porosity"], rel=1e-6
    )


def test_slabs_on_disk_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = scan_of(shares(40, 4, 30, 4), noise=300)
    how = {"exterior": "keep", "subvoxel_porosity": True}
    whole = hushpore.segment_pores(scan, **how)
    from hushpore.pores import porosity

    monkeypatch.setattr(porosity, "_AT_A_TIME", 4000)
    thin = hushpore.segment_pores(scan, **how)
    name = "subvoxel_porosity"
    assert thin.provenance["result"][name] == whole.provenance["result"][name]


def test_without_thick_phases_a_note_says_what_to_set() -> None:
    board = np.indices((20, 20, 20)).sum(axis=0) % 2 * 100
    found = hushpore.segment_pores(
        Volume(board.astype(np.uint8)), exterior="keep", subvoxel_porosity=True
    )
    assert "subvoxel_porosity" not in found.provenance["result"]
    assert any("no sub-voxel porosity" in note for note in found.notes)
    with pytest.raises(InputError, match="must differ"):
        hushpore.segment_pores(
            Volume(board.astype(np.uint8)), exterior="keep", subvoxel_porosity=True,
            void_grey=5.0, solid_grey=5.0,
        )  # fmt: skip
