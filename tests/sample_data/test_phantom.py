import numpy as np
import pytest
from scipy import ndimage
from skimage.filters import threshold_otsu
from skimage.morphology import h_maxima

from hushpore import sample_data
from hushpore.base.errors import InputError
from hushpore.sample_data import core_phantom, foam_phantom
from hushpore.sample_data.phantom import AIR, WALL


@pytest.fixture(scope="module")
def phantom():
    return foam_phantom()


def n_peaks(void):
    """Pores by an independent way: peaks of the distance map at least one voxel high."""
    distance = ndimage.distance_transform_edt(void)
    return ndimage.label(h_maxima(distance, 1.0), np.ones((3, 3, 3)))[1]


def test_the_scan_looks_like_a_micro_ct_in_hu(phantom):
    volume = phantom.volume
    assert (volume.shape, volume.dtype) == ((48, 160, 160), np.int16)
    assert (volume.spacing, volume.unit) == ((0.05, 0.05, 0.05), "mm")
    assert phantom.clean.dtype == np.float32
    assert AIR - 1e-3 <= phantom.clean.data.min() < AIR + 1
    assert WALL - 1 < phantom.clean.data.max() <= WALL + 1e-3


def test_the_truth_agrees_with_the_spheres_drawn_one_by_one():
    phantom = foam_phantom((20, 40, 30), seed=3)
    grid = np.indices(phantom.void.shape).astype(float)
    centres = phantom.spheres[["z", "y", "x"]].to_numpy()[..., None, None, None]
    radii = phantom.spheres["radius"].to_numpy()[:, None, None, None]
    power = ((grid - centres) ** 2).sum(axis=1) - radii**2
    # a voxel within rounding of a surface may fall to either side
    clear = np.abs(power.min(axis=0)) > 1e-3
    np.testing.assert_array_equal(phantom.void[clear], (power.min(axis=0) < 0)[clear])
    expected = np.where(power.min(axis=0) < 0, power.argmin(axis=0) + 1, 0)
    assert (phantom.labels != expected)[clear].mean() < 1e-4


def test_pores_overlap_a_little_and_none_holds_another(phantom):
    centres = phantom.spheres[["z", "y", "x"]].to_numpy()
    radii = phantom.spheres["radius"].to_numpy()
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)
    np.fill_diagonal(apart, np.inf)
    together = radii[:, None] + radii
    assert (apart < together).any()
    assert (apart > np.abs(radii[:, None] - radii) + 2).all()
    assert ndimage.label(phantom.void)[1] < phantom.n_pores / 2  # necks join most of them


def test_every_sphere_is_a_pore_with_voxels(phantom):
    assert set(np.unique(phantom.labels)) == set(range(phantom.n_pores + 1))
    assert 100 < phantom.n_pores < 400
    assert 0.4 < phantom.porosity < 0.6


@pytest.mark.parametrize("seed", [0, 1])
def test_the_noise_hides_the_pores_and_without_it_they_are_countable(seed):
    phantom = foam_phantom((40, 96, 96), seed=seed)
    noisy, clean = phantom.volume.data, phantom.clean.data
    assert n_peaks(phantom.void) == phantom.n_pores
    assert n_peaks(clean < threshold_otsu(clean)) == pytest.approx(phantom.n_pores, rel=0.03)
    assert n_peaks(noisy < threshold_otsu(noisy)) > 3 * phantom.n_pores


def test_the_noise_is_as_strong_as_asked_and_independent_from_voxel_to_voxel(phantom):
    noise = phantom.volume.data - phantom.clean.data
    solid = phantom.clean.data > WALL - 1
    air = phantom.clean.data < AIR + 1
    assert noise[solid].std() / (WALL - AIR) == pytest.approx(0.4, rel=0.03)
    assert noise[air].std() < 0.85 * noise[solid].std()  # fewer photons, less noise
    assert abs(noise.mean()) < 3
    for axis in range(3):
        a, b = (np.take(noise, range(s, s + noise.shape[axis] - 1), axis) for s in (0, 1))
        assert abs((a * b).mean() / noise.var()) < 0.02


def test_rings_are_circles_and_can_be_left_out():
    with_rings = foam_phantom((16, 64, 64), noise=0, rings=0.1)
    rings = with_rings.volume.data - with_rings.clean.data
    y, x = np.indices((64, 64)) - 31.5
    radius = np.rint(np.hypot(y, x)).astype(int)
    for r in (5, 20):
        assert np.ptp(rings[3][radius == r]) <= 1.01  # rounding to whole HU
    plain = foam_phantom((16, 64, 64), noise=0, rings=0)
    assert np.abs(plain.volume.data - plain.clean.data).max() <= 0.5


def test_the_same_seed_gives_the_same_phantom_and_the_global_state_is_untouched():
    before = np.random.get_state()  # noqa: NPY002
    a, b, c = (foam_phantom((16, 32, 32), seed=s) for s in (5, 5, 6))
    np.testing.assert_array_equal(a.volume.data, b.volume.data)
    assert not np.array_equal(a.volume.data, c.volume.data)
    after = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(before[1], after[1])


def test_a_pore_is_drawn_in_its_own_box_alone(monkeypatch):
    boxes, offsets = [], sample_data.phantom._offsets

    def spy(box, centre):
        boxes.append(np.prod([span.stop - span.start for span in box]))
        return offsets(box, centre)

    monkeypatch.setattr(sample_data.phantom, "_offsets", spy)
    phantom = foam_phantom()
    assert len(boxes) == phantom.n_pores
    # so that any number of them takes little more than the volume once
    assert sum(boxes) < 4 * phantom.void.size


@pytest.mark.parametrize(
    "arguments", [{"shape": (8, 40, 40)}, {"noise": -1}, {"voxel": 0}, {"shape": (40, 40)}]
)
def test_what_cannot_be_made_is_refused(arguments):
    with pytest.raises(InputError):
        foam_phantom(**arguments)


@pytest.fixture(scope="module")
def core():
    return core_phantom((40, 120, 130))


def test_a_core_is_a_cylinder_in_air_with_pores_in_it(core):
    assert (core.volume.unit, core.volume.dtype) == ("pixel", np.uint16)
    # 0.82 as wide as the narrower side
    assert core.sample.mean() == pytest.approx(np.pi * (0.41 * 120) ** 2 / (120 * 130), rel=0.01)
    assert not core.void[~core.sample].any()
    assert core.porosity == pytest.approx(core.void.sum() / core.sample.sum())
    assert 0.02 < core.porosity < 0.08
    # pores and air around are as dark, with little noise
    values = core.volume.data
    inner = ndimage.binary_erosion(core.void, iterations=2)
    outer = ndimage.binary_erosion(~core.sample, iterations=2)
    assert np.median(values[inner]) == pytest.approx(np.median(values[outer]), rel=0.05)
    solid = ndimage.binary_erosion(core.sample & ~core.void, iterations=2)
    assert values[outer].std() < 0.05 * (np.median(values[solid]) - np.median(values[outer]))


def test_of_a_core_most_pores_are_closed(core):
    parts, count = ndimage.label(core.void)
    rim = np.unique(parts[core.sample ^ ndimage.binary_erosion(core.sample)])
    ends = np.unique(parts[[0, -1]])
    assert len(np.union1d(rim, ends)) < 0.4 * count


@pytest.mark.parametrize(("shape", "noise"), [((8, 50, 50), 0.1), ((20, 20, 20), -1)])
def test_a_core_that_cannot_be_made_is_refused(shape, noise):
    with pytest.raises(InputError):
        core_phantom(shape, noise=noise)
