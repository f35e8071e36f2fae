"""A random forest: grown from painted voxels, stored as plain arrays, applied by threads.

Grown here rather than by scikit-learn, whose trees are pickled and differ between its versions, and
which adds 54 MB.

References
----------
L. Breiman (2001), "Random forests". https://doi.org/10.1023/A:1010933404324
C. Chen, A. Liaw and L. Breiman (2004), "Using random forest to learn imbalanced data" (as many
samples of each class for every tree). https://statistics.berkeley.edu/tech-reports/666
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.pores.parallel import inlined, kernel

if TYPE_CHECKING:
    from hushpore.base.arrays import Float32s, Int64s
    from hushpore.pores.parallel import KernelThreads

#: Number of trees, and samples of each class at most that a tree is grown from.
TREES, _SAMPLES = 100, 500

#: Voxels that pass a tree before the next one: their features stay in the cache.
_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees one after another; a voxel goes right where its feature is above the threshold.

    Attributes
    ----------
    roots : numpy.ndarray
        int32, shape (trees,): first node of each tree.
    feature, threshold, left : numpy.ndarray
        int32, float32 and int32, shape (nodes,): the feature of each node, its threshold, and the
        node on the left, before the one on the right; 0 for a leaf.
    votes : numpy.ndarray
        float32, shape (nodes, classes): share of each class among the samples of a node.
    """

    roots: Any
    feature: Any
    threshold: Any
    left: Any
    votes: Any

    @classmethod
    def grown(
        cls, features: Float32s, classes: Int64s, threads: KernelThreads, trees: int = TREES
    ) -> Forest:
        """Grow a forest; the same samples give the same forest, on any number of threads.

        `features`: (samples, features). `classes`: (samples,), from 0; each has a sample.
        """
        count = int(classes.max()) + 1
        members = [np.flatnonzero(classes == each) for each in range(count)]
        drawn = min(max(own.size for own in members), _SAMPLES)
        found: list[Any] = [None] * trees

        def grow(first: int, last: int) -> None:
            for tree in range(first, last):
                rng = np.random.default_rng(tree)
                chosen = np.concatenate([rng.choice(own, drawn) for own in members])
                room = 2 * chosen.size
                arrays = (
                    np.zeros(room, np.int32), np.zeros(room, np.float32),
                    np.zeros(room, np.int32), np.zeros((room, count), np.float32),
                )  # fmt: skip
                random = rng.random((room, features.shape[1]), np.float32)
                size = _grow(features[chosen], classes[chosen], random, *arrays)
                found[tree] = [each[:size] for each in arrays]

        threads.over(trees, grow)
        feature, threshold, left, votes = (
            np.concatenate(each) for each in zip(*found, strict=True)
        )
        sizes = [tree[0].size for tree in found]
        roots = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
        left[left > 0] += np.repeat(roots, sizes)[left > 0]
        return cls(roots, feature, threshold, left, votes)

    def probabilities(self, features: Float32s, threads: KernelThreads) -> Float32s:
        """Return the probability of each class.

        `features`: (features, ...). Returns: float32, (classes, ...), the mean vote of the trees.
        """
        flat = features.reshape(len(features), -1)
        found = np.zeros((self.votes.shape[1], flat.shape[1]), np.float32)
        trees = self.roots, self.feature, self.threshold, self.left, self.votes
        threads.over(flat.shape[1], _vote, flat, *trees, found, smallest=_AT_ONCE)
        found /= np.float32(self.roots.size)
        return found.reshape(-1, *features.shape[1:])


@inlined
def _split(values: Any, classes: Any, total: Any, below: Any) -> Any:  # pragma: no cover
    """Return the threshold between values at which the Gini impurity falls most, and its gain.

    `total`: samples of each class. `below`: room for as many numbers. The gain is below 0 if all
    values are the same.
    """
    ranked = np.argsort(values, kind="mergesort")
    below[:] = 0
    best, cut = -1.0, values[0]
    for at in range(values.size - 1):
        below[classes[ranked[at]]] += 1
        low, high = values[ranked[at]], values[ranked[at + 1]]
        if low < high:
            left = (below * below).sum() / (at + 1)
            rest = total - below
            gain = left + (rest * rest).sum() / (values.size - at - 1)
            if gain > best:
                middle = np.float32((np.float64(low) + np.float64(high)) / 2)
                best, cut = gain, middle if middle < high else low
    return best, cut


@kernel
def _grow(
    features: Any, classes: Any, drawn: Any, feature: Any, threshold: Any, left: Any, votes: Any
) -> int:  # pragma: no cover
    """Grow one tree until its leaves are pure; returns its number of nodes.

    Each node is split by the best of the square root of all features, drawn at random; those that
    are constant in the node do not count. `drawn`: random numbers, (nodes, features).
    """
    samples, count = features.shape
    # samples of a node are neighbours in `order`; `ends` holds the ranges of the nodes
    order = np.arange(samples)
    ends = np.zeros((votes.shape[0], 2), np.int64)
    ends[0, 1] = samples
    below, total = np.zeros(votes.shape[1]), np.zeros(votes.shape[1])
    size, node = 1, 0
    while node < size:
        first, last = ends[node]
        own = order[first:last].copy()
        total[:] = 0
        for sample in own:
            total[classes[sample]] += 1
        votes[node] = total / own.size
        tries = int(np.sqrt(count)) if total.max() < own.size else 0
        best, cut, by = -1.0, np.float32(0), -1
        for candidate in np.argsort(drawn[node]):
            if tries == 0:
                break
            gain, middle = _split(features[own, candidate], classes[own], total, below)
            if gain >= 0:
                tries -= 1
            if gain > best:
                best, cut, by = gain, middle, candidate
        if by >= 0:
            is_left = features[own, by] <= cut
            middle_at = first + is_left.sum()
            order[first:middle_at], order[middle_at:last] = own[is_left], own[~is_left]
            feature[node], threshold[node], left[node] = by, cut, size
            ends[size], ends[size + 1] = (first, middle_at), (middle_at, last)
            size += 2
        node += 1
    return size


@kernel
def _vote(
    features: Any,
    roots: Any,
    feature: Any,
    threshold: Any,
    left: Any,
    votes: Any,
    out: Any,
    first: int,
    last: int,
) -> None:  # pragma: no cover
    """Add the votes of all trees for some voxels."""
    for start in range(first, last, _AT_ONCE):
        stop = min(start + _AT_ONCE, last)
        for root in roots:
            for voxel in range(start, stop):
                node = root
                while left[node] > 0:
                    node = left[node] + (features[feature[node], voxel] > threshold[node])
                for each in range(out.shape[0]):
                    out[each, voxel] += votes[node, each]
