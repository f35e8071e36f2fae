"""Image functions with the signatures of SciPy and scikit-image, for NumPy and CuPy arrays alike.

They are what a pore segmentation calls, without its settings, threshold and record. Arrays have two
or three axes, (y, x) or (z, y, x), and fewer than 2**31 voxels. An array in GPU memory (CuPy's, or
another with ``__cuda_array_interface__``) is processed there, and the result, a CuPy array, is that
of the CPU, bit for bit; it must belong to the current device, and needs CuPy and PyTorch. Arrays in
C order of the type that a function needs are not copied.

All functions use every core, and all but `local_thickness` take time linear in the number of
voxels. What memory each takes, beside input and result, is given with it.

>>> import numpy as np
>>> from hushpore import ndimage
>>> ndimage.label(np.array([[1, 0, 1], [1, 0, 0]]))
(array([[1, 0, 2],
       [1, 0, 0]], dtype=int32), 2)
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.volume import Volume
from hushpore.device.timing import StageTimer
from hushpore.pores.engine import Engine, VoidCounts
from hushpore.pores.geometry.thickness import find_thickness
from hushpore.pores.gpu.engine import Gpu, load_kernels
from hushpore.pores.gpu.engines import DEEPEST, GpuWhole
from hushpore.pores.gpu.void import GpuGrey, GpuParts, kind_of
from hushpore.pores.numbering import lowest_markers
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Slabs, Stack
from hushpore.pores.tables.measures import PORES, pore_columns, throat_columns
from hushpore.pores.void.components import CLOSED, OPEN, find_components
from hushpore.pores.void.threshold import AS_IS, GreyValues, RoundedGrey, Rounding, find_range
from hushpore.pores.watershed.basins import SlabWatershed
from hushpore.pores.watershed.merging import (
    Numbering,
    merge_by_height,
    merge_to_markers,
    number_pores,
)
from hushpore.pores.work import spacing_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Array, Int32s, Int64s
    from hushpore.pores.watershed.graph import BasinGraph

_NO_FACES = (False, False, False)
_MOST = 2**31 - 1  # voxels that int32 can index

#: Least height of a voxel to be flooded: 0 is the solid.
_LEAST = np.finfo(np.float32).tiny

#: Names of scikit-image for columns of the table of pores, {} for z, y or x.
_COLUMNS = {
    "area": "volume",
    "bbox": "bbox_{}_start bbox_{}_stop",
    "centroid": "centroid_{}",
    "equivalent_diameter_area": "equivalent_diameter",
    "intensity_mean": "mean_grey",
    "intensity_std": "grey_deviation",
    "num_pixels": "num_voxels",
}

#: Columns of that table that need the void around the labels.
_OF_VOID = {"closed_voxels", "inscribed_diameter", "is_open"}


def label(input: Any, structure: Any = None) -> tuple[Any, int]:
    """Label connected components, as `scipy.ndimage.label`.

    Parameters
    ----------
    input : array_like
        Values other than 0 are labelled.
    structure : array_like, optional
        As of `scipy.ndimage.generate_binary_structure`: with connectivity 1 (the default), voxels
        that share a face are connected; with that of all axes, those that share a corner too.

    Returns
    -------
    labels : array
        int32, numbered from 1 in the order of their first voxels, as by SciPy; 0 elsewhere.
    num_features : int
        Number of components.

    Raises
    ------
    InputError
        If the array has another number of axes or too many voxels, or with another `structure`.

    Notes
    -----
    Runs of voxels are joined (https://doi.org/10.1109/TIP.2008.919369). Memory: 1 byte per voxel,
    unless `input` is boolean; on the CPU 12 bytes for each run along x besides. On a GPU the host
    waits once, for the number.
    """
    given = _Given(input)
    phase, full = given.mask(), _is_full(structure, given.n_axes)
    if given.gpu is not None:
        labels, count = GpuParts(given.gpu, phase, full=full).numbered()
        return labels.reshape(given.shape), count
    with KernelThreads() as threads:
        components = find_components(phase, _NO_FACES, threads, full=full)
        count = components.voxels.size
        # voxels have label 1 to begin with, the only one that is not painted
        labels = phase.astype(np.int32)
        components.paint(0, labels, np.arange(1, count + 1, dtype=np.int32), threads)
    return labels.reshape(given.shape), count


def fill_holes(input: Any, structure: Any = None) -> Any:
    """Fill the holes of a binary image, as `scipy.ndimage.binary_fill_holes`.

    Parameters
    ----------
    input : array_like
        Values other than 0 are the object.
    structure : array_like, optional
        Connectivity of the background, as for `label`.

    Returns
    -------
    array
        bool: the object, and the background that is not connected to a face of the array.

    Raises
    ------
    InputError
        As for `label`.

    Notes
    -----
    Memory: 1 byte per voxel, and as for `label`; on a GPU 5 bytes per voxel besides.

    Examples
    --------
    >>> fill_holes([[1, 1, 1], [1, 0, 1], [1, 1, 1]]).all()
    np.True_
    """
    given = _Given(input)
    full = _is_full(structure, given.n_axes)
    phase = (given.values == 0).view(np.uint8)
    faces = (given.n_axes == 3, True, True)
    if given.gpu is not None:
        parts = GpuParts(given.gpu, phase, full=full)
        parts.mark_faces(along_z=(faces[0],) * 2, along_y=True)
        parts.classify(phase, OPEN, CLOSED)
    else:
        with KernelThreads() as threads:
            components = find_components(phase, faces, threads, full=full)
            phase_of = np.where(components.is_open, OPEN, CLOSED).astype(np.uint8)
            components.paint(0, phase, phase_of, threads)
    return (phase != OPEN).reshape(given.shape)


def distance_transform_edt(
    input: Any,
    sampling: float | Sequence[float] | None = None,
    return_distances: bool = True,
    return_indices: bool = False,
) -> Any:
    """Find the Euclidean distance to the background, as `scipy.ndimage.distance_transform_edt`.

    Parameters
    ----------
    input : array_like
        Values other than 0 are the object.
    sampling : float or sequence of float, optional
        Size of a voxel, along each axis or along all. By default 1.
    return_distances, return_indices : bool, optional
        Only distances are found: any other choice raises an error.

    Returns
    -------
    array
        float32, in the unit of `sampling`: distance from the centre of each voxel of the object to
        that of the nearest voxel of the background; 0 in the background. Infinite if there is no
        background. The square, in voxels of the smallest sampling, is rounded to float32, and so is
        exact for cubic voxels up to 4,096 voxels.

    Raises
    ------
    InputError
        If the array or `sampling` does not fit, or indices are requested.

    Notes
    -----
    Lower envelopes along each axis (https://doi.org/10.4086/toc.2012.v008a019). Memory: as `label`
    for the mask; on the CPU 20 bytes per pixel of a slice for each thread, on a GPU 4 per voxel.

    Examples
    --------
    >>> distance_transform_edt([[0, 1, 1], [1, 1, 1]], sampling=(2, 1))
    array([[0.      , 1.      , 2.      ],
           [2.      , 2.236068, 2.828427]], dtype=float32)
    """
    if return_indices or not return_distances:
        raise InputError(
            "Only distances are found, not the indices of the nearest voxels. Leave out "
            "return_distances and return_indices."
        )
    given = _Given(input)
    spacing = given.spacing(sampling)
    with KernelThreads() as threads:
        distance = _squared_distance(given, spacing, threads)
    given.xp.sqrt(distance, out=distance)
    if min(spacing) != 1:
        distance *= np.float32(min(spacing))
    return distance.reshape(given.shape)


def local_thickness(image: Any, sampling: float | Sequence[float] | None = None) -> Any:
    """Find the local thickness: the diameter of the widest ball that covers each voxel.

    Parameters
    ----------
    image : array_like
        Values other than 0 are the object.
    sampling : float or sequence of float, optional
        As for `distance_transform_edt`.

    Returns
    -------
    array
        float32, in the unit of `sampling`: twice what ``porespy.filters.local_thickness`` returns.
        0 in the background; infinite if there is none.

    Raises
    ------
    InputError
        If the array or `sampling` does not fit.

    Notes
    -----
    No ball is left out or rounded; how wide the object is about a voxel is estimated as in
    :doc:`/thickness`. Time grows with the number of balls that lie in no other, a tenth to a third
    of the voxels of the object. Memory: 4 bytes per voxel for the distance, up to 28 bytes per
    ball. Balls are found on the CPU: of an array on a GPU, distance and result are copied.

    Examples
    --------
    >>> local_thickness([[0, 1, 1, 1, 0]])
    array([[0., 3., 3., 3., 0.]], dtype=float32)
    """
    given = _Given(image)
    spacing, depth = given.spacing(sampling), len(given.values)
    slabs = Slabs(depth, depth)
    with KernelThreads() as threads:
        squared = _squared_distance(given, spacing, threads)
        distance = Stack.of(squared if given.gpu is None else given.gpu.get(squared))
        thickness = Stack(distance.shape, np.float32, None)
        result_of(find_thickness(distance, slabs, thickness, spacing, _NO_FACES, threads))
    found = thickness.array().reshape(given.shape)
    return given.put(found)


def watershed(
    image: Any,
    markers: Any = None,
    connectivity: int = 1,
    offset: Any = None,
    mask: Any = None,
    compactness: float = 0,
    watershed_line: bool = False,
    *,
    merge_height: float | None = None,
    sampling: float | Sequence[float] | None = None,
) -> Any:
    """Label the catchment basins of an image, as `skimage.segmentation.watershed`.

    Parameters
    ----------
    image : array_like
        Values to be flooded from the lowest upwards: any real type without NaN, rounded to float32;
        for example ``-distance_transform_edt(void)``. Or booleans, True in the void: its distance
        is found and flooded, as by `hushpore.segment_pores`.
    markers : array_like, optional
        Integer labels in the shape of `image`, 0 for no marker. By default every local minimum.
    connectivity : int, optional
        1 if one floods over the faces of voxels only, the number of axes if over edges and corners
        too.
    offset, compactness, watershed_line : optional
        Not supported: any other value than the default raises an error.
    mask : array_like, optional
        Voxels to be labelled, other than 0. By default all; with booleans those of the void.
    merge_height : float, optional
        Without markers: neighbouring basins merge if the lower of their depths below the pass
        between them is at most this, in units of `image`; with booleans in voxels of the smallest
        `sampling`, as the setting of this name. By default, basins do not merge.
    sampling : float or sequence of float, optional
        With booleans: size of a voxel, as for `distance_transform_edt`.

    Returns
    -------
    array
        int32: the label of the marker that reaches each voxel, or else basins from 1 in the order
        of their minima in memory; 0 outside the mask and where no marker reaches.

    Raises
    ------
    InputError
        If the arrays do not fit, the image holds NaN, or an option is not supported.

    Notes
    -----
    Each voxel leads to its lowest neighbour, and basins flood one another in the order of their
    passes: a minimum spanning forest (https://doi.org/10.1109/TPAMI.2008.173). If no two values are
    equal and every minimum has a marker of its own, the result is that of scikit-image. Otherwise
    voxels may differ that several markers reach at the same level; of equal values that with the
    lower neighbourhood comes first, however the image is turned.

    Memory: 5 bytes per voxel on the CPU, 9 on a GPU, 8 more for images of 64 bits; 68 bytes for
    each pair of neighbouring basins. These merge on the host: a GPU sends it 250 bytes per basin.

    Examples
    --------
    >>> watershed([3.0, 1.0, 2.0, 4.0, 0.0] * np.ones((2, 1)))
    array([[1, 1, 1, 2, 2],
           [1, 1, 1, 2, 2]], dtype=int32)
    """
    if offset is not None or compactness or watershed_line:
        raise InputError(
            "This watershed has no offset, no compactness and no lines. Leave these out; "
            "skimage.segmentation.find_boundaries finds lines."
        )
    if markers is not None and merge_height is not None:
        raise InputError("Basins merge by markers or by merge_height. Leave out one of them.")
    given = _Given(image)
    if connectivity not in (1, given.n_axes):
        raise InputError(f"connectivity must be 1 or {given.n_axes}; got {connectivity!r}.")
    of_void = given.values.dtype == np.bool_
    if sampling is not None and not of_void:
        raise InputError("sampling counts with booleans only, whose distance is found.")
    marked = None if markers is None else _Marked(given, given.like(markers, "markers"))
    with KernelThreads() as threads:
        if of_void:
            heights = _squared_distance(given, given.spacing(sampling), threads)
        else:
            heights = _heights(given)
        if mask is not None:
            given.xp.copyto(heights, np.float32(0), where=given.like(mask, "mask") == 0)
        flooding = _Flooding(given.engine(threads), heights, connectivity == 1)
        found = flooding.basins()
        if marked is not None:
            further = marked.elsewhere(found)
            found = flooding.basins(given.put(further)) if further.size else found
            graph = flooding.graph(found.basins, found.peaks)
            label_of = merge_to_markers(graph, marked.lowest(found.basins, graph.count))
        elif merge_height is not None:
            graph = flooding.graph(found.basins, found.peaks)
            root = merge_by_height(graph, merge_height, squared=of_void)
            label_of = number_pores(graph, root, 1, None).label_of
        else:
            return found.basins.reshape(given.shape)
        labels = flooding.engine.relabelled(found.basins, label_of)
    return labels.reshape(given.shape)


def regionprops_table(
    label_image: Any,
    intensity_image: Any = None,
    properties: Sequence[str] = ("label", "bbox"),
    *,
    separator: str = "-",
    spacing: float | Sequence[float] | None = None,
) -> dict[str, Array]:
    """Measure labelled regions, as `skimage.measure.regionprops_table`.

    Parameters
    ----------
    label_image : array_like
        Integer labels from 1 to the number of voxels; 0 is not measured.
    intensity_image : array_like, optional
        Grey values in the same shape: integers of up to 16 bits, or float32, finite.
    properties : sequence of str, optional
        Of scikit-image's: ``label``, ``num_pixels``, ``area``, ``bbox``, ``centroid``,
        ``equivalent_diameter_area``, ``intensity_mean`` and ``intensity_std``; and the columns of
        the table of pores (`hushpore.pores.tables.measures.PORES`) that do not need the void:
        ``surface_area``, ``sphericity``, ``elongation_ratio``, ``coordination_number`` and more.
    separator : str, optional
        Between a property and its number, if it has several values.
    spacing : float or sequence of float, optional
        Size of a voxel, as `sampling` of `distance_transform_edt`.

    Returns
    -------
    dict of str to numpy.ndarray
        Columns in host memory, with one row for each label that occurs, ascending.

    Raises
    ------
    InputError
        If the arrays do not fit, a property is unknown, or there are too high labels.

    Notes
    -----
    Sums are of whole numbers, so that they are exact and do not depend on the device; see
    ``mean_grey`` in :doc:`/reference/columns` for grey values. Memory: 4 bytes per voxel, 4 more
    each for grey values and for labels of another type than int32; 250 bytes per label.

    Examples
    --------
    >>> regionprops_table(np.array([[1, 1, 0], [0, 0, 3]]), properties=("label", "area"))
    {'label': array([1, 3], dtype=int32), 'area': array([2., 1.])}
    """
    given = _Given(label_image)
    wanted = {name: _columns_of(name, given.n_axes, separator) for name in properties}
    if given.values.dtype.kind not in "iu":
        raise InputError(f"label_image must hold whole numbers; got {given.values.dtype}.")
    size = given.spacing(spacing)[-given.n_axes :]
    volume = Volume(np.broadcast_to(np.uint8(0), given.shape), spacing=size)
    low, high = map(int, given.on_host(given.values.min(), given.values.max()))
    if low < 0 or high > given.values.size:
        raise InputError(
            f"Labels must be 0 to {given.values.size:,}, the number of voxels; got {low:,} to "
            f"{high:,}. Number them anew with skimage.segmentation.relabel_sequential."
        )
    labels = given.xp.ascontiguousarray(given.values.astype(np.int32, copy=False))
    with KernelThreads() as threads:
        grey = None
        if intensity_image is not None:
            grey = _rounded(given, given.like(intensity_image, "intensity_image"), threads)
        # whose heights count nothing
        flat, peaks = given.xp.zeros(labels.shape, np.float32), given.xp.zeros(high, np.int64)
        graph = _Flooding(given.engine(threads), flat).graph(labels, peaks, grey)
    there = np.flatnonzero(graph.voxels[1:] > 0).astype(np.int32) + np.int32(1)
    label_of = np.zeros(high + 1, np.int32)
    label_of[there] = np.arange(1, there.size + 1)
    gapped = np.concatenate([np.zeros(1, np.int32), there])
    numbering = Numbering(label_of, there, gapped)
    throats = throat_columns(graph, numbering, volume)
    columns = pore_columns(graph, numbering, volume, throats, 1)
    return {
        title: columns[column] for titles in wanted.values() for title, column in titles.items()
    }


class _Given:
    """An array in the form of a stack (z, y, x), and where it is.

    `values`: the stack. `gpu`: its GPU, None on the host.
    """

    def __init__(self, values: Any) -> None:
        self.gpu = _gpu_of(values)
        self.xp: Any = np if self.gpu is None else self.gpu.xp
        array = self.xp.asarray(values)
        self.shape, self.n_axes = tuple(array.shape), array.ndim
        if array.ndim not in (2, 3) or 0 in array.shape or array.dtype.kind not in "biuf":
            raise InputError(
                "An array of two or three axes, (y, x) or (z, y, x), of real numbers is needed; "
                f"got {array.dtype} of shape {self.shape}."
            )
        self.values = array.reshape((1,) * (3 - array.ndim) + self.shape)
        if array.size > _MOST or (self.gpu is not None and len(self.values) > DEEPEST):
            raise InputError(
                f"Up to {_MOST:,} voxels, and on a GPU {DEEPEST:,} slices, are supported; got "
                f"{self.shape}. hushpore.segment_pores processes larger volumes in slabs."
            )

    def like(self, values: Any, name: str) -> Any:
        """Return another array of the same shape and device, as a stack."""
        if (_gpu_of(values) is None) != (self.gpu is None):
            raise InputError(f"{name} and the image must both be in host memory, or on the GPU.")
        array = self.xp.asarray(values)
        if tuple(array.shape) != self.shape:
            raise InputError(
                f"{name} must have the shape of the image, {self.shape}; got {array.shape}."
            )
        return array.reshape(self.values.shape)

    def mask(self) -> Any:
        """Return where values are not 0, as uint8."""
        mask = self.values if self.values.dtype == np.bool_ else self.values != 0
        return self.xp.ascontiguousarray(mask).view(np.uint8)

    def spacing(self, sampling: float | Sequence[float] | None) -> tuple[float, ...]:
        """Return voxel sizes (z, y, x); raise InputError unless they fit."""
        each = np.ones(self.n_axes) if sampling is None else np.asarray(sampling, np.float64)
        if each.ndim == 0:
            each = np.full(self.n_axes, each)
        if each.shape != (self.n_axes,) or not ((each > 0) & np.isfinite(each)).all():
            raise InputError(
                f"Voxel sizes must be one number above 0, or {self.n_axes}; got {sampling!r}."
            )
        stand_in = np.broadcast_to(np.uint8(0), self.shape)
        return spacing_of(Volume(stand_in, spacing=tuple(each.tolist())))

    def engine(self, threads: KernelThreads) -> Engine:
        """Return what computes on the device of the array."""
        return Engine(threads) if self.gpu is None else GpuWhole(self.gpu, threads, StageTimer())

    def put(self, values: Array) -> Any:
        """Copy an array of the host to this device."""
        return values if self.gpu is None else self.gpu.put(values)

    def on_host(self, *arrays: Any) -> list[Array]:
        """Return arrays on the host; waits for a GPU once."""
        if self.gpu is None:
            return [np.asarray(each) for each in arrays]
        return self.gpu.get_all(arrays)


def _gpu_of(values: Any) -> Gpu | None:
    """Return the GPU of an array; None for one in host memory.

    Raises InputError if it is not the current device.
    """
    if not hasattr(values, "__cuda_array_interface__"):
        return None
    import cupy

    current = cupy.cuda.Device().id
    device = cupy.asarray(values).device.id
    if device != current:
        raise InputError(
            f"The array is on GPU {device}, and GPU {current} is current. Call this within 'with "
            f"cupy.cuda.Device({device}):'."
        )
    return _current_gpu(cupy, f"cuda:{device}")


@lru_cache
def _current_gpu(cupy: Any, device: str) -> Gpu:
    from hushpore.device.switches import Choices, Switches
    from hushpore.device.transfers import Transfers

    # plain copies, and pools without a limit: the memory is the caller's
    transfers = Transfers(device, None, Choices(Switches()))
    return Gpu(cupy, lambda source, macros: load_kernels(source, device, macros), transfers)


def _is_full(structure: Any, n_axes: int) -> bool:
    """Whether corners connect; raise InputError unless a structure is one of the two."""
    from scipy.ndimage import generate_binary_structure

    if structure is None:
        return False
    for full in (False, True):
        known = generate_binary_structure(n_axes, n_axes if full else 1)
        if np.array_equal(np.asarray(structure) != 0, known):
            return full
    raise InputError(
        f"structure must be scipy.ndimage.generate_binary_structure({n_axes}, 1) or "
        f"({n_axes}, {n_axes}): voxels that share a face, or all that touch."
    )


def _squared_distance(given: _Given, spacing: Sequence[float], threads: KernelThreads) -> Any:
    """Return the squared distance to the background, float32, in voxels of the smallest size."""
    phase = given.mask()
    room = np.empty(phase.shape, np.float32) if given.gpu is None else None
    return given.engine(threads).fill_distance(phase, room, None, None, spacing, _NO_FACES)


def _heights(given: _Given) -> Any:
    """Return an image upside down and above 0, float32: exact if it has no value above 0."""
    (top,) = given.on_host(given.values.max())
    if np.isnan(top):
        raise InputError("The image holds NaN. Replace it, for example with numpy.nan_to_num.")
    values = given.values
    is_exact = values.dtype.itemsize <= 2 or values.dtype == np.float32
    kind: Any = np.float32 if is_exact else np.float64
    heights = kind(max(top, 0)) - values.astype(kind, copy=False)
    heights = given.xp.ascontiguousarray(heights.astype(np.float32, copy=False))
    return given.xp.maximum(heights, _LEAST, out=heights)


class _Flooding(NamedTuple):
    """Heights (z, y, x), float32, to be parted into basins; 0 is not flooded."""

    engine: Any  # what computes on their device
    heights: Any
    faces_only: bool = False

    def basins(self, further: Any = None) -> SlabWatershed:
        """Return the basins; `further`: flat indices of voxels that are made peaks."""
        depth = len(self.heights)
        pointers = None if self.engine.holds_all else np.empty(self.heights.shape, np.int32)
        how = {"faces_only": self.faces_only, "further": further}
        return SlabWatershed(*self.engine.watershed_slab(self.heights, pointers, 0, depth, **how))

    def graph(
        self, basins: Any, peaks: Any, grey: tuple[Any, Rounding] | None = None
    ) -> BasinGraph:
        """Return the graph of basins, on the host."""
        engine = self.engine
        tables = engine.tables(basins.shape, peaks, faces_only=self.faces_only)
        rounded, rounding = grey or (None, AS_IS)
        tables.add(basins, self.heights, engine.threads, 0, len(basins), rounded)
        graph: BasinGraph
        graph, _ = engine.graph(tables, VoidCounts(0, 0, 0), rounding)
        return graph


class _Marked:
    """The marked voxels of a stack."""

    def __init__(self, given: _Given, marks: Any) -> None:
        if marks.dtype.kind not in "iu":
            raise InputError(f"markers must be whole numbers, 0 for no marker; got {marks.dtype}.")
        self._given, self._marks, self._at = given, marks, given.xp.flatnonzero(marks)
        self._places, number = given.on_host(self._at, marks.reshape(-1)[self._at])
        if number.size and not -_MOST <= int(number.min()) <= int(number.max()) <= _MOST:
            raise InputError(f"Markers have numbers up to {_MOST:,}; got {number.max():,}.")
        self._number = number.astype(np.int32)

    def elsewhere(self, found: SlabWatershed) -> Int64s:
        """Return the flat indices of the voxels whose marker is not that of their whole basin.

        In other basins the minimum has the only marker.
        """
        marks, basins = self._marks.reshape(-1), found.basins.reshape(-1)
        at_peak, basin = self._given.on_host(marks[found.peaks], basins[self._at])
        whole = np.concatenate([np.zeros(1), at_peak])
        differs = self._number != whole[basin]
        has_others = np.zeros(whole.size, np.bool_)
        has_others[basin[differs]] = True
        has_others[0] = False
        return self._places[has_others[basin]]

    def lowest(self, basins: Any, count: int) -> Int32s:
        """Return the lowest marker in each basin (count + 1,), 0 if there is none."""
        (basin,) = self._given.on_host(basins.reshape(-1)[self._at])
        return lowest_markers(self._number, basin, count)


def _rounded(given: _Given, values: Any, threads: KernelThreads) -> tuple[Any, Rounding]:
    """Return grey values as whole numbers, int32, for exact sums, and how they are rounded."""
    volume = Volume(np.broadcast_to(np.zeros((), values.dtype), values.shape))
    if kind_of(volume) is None:
        held = f"integers of up to 16 bits, or float32; got {values.dtype}"
        raise InputError(f"intensity_image must hold {held}. Convert it first.")
    if given.gpu is None:
        ends = find_range(values, threads)
        grey: Any = GreyValues(volume.replace(values), Slabs(len(values), len(values)))
    else:
        grey = GpuGrey(given.gpu, volume, given.xp.ascontiguousarray(values))
        ends = grey.ends()
    if ends.bad:
        raise InputError(f"intensity_image holds {ends.bad:,} values that are not finite.")
    rounding = Rounding.of(np.dtype(values.dtype), *ends[:2])
    if given.gpu is None:
        return RoundedGrey(grey, rounding).read(0, len(values), threads), rounding
    return grey.rounded(rounding), rounding


def _columns_of(name: str, n_axes: int, separator: str) -> dict[str, str]:
    """Return the columns of the table of pores for a property, by their names in the result."""
    known = {each.name for each in PORES} - _OF_VOID
    patterns = _COLUMNS.get(name, name).split()
    columns = [
        pattern.format(axis)
        for pattern in patterns
        for axis in ("zyx"[-n_axes:] if "{}" in pattern else "z")
    ]
    if not known >= set(columns):
        raise InputError(
            f"There is no property {name!r}. Known are {', '.join(sorted(known | set(_COLUMNS)))}."
        )
    if len(columns) == 1:
        return {name: columns[0]}
    return {f"{name}{separator}{place}": column for place, column in enumerate(columns)}
