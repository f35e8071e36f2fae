"""Functions for others: against SciPy and scikit-image, and on a GPU against the CPU."""

from __future__ import annotations

import heapq
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import ndimage as ndi
from skimage import measure, morphology, segmentation

import hushpore
from hushpore import ndimage
from hushpore.base.errors import InputError
from hushpore.pores.gpu.engine import SOURCES, Gpu, definitions

if TYPE_CHECKING:
    from collections.abc import Callable

#: Of `cupy`: what these functions use besides; of them `flatnonzero` waits for the GPU.
FURTHER = {"asarray", "flatnonzero", "maximum", "sqrt"}

PROPERTIES = (
    "label", "num_pixels", "area", "bbox", "centroid", "equivalent_diameter_area",
    "intensity_mean", "intensity_std",
)  # fmt: skip


def shapes(count: int, seed: int = 0) -> list[tuple[int, tuple[int, ...]]]:
    """Odd shapes, of two axes and of three, some of one voxel along an axis."""
    rng, most = np.random.default_rng(seed), ((9, 14, 70), (33, 70))
    return [
        (number, tuple(int(rng.integers(1, 1 + each)) for each in most[number % 2]))
        for number in range(count)
    ]


def smooth(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return ndi.gaussian_filter(rng.random(shape), 1).astype(np.float32)


@pytest.fixture
def upload(
    cuda_shim: Any, strict: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[Any], Any]:
    """Makes an array of an emulated GPU, which runs threads in the order that the test names."""
    kernels = cuda_shim.build_together(SOURCES, definitions())
    for each in kernels.values():
        each.order = request.param
    monkeypatch.setattr(strict, "_KNOWN", strict._KNOWN | FURTHER)
    gpu = Gpu(strict.StrictCupy(), lambda source, _: kernels[source])
    is_there = strict.DeviceArray
    monkeypatch.setattr(ndimage, "_gpu_of", lambda x: gpu if isinstance(x, is_there) else None)
    return lambda values: np.asarray(values).view(is_there)


orders = pytest.mark.parametrize(
    "upload", ["forward", "reverse", "shuffled", "parallel", "warps"], indirect=True
)


def same(found: Any, expected: Any) -> None:
    """Of the same type, and the same bits."""
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize(("number", "shape"), shapes(40))
def test_labels_and_filled_holes_are_those_of_scipy(number: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(number)
    image = (rng.random(shape) < rng.uniform(0.1, 0.9)).astype((bool, np.uint8, float)[number % 3])
    for connectivity in (1, len(shape)):
        structure = ndi.generate_binary_structure(len(shape), connectivity)
        labels, count = ndimage.label(image, structure)
        expected, expected_count = ndi.label(image, structure)
        assert count == expected_count
        same(labels, expected)
        same(ndimage.fill_holes(image, structure), ndi.binary_fill_holes(image, structure))


@pytest.mark.parametrize(("number", "shape"), shapes(40, 1))
def test_distances_are_those_of_scipy(number: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(number)
    image = rng.random(shape) < rng.uniform(0.5, 1)
    image.flat[rng.integers(image.size)] = False
    sampling = (None, 2.5, tuple(rng.uniform(0.3, 4, len(shape))))[number % 3]
    found = ndimage.distance_transform_edt(image, sampling)
    assert found.dtype == np.float32
    expected = ndi.distance_transform_edt(image, sampling)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(("number", "shape"), shapes(20, 2))
def test_basins_of_marked_minima_are_those_of_scikit_image(
    number: int, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(number)
    image = smooth(rng, shape) - np.float32(number % 2)
    connectivity = (1, len(shape))[number // 2 % 2]
    minima = morphology.local_minima(image, connectivity=connectivity)
    markers = measure.label(minima, connectivity=connectivity)
    if image.size == 1:
        markers[...] = 1  # scikit-image has no minimum there
    expected = segmentation.watershed(image, markers, connectivity)
    same(ndimage.watershed(image, markers, connectivity), expected)
    same(ndimage.watershed(image, connectivity=connectivity), expected)


def least_pass(image: np.ndarray, start: tuple[int, ...], connectivity: int) -> np.ndarray:
    """The level up to which one has to climb to get from a voxel to each other."""
    level = np.full(image.shape, np.inf)
    level[start] = image[start]
    steps = np.argwhere(ndi.generate_binary_structure(image.ndim, connectivity)) - 1
    queue = [(level[start], start)]
    while queue:
        height, place = heapq.heappop(queue)
        for step in steps:
            other = tuple(int(each) for each in np.add(place, step))
            if all(0 <= at < size for at, size in zip(other, image.shape, strict=True)):
                higher = max(height, image[other])
                if higher < level[other]:
                    level[other] = higher
                    heapq.heappush(queue, (higher, other))
    return level


@pytest.mark.parametrize("number", range(8))
def test_each_voxel_belongs_to_a_marker_that_reaches_it_over_the_lowest_pass(number: int) -> None:
    rng = np.random.default_rng(number)
    shape = [(18, 22), (6, 7, 9)][number % 2]
    image, connectivity = smooth(rng, shape), (1, len(shape))[number // 2 % 2]
    # anywhere, so that some share a basin, and some touch
    places = [tuple(int(rng.integers(size)) for size in shape) for _ in range(6)]
    markers = np.zeros(shape, np.int64)
    for place in places:
        markers[place] = rng.integers(1, 2**31)
    labels = ndimage.watershed(image, markers, connectivity)
    level = np.stack([least_pass(image, place, connectivity) for place in places])
    of = np.stack([labels == markers[place] for place in places])
    assert of.any(axis=0).all()
    np.testing.assert_array_equal(np.where(of, level, np.inf).min(axis=0), level.min(axis=0))
    expected = segmentation.watershed(image, markers, connectivity)
    assert (labels == expected).mean() > 0.9


def test_markers_outside_the_mask_do_not_count() -> None:
    image = np.float32([[3, 1, 2, 9, 0, 1]])
    mask = [[1, 1, 1, 0, 1, 1]]
    found = ndimage.watershed(image, [[0, 4, 0, 7, 0, 0]], mask=np.array(mask))
    np.testing.assert_array_equal(found, [[4, 4, 4, 0, 0, 0]])


def test_basins_merge_up_to_a_height() -> None:
    image = np.array([[0, 5, 3, 9, 1, 4, 2]], np.float32)
    by_height = {0: [1, 1, 2, 3, 3, 4, 4], 2: [1, 1, 1, 2, 2, 2, 2], 8: [1] * 7}
    for height, expected in by_height.items():
        found = ndimage.watershed(image, merge_height=height)
        # the pass itself leads to the lower side
        inside = [0, 2, 4, 6]
        np.testing.assert_array_equal(found[0, inside], np.array(expected)[inside])


@pytest.mark.parametrize("connectivity", ["faces", "corners"])
def test_pores_are_those_of_a_segmentation(connectivity: str) -> None:
    void = smooth(np.random.default_rng(3), (20, 30, 40)) > 0.5
    spacing = (2.0, 1.0, 1.0)
    known = {"faces": 1, "corners": 3}
    how = {"exterior": "keep", "minimum_voxels": 1, "merge_overlapping": False}
    volume = hushpore.Volume(void, spacing=spacing)
    options = {} if connectivity == "corners" else {"connectivity": "faces"}
    expected = hushpore.segment_pores(
        volume, merge_height=0.4, local_thickness="void", device="cpu", **how, **options
    )
    found = ndimage.watershed(
        void, connectivity=known[connectivity], merge_height=0.4, sampling=spacing
    )
    same(found, expected.labels)
    same(ndimage.local_thickness(void, spacing), expected.thickness["void"].diameter)
    names = ["surface_area", "sphericity", "coordination_number", "axis_length_major"]
    table = ndimage.regionprops_table(found, properties=names, spacing=spacing)
    if connectivity == "corners":
        for name in names:
            known_column = expected.pores[name].to_numpy()
            large = ~np.isnan(known_column)
            np.testing.assert_array_equal(table[name][large], known_column[large])


def test_a_plate_and_a_ball_are_as_thick_as_they_are() -> None:
    plate = np.zeros((20, 30, 30), bool)
    plate[5:12] = True
    found = ndimage.local_thickness(plate, 0.5)
    np.testing.assert_allclose(found[plate], 3.5)
    assert not found[~plate].any()
    ball = np.linalg.norm(np.indices((21, 21, 21)) - 10, axis=0) < 8
    assert abs(ndimage.local_thickness(ball).max() - 16) <= 1


@pytest.mark.parametrize(("number", "shape"), shapes(20, 4))
def test_properties_are_those_of_scikit_image(number: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(number)
    size = int(np.prod(shape))
    labels = rng.integers(0, min(12, size + 1), shape).astype((np.int32, np.uint8)[number % 2])
    grey = (rng.random(shape) * 60_000).astype((np.uint16, np.float32)[number // 2 % 2])
    spacing = tuple(rng.uniform(0.5, 3, len(shape)))
    found = ndimage.regionprops_table(labels, grey, PROPERTIES, spacing=spacing)
    expected = measure.regionprops_table(labels, grey, PROPERTIES, spacing=spacing)
    assert list(found) == list(expected)
    for name, column in found.items():
        close = {"rtol": 1e-5, "atol": 2} if "intensity" in name else {"rtol": 1e-9}
        np.testing.assert_allclose(column, expected[name], err_msg=name, **close)


@orders
def test_a_gpu_gives_the_bits_of_the_cpu(upload: Callable[[Any], Any]) -> None:
    for number, shape in shapes(8, 5):
        rng = np.random.default_rng(number)
        image, n_axes = smooth(rng, shape), len(shape)
        void = image > 0.45
        structure = ndi.generate_binary_structure(n_axes, n_axes if number % 4 > 1 else 1)
        labels, count = ndimage.label(void, structure)
        there, number_there = ndimage.label(upload(void), structure)
        same(there, labels)
        assert number_there == count
        same(ndimage.fill_holes(upload(void), structure), ndimage.fill_holes(void, structure))
        sampling = tuple(rng.uniform(0.5, 2, n_axes))
        distance = ndimage.distance_transform_edt(void, sampling)
        same(ndimage.distance_transform_edt(upload(void), sampling), distance)
        same(
            ndimage.local_thickness(upload(void), sampling), ndimage.local_thickness(void, sampling)
        )
        markers = np.where(rng.random(shape) < 0.05, rng.integers(1, 9, shape), 0)
        for values, how in (
            (void, {"merge_height": 0.3, "sampling": sampling}),
            (-distance if np.isfinite(distance).all() else image, {}),
            (image, {"merge_height": 0.02, "connectivity": n_axes}),
            ((image * 200).astype(np.uint8), {"markers": markers, "mask": void}),
        ):
            given = {
                name: upload(each) if isinstance(each, np.ndarray) else each
                for name, each in how.items()
            }
            same(ndimage.watershed(upload(values), **given), ndimage.watershed(values, **how))
        grey = (image * 40_000).astype(np.uint16) if number % 2 else image
        names = [*PROPERTIES, "surface_area", "coordination_number"]
        expected = ndimage.regionprops_table(labels, grey, names, spacing=sampling)
        table = ndimage.regionprops_table(upload(labels), upload(grey), names, spacing=sampling)
        assert list(table) == list(expected)
        for name, column in table.items():
            same(column, expected[name])


def test_without_background_all_is_infinitely_far() -> None:
    assert np.isinf(ndimage.distance_transform_edt(np.ones((3, 4)))).all()
    assert np.isinf(ndimage.local_thickness(np.ones((3, 4)))).all()
    assert not ndimage.local_thickness(np.zeros((3, 4))).any()


def test_an_array_of_the_right_type_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    find = ndimage.find_components
    monkeypatch.setattr(
        ndimage,
        "find_components",
        lambda phase, *a, **k: (taken.append(phase), find(phase, *a, **k))[1],
    )
    void = np.ones((2, 3, 4), bool)
    ndimage.label(void)
    assert np.shares_memory(taken[0], void)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "one axis": (lambda: ndimage.label(np.ones(4)), "two or three axes"),
    "nothing": (lambda: ndimage.label(np.ones((0, 4))), "two or three axes"),
    "complex numbers": (lambda: ndimage.label(np.ones((2, 4), complex)), "real numbers"),
    "edges only": (
        lambda: ndimage.label(np.ones((2, 2, 2)), ndi.generate_binary_structure(3, 2)),
        "generate_binary_structure(3, 1)",
    ),
    "indices": (
        lambda: ndimage.distance_transform_edt(np.ones((2, 2)), return_indices=True),
        "Only distances",
    ),
    "no size": (lambda: ndimage.distance_transform_edt(np.ones((2, 2)), 0), "above 0"),
    "sizes of other axes": (
        lambda: ndimage.distance_transform_edt(np.ones((2, 2)), (1, 2, 3)),
        "one number above 0, or 2",
    ),
    "NaN": (lambda: ndimage.watershed(np.array([[1, np.nan]])), "holds NaN"),
    "lines": (lambda: ndimage.watershed(np.ones((2, 2)), watershed_line=True), "no lines"),
    "both ways to merge": (
        lambda: ndimage.watershed(np.ones((2, 2)), np.ones((2, 2), int), merge_height=1),
        "Leave out one",
    ),
    "another connectivity": (
        lambda: ndimage.watershed(np.ones((2, 2, 2)), connectivity=2),
        "must be 1 or 3",
    ),
    "sampling of grey values": (lambda: ndimage.watershed(np.ones((2, 2)), sampling=2), "booleans"),
    "markers of another shape": (
        lambda: ndimage.watershed(np.ones((2, 2)), np.ones((2, 3), int)),
        "markers must have the shape",
    ),
    "markers of fractions": (
        lambda: ndimage.watershed(np.ones((2, 2)), np.ones((2, 2))),
        "whole numbers",
    ),
    "too high markers": (
        lambda: ndimage.watershed(np.ones((2, 2)), np.full((2, 2), 2**40)),
        "numbers up to",
    ),
    "labels of fractions": (lambda: ndimage.regionprops_table(np.ones((2, 2))), "whole numbers"),
    "too high labels": (
        lambda: ndimage.regionprops_table(np.full((2, 2), 5)),
        "0 to 4, the number of voxels",
    ),
    "an unknown property": (
        lambda: ndimage.regionprops_table(np.ones((2, 2), int), properties=["feret"]),
        "no property 'feret'",
    ),
    "large integers": (
        lambda: ndimage.regionprops_table(np.ones((2, 2), int), np.ones((2, 2), np.int64)),
        "up to 16 bits",
    ),
    "infinite grey values": (
        lambda: ndimage.regionprops_table(
            np.ones((2, 2), int), np.full((2, 2), np.inf, np.float32)
        ),
        "4 values that are not finite",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_not_supported_is_said(what: str) -> None:
    call, said = WRONG[what]
    with pytest.raises(InputError, match=re.escape(said)):
        call()


@pytest.mark.parametrize("upload", ["forward"], indirect=True)
def test_arrays_of_two_devices_are_refused(upload: Callable[[Any], Any]) -> None:
    with pytest.raises(InputError, match="must both be in host memory, or on the GPU"):
        ndimage.watershed(upload(np.ones((2, 2))), np.ones((2, 2), int))


@pytest.mark.gpu
def test_arrays_of_cupy_stay_on_the_gpu() -> None:
    cupy = pytest.importorskip("cupy")
    image = smooth(np.random.default_rng(0), (40, 50, 60))
    void = image > 0.5
    same(ndimage.label(cupy.asarray(void))[0].get(), ndimage.label(void)[0])
    same(ndimage.fill_holes(cupy.asarray(void)).get(), ndimage.fill_holes(void))
    distance = ndimage.distance_transform_edt(void, (2, 1, 1))
    there = ndimage.distance_transform_edt(cupy.asarray(void), (2, 1, 1))
    same(there.get(), distance)
    same(
        ndimage.watershed(-there, mask=cupy.asarray(void)).get(),
        ndimage.watershed(-distance, mask=void),
    )
    markers = np.where(image < 0.4, 1, 0)
    found = ndimage.watershed(cupy.asarray(image), cupy.asarray(markers))
    same(found.get(), ndimage.watershed(image, markers))
    labels = ndimage.watershed(void, merge_height=0.3)
    same(ndimage.watershed(cupy.asarray(void), merge_height=0.3).get(), labels)
    same(ndimage.local_thickness(cupy.asarray(void)).get(), ndimage.local_thickness(void))
    expected = ndimage.regionprops_table(labels, image, PROPERTIES)
    table = ndimage.regionprops_table(cupy.asarray(labels), cupy.asarray(image), PROPERTIES)
    for name, column in table.items():
        same(column, expected[name])
