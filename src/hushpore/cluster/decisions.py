"""What the client puts together from what all slabs tell: few numbers, each in a moment."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.pores.threshold import Histogram, Range, counted_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.cluster.void import Report


def digest_of(reports: Sequence[Report]) -> dict[str, str]:
    """Return what tells the input from others: the fingerprint of those of all slices."""
    digest = hashlib.blake2b(digest_size=16)
    for each in reports:
        digest.update(each["slices"].tobytes())
    return {"blake2b_of_slices": digest.hexdigest()}


def range_of(reports: Sequence[Report], dtype: np.dtype[Any]) -> tuple[Range, Histogram | None]:
    """Return the range of all values, and their histogram where one reading was enough for it."""
    if "counts" not in reports[0]:
        ends = np.array([each["range"] for each in reports])
        bad = sum(int(each["bad"]) for each in reports)
        return Range(ends[:, 0].min(), ends[:, 1].max(), bad), None
    limits = counted_once(dtype)
    assert limits is not None, "they were counted"
    counts = np.sum([each["counts"] for each in reports], axis=0)
    levels = int(limits.low) + np.arange(counts.size, dtype=np.float64)
    histogram = Histogram(counts, levels).trimmed()
    return Range(*dtype.type(histogram.centers[[0, -1]])), histogram


def histogram_of(reports: Sequence[Report]) -> Histogram:
    """Return the histogram of all values from those of slabs."""
    return Histogram(np.sum([each["counts"] for each in reports], axis=0), reports[0]["centers"])


class Joined(NamedTuple):
    """The connected components of the void.

    Attributes
    ----------
    marked : list of numpy.ndarray
        For each slab, of each of its parts that it shares, whether the component is marked.
    voxels : tuple of int
        Of the components that are marked, and of those that are not.
    components : int
        How many there are.
    """

    marked: list[npt.NDArray[np.bool_]]
    voxels: tuple[int, int]
    components: int


def join_shared(reports: Sequence[Report], pairs: Sequence[Report]) -> Joined:
    """Join the parts that slabs share, by the pairs that touch over each face between two."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    before = np.cumsum([0, *(each["shared_voxels"].size for each in reports)])
    size = int(before[-1])
    ends = [np.zeros((0, 2), np.int64)]
    ends += [each["pairs"] + before[slab : slab + 2] for slab, each in enumerate(pairs)]
    first, second = np.concatenate(ends).T
    count, component = 0, np.zeros(0, np.int32)
    if size:
        touching = coo_array((np.ones(first.size, np.bool_), (first, second)), (size, size))
        count, component = connected_components(touching, directed=False)
    marked = np.zeros(count, np.bool_)
    marked[component[np.concatenate([each["shared_marked"] for each in reports])]] = True
    own = marked[component]
    voxels = np.concatenate([each["shared_voxels"] for each in reports])
    alone = [sum(int(each[name]) for each in reports) for name in ("marked_voxels", "other_voxels")]
    return Joined(
        np.split(own, before[1:-1]),
        (alone[0] + int(voxels[own].sum()), alone[1] + int(voxels[~own].sum())),
        count + sum(int(each["count"]) for each in reports),
    )
