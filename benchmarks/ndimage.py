"""The functions of `hushpore.ndimage` beside those of SciPy, scikit-image, edt and cc3d.

First that results are equal on many random arrays, then the time on a rock-like volume, in turn in
one process. edt and cc3d are compared where they are installed (`pip install edt
connected-components-3d`). On a GPU, ours are timed beside CuPy's and cuCIM's.
"""

from __future__ import annotations

import statistics
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage as ndi
from skimage import measure as skimage_measure
from skimage import morphology, segmentation

from benchmarks._parts import Figures, in_one, without_samples
from hushpore import ndimage
from hushpore.device.backend import choose_backend

if TYPE_CHECKING:
    from collections.abc import Callable

#: Random arrays, of two axes and of three.
ARRAYS = 1000

#: Edges of the volumes that are timed, how often, and the edge on a GPU.
EDGES, REPEATS, ON_GPU = (96, 192), 3, 384

MERGE_HEIGHT = 0.4


def measure() -> Figures:
    """Compare on random arrays, and time on volumes, on the CPU."""
    return in_one({name: PARTS[name] for name in ("random arrays", "times")})


def _agreement() -> Figures:
    """Count the random arrays on which results differ."""
    rng = np.random.default_rng(0)
    differ = dict.fromkeys(("label", "fill_holes", "distance", "watershed", "properties"), 0)
    voxels = 0
    for number in range(ARRAYS):
        most = ((9, 14, 70), (33, 70))[number % 2]
        shape = tuple(int(rng.integers(1, 1 + each)) for each in most)
        image = ndi.gaussian_filter(rng.random(shape), rng.uniform(0, 1.5)).astype(np.float32)
        void = image > rng.uniform(0.2, 0.8)
        n_axes, full = len(shape), number % 4 > 1
        structure = ndi.generate_binary_structure(n_axes, n_axes if full else 1)
        sampling = tuple(rng.uniform(0.3, 4, n_axes))
        voxels += image.size
        labels, count = ndi.label(void, structure)
        found, own_count = ndimage.label(void, structure)
        differ["label"] += count != own_count or not np.array_equal(found, labels)
        filled = ndi.binary_fill_holes(void, structure)
        differ["fill_holes"] += not np.array_equal(ndimage.fill_holes(void, structure), filled)
        differ["distance"] += not _same_distance(void, sampling)
        connectivity = n_axes if full else 1
        if image.size > 1:
            minima = morphology.local_minima(image, connectivity=connectivity)
            markers = skimage_measure.label(minima, connectivity=connectivity)
            expected = segmentation.watershed(image, markers, connectivity)
            own = ndimage.watershed(image, markers, connectivity)
            differ["watershed"] += not np.array_equal(own, expected)
        names = ("label", "num_pixels", "area", "bbox", "centroid", "equivalent_diameter_area")
        table = ndimage.regionprops_table(labels, properties=names, spacing=sampling)
        known = skimage_measure.regionprops_table(labels, properties=names, spacing=sampling)
        differ["properties"] += not all(
            np.allclose(table[name], known[name], rtol=1e-9) for name in known
        )
    return {"arrays": ARRAYS, "voxels": voxels, **{f"{k} differs": n for k, n in differ.items()}}


def _same_distance(void: Any, sampling: tuple[float, ...]) -> bool:
    found = ndimage.distance_transform_edt(void, sampling)
    if void.all():
        return bool(np.isinf(found).all())
    expected = [ndi.distance_transform_edt(void, sampling)]
    if find_spec("edt"):
        import edt

        expected.append(edt.edt(void, sampling))
    return all(np.allclose(found, each, rtol=1e-6) for each in expected)


def _volume(edge: int) -> tuple[Any, Any]:
    """Return a void of structures of some ten voxels, and grey values."""
    rng = np.random.default_rng(0)
    grey = ndi.gaussian_filter(rng.standard_normal((edge,) * 3, np.float32), 4, mode="wrap")
    return grey > 0, ((grey / grey.std() * 400) + 2000).clip(0, 4095).astype(np.uint16)


def _times(edge: int) -> Figures:
    """Seconds of each function and of its counterparts on the CPU."""
    void, grey = _volume(edge)
    distance = ndi.distance_transform_edt(void).astype(np.float32)
    peaks = skimage_measure.label(morphology.local_maxima(distance) & void)
    labels = ndimage.watershed(void, merge_height=MERGE_HEIGHT)
    names = ("label", "area", "bbox", "centroid", "intensity_mean")
    ways: dict[str, dict[str, Callable[[], Any]]] = {
        "label": {"hushpore": lambda: ndimage.label(void), "SciPy": lambda: ndi.label(void)},
        "distance_transform_edt": {
            "hushpore": lambda: ndimage.distance_transform_edt(void),
            "SciPy": lambda: ndi.distance_transform_edt(void),
        },
        "fill_holes": {
            "hushpore": lambda: ndimage.fill_holes(void),
            "SciPy": lambda: ndi.binary_fill_holes(void),
        },
        "watershed, markers": {
            "hushpore": lambda: ndimage.watershed(-distance, peaks, mask=void),
            "scikit-image": lambda: segmentation.watershed(-distance, peaks, mask=void),
        },
        "watershed, merge height": {
            "hushpore": lambda: ndimage.watershed(void, merge_height=MERGE_HEIGHT)
        },
        "local_thickness": {"hushpore": lambda: ndimage.local_thickness(void)},
        "regionprops_table": {
            "hushpore": lambda: ndimage.regionprops_table(labels, grey, names),
            "scikit-image": lambda: skimage_measure.regionprops_table(labels, grey, names),
        },
    }
    if find_spec("cc3d"):
        import cc3d

        ways["label"]["cc3d"] = lambda: cc3d.connected_components(void, connectivity=6)
    if find_spec("edt"):
        import edt

        ways["distance_transform_edt"]["edt"] = lambda: edt.edt(void, parallel=0)
    return _in_turn(ways)


def _in_turn(ways: dict[str, dict[str, Callable[[], Any]]]) -> Figures:
    """Return the median seconds of each way, of those that do the same in turn."""
    figures, samples = {}, {}
    for name, works in ways.items():
        for work in works.values():
            work()
        seconds: dict[str, list[float]] = {way: [] for way in works}
        for _ in range(REPEATS):
            for way, work in works.items():
                start = time.perf_counter()
                work()
                seconds[way].append(round(time.perf_counter() - start, 5))
        medians = {way: statistics.median(each) for way, each in seconds.items()}
        figures[name] = {
            **{f"{way}, s": each for way, each in medians.items()},
            **{
                f"{way} over hushpore": round(each / medians["hushpore"], 2)
                for way, each in medians.items()
                if way != "hushpore"
            },
        }
        samples[name] = seconds
    return {**figures, "samples": samples}


def _on_gpu() -> Figures:
    """Seconds on a GPU, beside CuPy's and cuCIM's functions, and whether results are the CPU's."""
    cupy = choose_backend("cuda").cupy()
    from cupyx.scipy import ndimage as cupy_ndimage

    host_void, host_grey = _volume(ON_GPU)
    void, grey = cupy.asarray(host_void), cupy.asarray(host_grey)
    distance = ndimage.distance_transform_edt(void)
    labels = ndimage.watershed(void, merge_height=MERGE_HEIGHT)
    markers = cupy.where(distance > distance.max() / 2, ndimage.label(distance > 4)[0], 0)
    cucim: dict[str, Callable[[], Any]] = {}
    if find_spec("cucim"):
        from cucim.core.operations.morphology import distance_transform_edt

        cucim = {"cuCIM": lambda: distance_transform_edt(void)}
    ways: dict[str, dict[str, Callable[[], Any]]] = {
        "label": {
            "hushpore": lambda: ndimage.label(void),
            "CuPy": lambda: cupy_ndimage.label(void),
        },
        "fill_holes": {
            "hushpore": lambda: ndimage.fill_holes(void),
            "CuPy": lambda: cupy_ndimage.binary_fill_holes(void),
        },
        "distance_transform_edt": {
            "hushpore": lambda: ndimage.distance_transform_edt(void),
            "CuPy": lambda: cupy_ndimage.distance_transform_edt(void),
            **cucim,
        },
        "watershed, markers": {
            "hushpore": lambda: ndimage.watershed(-distance, markers, mask=void)
        },
        "watershed, merge height": {
            "hushpore": lambda: ndimage.watershed(void, merge_height=MERGE_HEIGHT)
        },
        "regionprops_table": {"hushpore": lambda: ndimage.regionprops_table(labels, grey)},
    }
    waited = {
        name: {way: _waited(work, cupy) for way, work in works.items()}
        for name, works in ways.items()
    }
    pairs = {
        "labels": (ndimage.label(void)[0], ndimage.label(host_void)[0]),
        "distances": (distance, ndimage.distance_transform_edt(host_void)),
        "pores": (labels, ndimage.watershed(host_void, merge_height=MERGE_HEIGHT)),
    }
    same = {
        f"{name} are the CPU's": bool(np.array_equal(cupy.asnumpy(there), here))
        for name, (there, here) in pairs.items()
    }
    return {**same, **_in_turn(waited)}


def _waited(work: Callable[[], Any], cupy: Any) -> Callable[[], Any]:
    def done() -> None:
        work()
        cupy.cuda.Device().synchronize()

    return done


def _by_edge() -> Figures:
    """Seconds at each edge."""
    return without_samples({f"{edge}^3": _times(edge) for edge in EDGES})


PARTS = {"random arrays": _agreement, "times": _by_edge, "on a GPU": _on_gpu}
