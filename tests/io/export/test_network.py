from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import hushpore
from hushpore import InputError, Volume, export
from hushpore.io.export.network import network_arrays

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.result import Pores

# two balls of radius 8, 12 apart in x: they touch in a disc of radius sqrt(8**2 - 6**2)
RADIUS, APART, SPACING = 8, 12, 5e-6


def balls(unit: str = "um", spacing: float = 5.0) -> Volume:
    z, y, x = np.ogrid[-12:13, -12:13, -12:25]
    ball = [z**2 + y**2 + (x - middle) ** 2 < RADIUS**2 for middle in (0, APART)]
    return Volume(ball[0] | ball[1], spacing=spacing, unit=unit, name="balls")


@pytest.fixture(scope="module")
def found() -> Pores:
    return hushpore.segment_pores(balls())


@pytest.fixture(scope="module")
def net(found: Pores) -> dict[str, np.ndarray]:
    return network_arrays(found.pores, found.throats, found.volume)


def test_two_balls_that_touch_are_two_pores_and_a_throat(net: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(net["throat.conns"], [[0, 1]])
    first, second = net["pore.coords"]
    # the centroid of a ball cut off by the plane between them lies outside its centre
    np.testing.assert_allclose((first + second)[1:] / 2, 12 * SPACING, rtol=1e-9)
    assert first[0] < second[0]
    assert net["throat.direct_length"][0] == pytest.approx(second[0] - first[0])
    assert net["throat.total_length"][0] >= net["throat.direct_length"][0]


def test_sizes_are_in_metres(net: dict[str, np.ndarray], found: Pores) -> None:
    void = int(np.count_nonzero(found.volume.data))
    assert net["pore.volume"].sum() == pytest.approx(void * SPACING**3)
    neck = np.sqrt(RADIUS**2 - (APART / 2) ** 2) * SPACING
    assert net["throat.cross_sectional_area"][0] == pytest.approx(np.pi * neck**2, rel=0.15)
    assert net["throat.diameter"][0] == pytest.approx(2 * neck, rel=0.15)
    assert net["pore.diameter"] == pytest.approx(2 * RADIUS * SPACING, rel=0.05)


@pytest.mark.parametrize(("unit", "spacing"), [("mm", 5e-3), ("nm", 5e3), ("m", 5e-6)])
def test_the_unit_of_the_scan_does_not_matter(
    net: dict[str, np.ndarray], unit: str, spacing: float
) -> None:
    other = hushpore.segment_pores(balls(unit, spacing))
    arrays = network_arrays(other.pores, other.throats, other.volume)
    for name, values in net.items():
        np.testing.assert_allclose(arrays[name], values, rtol=1e-9, err_msg=name)


def test_pores_at_a_face_are_marked() -> None:
    void = np.zeros((9, 9, 20), bool)
    void[4, 4] = True
    void[3:6, 3:6, :6] = void[3:6, 3:6, 14:] = True
    found = hushpore.segment_pores(Volume(void, spacing=1, unit="um"))
    net = network_arrays(found.pores, found.throats, found.volume)
    assert (net["pore.xmin"].sum(), net["pore.xmax"].sum()) == (1, 1)
    assert not net["pore.zmin"].any()


def test_a_csv_file_has_the_columns_that_openpnm_merges(tmp_path: Path, found: Pores) -> None:
    (path,) = export(found, tmp_path / "net.csv")
    table = pd.read_csv(path)
    assert table["pore.coords[0]"].notna().all()
    # one throat, two pores: whole numbers and flags stay what they are
    assert path.read_text().splitlines()[1].split(",")[3:5] == ["0", "1"]
    assert table["throat.conns[1]"].dropna().tolist() == [1]
    assert set(table["pore.xmin"]) == {False}


def test_an_npz_file_holds_the_very_arrays(
    tmp_path: Path, found: Pores, net: dict[str, np.ndarray]
) -> None:
    (path,) = export(found, tmp_path / "net.npz")
    with np.load(path) as kept:
        assert set(kept) == set(net)
        for name, values in net.items():
            np.testing.assert_array_equal(kept[name], values)


@pytest.mark.needs("openpnm")
@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_openpnm_loads_the_network(tmp_path: Path, suffix: str, net: dict, found: Pores) -> None:
    loaded = load(*export(found, tmp_path / f"a{suffix}"))
    assert (loaded.Np, loaded.Nt) == (2, 1)
    np.testing.assert_array_equal(loaded.conns, net["throat.conns"])
    np.testing.assert_allclose(loaded.coords, net["pore.coords"])
    assert loaded["pore.xmin"].dtype == bool
    assert loaded.conns.dtype.kind == "i"
    import openpnm

    health = openpnm.utils.check_network_health(loaded)
    assert len(health["duplicate_throats"]) == 0


def load(path: Path) -> dict:
    import openpnm

    if path.suffix == ".csv":
        net = openpnm.io.network_from_csv(str(path))
        # as docs/howto/export.md says
        net["throat.conns"] = net["throat.conns"].astype(int)
        return net
    return openpnm.io.network_from_porespy(dict(np.load(path)))


@pytest.mark.parametrize(
    ("volume", "words"),
    [
        (Volume(np.eye(8, dtype=bool), spacing=1, unit="mm"), "2D"),
        (balls(""), "voxel size of balls pores is unknown"),
        (Volume(np.pad(np.ones((2, 2, 2), bool), 2), spacing=1, unit="mm"), "no two of them touch"),
    ],
)
def test_what_is_no_network_is_refused(volume: Volume, words: str, tmp_path: Path) -> None:
    found = hushpore.segment_pores(volume)
    with pytest.raises(InputError, match=words):
        export(found, tmp_path / "net.csv")
    assert list(tmp_path.iterdir()) == []
