"""Features of voxels, against SciPy and analytic images; and trees, against known limits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from hushpore.pores.parallel import KernelThreads
from hushpore.pores.phases.features import COUNT, SCALES, WINDOW, Extent, features_of
from hushpore.pores.phases.forest import Forest

if TYPE_CHECKING:
    from collections.abc import Iterator

ISOTROPIC = Extent.of((1.0, 1.0, 1.0), False)


@pytest.fixture(scope="module")
def threads() -> Iterator[KernelThreads]:
    with KernelThreads(2) as found:
        yield found


def features(image: np.ndarray, threads: KernelThreads, box: Any = None, extent: Any = None) -> Any:
    box = box or [(0, n) for n in image.shape]
    return features_of(lambda a, b: image[a:b], image.shape, box, extent or ISOTROPIC, threads)


def test_smoothed_values_and_edges_are_those_of_scipy(threads: KernelThreads) -> None:
    image = np.random.default_rng(0).normal(100, 20, (20, 24, 28)).astype(np.float32)
    found = features(image, threads)
    middle = (slice(8, 12), slice(8, 16), slice(8, 20))
    np.testing.assert_array_equal(found[0], image)
    for number, sigma in enumerate(SCALES):
        own = found[1 + 7 * number :, *middle]
        smooth = gaussian_filter(image.astype(np.float64), sigma, mode="nearest", truncate=3)
        np.testing.assert_allclose(own[0], smooth[middle], atol=0.001)
        first = np.gradient(smooth)
        size = np.sqrt(sum(each**2 for each in first))[middle]
        np.testing.assert_allclose(own[2], size, atol=0.001)
        # differences of one voxel along an axis, as in the sum of the Laplacian
        second = [np.diff(smooth, 2, axis, prepend=0, append=0)[middle] for axis in range(3)]
        second = [
            (np.roll(smooth, 1, axis) + np.roll(smooth, -1, axis) - 2 * smooth)[middle]
            for axis in range(3)
        ]
        np.testing.assert_allclose(own[3], sum(second), atol=0.002)
        matrix = np.zeros((*size.shape, 3, 3))
        for a in range(3):
            matrix[..., a, a] = second[a]
            for b in range(a):
                matrix[..., a, b] = matrix[..., b, a] = np.gradient(first[a], axis=b)[middle]
        expected = np.moveaxis(np.linalg.eigvalsh(matrix)[..., ::-1], -1, 0)
        np.testing.assert_allclose(own[4:7], expected, atol=0.002)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_stripes_have_their_direction_and_their_deviation(
    threads: KernelThreads, axis: int
) -> None:
    period = 8
    wave = np.sin(2 * np.pi * np.indices((48, 48, 48))[axis] / period)
    found = features(100 * wave, threads)[:, 20:28, 20:28, 20:28].mean(axis=(1, 2, 3))
    texture = found[1 + 7 * len(SCALES) :]
    # a wave behind a Gaussian of sigma keeps a share of its height
    kept = math.exp(-2 * (math.pi * SCALES[0] / period) ** 2)
    slope = 100 * kept * math.sin(2 * math.pi / period) / math.sqrt(2)
    assert texture[3 + axis] == pytest.approx(slope, rel=0.02)
    assert texture[0] == pytest.approx(slope, rel=0.02)
    others = [texture[3 + other] for other in range(3) if other != axis]
    assert max(*others, *texture[1:3]) < 0.01 * slope
    assert texture[6] == pytest.approx(100 * (1 - kept) / math.sqrt(2), rel=0.05)


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (3.0, 1.0, 1.2)])
@pytest.mark.parametrize("by_slice", [False, True])
def test_a_box_has_the_features_of_the_whole_bit_for_bit(
    threads: KernelThreads, spacing: tuple[float, ...], by_slice: bool
) -> None:
    image = np.random.default_rng(1).integers(0, 4000, (40, 96, 100)).astype(np.uint16)
    extent = Extent.of(spacing, by_slice)
    whole = features(image, threads, extent=extent)
    for box in ([(0, 3), (0, 20), (5, 40)], [(18, 22), (44, 50), (47, 60)]):
        part = features(image, threads, box, extent)
        np.testing.assert_array_equal(part, whole[:, *(slice(*ends) for ends in box)])


def test_a_voxel_depends_on_no_voxel_out_of_reach(threads: KernelThreads) -> None:
    image = np.random.default_rng(2).normal(size=(60, 120, 120)).astype(np.float32)
    at = (30, 60, 60)
    changed = image.copy()
    near = tuple(slice(c - far, c + far + 1) for c, far in zip(at, ISOTROPIC.reach, strict=True))
    changed[...] = 1e3
    changed[near] = image[near]
    box = [(c, c + 1) for c in at]
    np.testing.assert_array_equal(features(image, threads, box), features(changed, threads, box))


def test_features_by_slice_depend_on_that_slice_only(threads: KernelThreads) -> None:
    image = np.random.default_rng(3).normal(size=(3, 64, 64)).astype(np.float32)
    extent = Extent.of((1.0, 1.0, 1.0), True)
    found = features(image, threads, extent=extent)
    alone = features(image[1:2], threads, extent=extent)
    np.testing.assert_array_equal(found[:, 1:2], alone)
    assert len(alone) == COUNT
    assert SCALES[0] < WINDOW


def test_trees_reach_the_error_that_no_classifier_can_fall_below(threads: KernelThreads) -> None:
    rng = np.random.default_rng(0)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        classes = rng.integers(0, 2, n)
        values = rng.normal(size=(n, 5)).astype(np.float32)
        values[:, 2] += 2 * classes
        return values, classes

    forest = Forest.grown(*drawn(1000), threads)
    values, classes = drawn(20000)
    found = forest.probabilities(np.ascontiguousarray(values.T), threads)
    np.testing.assert_allclose(found.sum(axis=0), 1, atol=1e-5)
    wrong = float((found.argmax(axis=0) != classes).mean())
    # two Gaussians that are two standard deviations apart
    least = 0.5 * math.erfc(1 / math.sqrt(2))
    assert least - 0.01 < wrong < least + 0.035


def test_trees_separate_classes_that_no_single_feature_separates(threads: KernelThreads) -> None:
    rng = np.random.default_rng(1)
    values = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
    classes = (values[:, 0] * values[:, 1] > 0).astype(np.int64)
    forest = Forest.grown(values[:400], classes[:400], threads)
    found = forest.probabilities(np.ascontiguousarray(values[400:].T), threads).argmax(axis=0)
    assert (found == classes[400:]).mean() > 0.93


def test_a_rare_class_counts_as_much_as_a_frequent_one(threads: KernelThreads) -> None:
    rng = np.random.default_rng(2)
    classes = np.r_[np.zeros(400, np.int64), np.ones(8, np.int64)]
    values = (rng.normal(size=(408, 1)) + 3 * classes[:, None]).astype(np.float32)
    forest = Forest.grown(values, classes, threads)
    test = np.linspace(-2, 5, 200, dtype=np.float32)[None]
    change = float(test[0, int(np.argmax(forest.probabilities(test, threads)[1] > 0.5))])
    assert change < 2.5


def test_a_forest_is_the_same_on_any_number_of_threads(threads: KernelThreads) -> None:
    rng = np.random.default_rng(3)
    values, classes = rng.normal(size=(300, 6)).astype(np.float32), rng.integers(0, 3, 300)
    with KernelThreads(1) as one:
        alone = Forest.grown(values, classes, one)
    for name, array in vars(Forest.grown(values, classes, threads)).items():
        np.testing.assert_array_equal(array, getattr(alone, name))
