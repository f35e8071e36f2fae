"""A classifier of voxels: trained on painted strokes, stored as a file, applied box by box."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.pores.phases.features import COUNT, Extent, features_of
from hushpore.pores.phases.forest import Forest
from hushpore.pores.phases.settings import MOST
from hushpore.pores.work import spacing_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hushpore.base.arrays import Array, Float32s, Int64s, UInt8s
    from hushpore.base.volume import Volume
    from hushpore.pores.engine import Pass
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.phases.features import Network

    Box = tuple[tuple[int, int], ...]

#: Name of the stored classifier in a result folder.
CLASSIFIER = "classifier"

#: Size of a box along z, y and x, and the bytes that one takes: features, and filtered images with
#: the margins around them.
BOX, BYTES_OF_BOX = (24, 256, 256), 7 * 10**8

#: Probability below which the phase of a voxel is doubtful, and what is added to its number then.
DOUBTFUL, DOUBT = 0.6, 128

#: Bytes of a stored classifier at most; eight phases take 100 times less.
_LARGEST = 1 << 28


@dataclass(frozen=True, eq=False)
class Classifier:
    """A random forest with the description of its features.

    Attributes
    ----------
    forest : Forest
        Trees on the features of `hushpore.pores.phases.features`.
    names : tuple of str
        Name of each phase, empty if it has none.
    by_slice : bool
        Whether features are found slice by slice.
    spacing : tuple of float
        Voxel size (z, y, x) of the scan that was painted on.
    painted : tuple of int
        Number of painted voxels of each phase.
    network : numpy.ndarray or None
        uint8, shape (bytes,): a denoiser that finds further features; see `Network.stored`.
    textures : int
        Number of these features.
    """

    forest: Forest
    names: tuple[str, ...]
    by_slice: bool
    spacing: tuple[float, ...]
    painted: tuple[int, ...]
    network: UInt8s | None = None
    textures: int = 0

    @property
    def extent(self) -> Extent:
        """Widths of the filters."""
        return Extent.of(self.spacing, self.by_slice)

    @property
    def arrays(self) -> dict[str, Any]:
        """Named arrays from which `of_arrays` makes it again."""
        facts = {name: value for name, value in vars(self).items() if name in _FACTS}
        network = {} if self.network is None else {"network": self.network}
        return {"facts": np.array(json.dumps(facts)), **vars(self.forest), **network}

    @cached_property
    def fingerprint(self) -> str:
        """Digest of trees and facts, 32 hexadecimal digits."""
        digest = hashlib.blake2b(digest_size=16)
        for name, values in self.arrays.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> Classifier:
        """Return a stored classifier.

        Raises KeyError, TypeError or ValueError if the arrays are not one.
        """
        facts = json.loads(str(arrays["facts"]))
        painted, names = tuple(map(int, facts["painted"])), tuple(map(str, facts["names"]))
        spacing, textures = tuple(map(float, facts["spacing"])), int(facts["textures"])
        network = np.ascontiguousarray(arrays["network"], "u1") if textures else None
        kinds = {"roots": "i4", "feature": "i4", "threshold": "f4", "left": "i4", "votes": "f4"}
        forest = Forest(**{name: np.ascontiguousarray(arrays[name], kinds[name]) for name in kinds})
        nodes, (rows, phases) = np.arange(forest.left.size), forest.votes.shape
        # kernels do not check where they read: each branch must lead to a later node
        is_sound = (
            forest.feature.shape == forest.threshold.shape == forest.left.shape == (rows,)
            and forest.roots.ndim == 1 and forest.roots.size
            and forest.roots.min() >= 0 and forest.roots.max() < rows
            and forest.feature.min() >= 0 and forest.feature.max() < COUNT + textures
            and np.all((forest.left == 0) | (forest.left > nodes)) and forest.left.max() < rows - 1
            and np.isfinite(forest.votes).all()
            and len(names) == len(painted) == phases and 2 <= phases <= MOST
            and len(spacing) == 3 and min(spacing) > 0
        )  # fmt: skip
        if not is_sound:
            raise ValueError("the trees do not fit together")
        return cls(forest, names, bool(facts["by_slice"]), spacing, painted, network, textures)

    def phases_of(
        self,
        read: Callable[[int, int], Array],
        shape: Sequence[int],
        first: int,
        threads: KernelThreads,
        network: Network | None = None,
        kept: UInt8s | None = None,
    ) -> Pass[UInt8s]:
        """Return the phases of a row of boxes; yields the share of the volume done after each box.

        `read`, `shape`: as for `hushpore.pores.phases.features.features_of`. `first`: first slice
        of the row. `network`: the stored one, opened for the volume. `kept`: takes the
        probabilities in percent, (phases, z, y, x).
        Returns: uint8, (z, y, x): numbers from 1, and `DOUBT` more where the phase is doubtful.
        """
        read = lru_cache(1)(read)  # neighbouring boxes need the same slices
        last = min(first + BOX[0], shape[0])
        found = np.empty((last - first, *shape[1:]), np.uint8)
        boxes = list(boxes_of(found.shape))
        for number, (_, *sides) in enumerate(boxes, 1):
            box = ((first, last), *sides)
            features = features_of(read, shape, box, self.extent, threads, network)
            likely = self.forest.probabilities(features, threads)
            inside = tuple(slice(*ends) for ends in sides)
            doubt = DOUBT * (likely.max(axis=0) < DOUBTFUL)
            found[:, *inside] = likely.argmax(axis=0) + 1 + doubt
            if kept is not None:
                kept[:, first:last, *inside] = np.rint(100 * likely)
            yield (first + (last - first) * number / len(boxes)) / shape[0]
        return found


_FACTS = ("names", "by_slice", "spacing", "painted", "textures")


def boxes_of(shape: Sequence[int]) -> Iterator[Box]:
    """Yield the boxes that cover a volume, slices in order."""
    starts = (range(0, n, size) for n, size in zip(shape, BOX, strict=True))
    for corner in product(*starts):
        ends = (min(at + size, n) for at, size, n in zip(corner, BOX, shape, strict=True))
        yield tuple(zip(corner, ends, strict=True))


def painted_features(
    read: Callable[[int, int], Array],
    strokes: Callable[[int, int], Array],
    shape: Sequence[int],
    extent: Extent,
    threads: KernelThreads,
    network: Network | None = None,
) -> Iterator[tuple[float, Float32s, Int64s, Int64s]]:
    """Yield the share done, and the features (voxels, features) of painted voxels.

    With them come their labels and flat indices.

    `read`, `strokes`: return grey values, and integers that are 0 where nothing is painted, of a
    range of slices. `shape`: of the volume, (z, y, x). `network`: finds further features. Grey
    values are read around strokes only.
    """
    boxes, strokes = list(boxes_of(shape)), lru_cache(1)(strokes)
    for number, box in enumerate(boxes, 1):
        part = strokes(*box[0])[:, *(slice(*ends) for ends in box[1:])]
        where = np.nonzero(part)
        if not where[0].size:
            continue
        around = tuple(
            (first + int(at.min()), first + int(at.max()) + 1)
            for (first, _), at in zip(box, where, strict=True)
        )
        features = features_of(read, shape, around, extent, threads, network)
        corner = np.array([at.min() for at in where])
        inside = tuple(at - low for at, low in zip(where, corner, strict=True))
        at = (each + first for each, (first, _) in zip(where, box, strict=True))
        index = np.ravel_multi_index(tuple(at), tuple(shape))
        yield number / len(boxes), features[:, *inside].T, part[where].astype(np.int64), index


class LiveClassifier:
    """Classifies single slices while strokes are painted, by features of slices.

    Features of the last slices, and those of painted voxels, are kept, so that another stroke costs
    a small forest and its votes.

    `volume`: 2D or 3D.
    """

    #: Trees, and slices whose features are kept.
    TREES, KEPT = 50, 3

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._extent = Extent.of(spacing_of(volume), True)
        self._slices: dict[int, Float32s] = {}
        self._painted: dict[int, tuple[Array, Float32s]] = {}

    def classify(self, strokes: Array, at: int, threads: KernelThreads) -> tuple[Int64s, Float32s]:
        """Return the labels of the strokes, and the probability of each in one slice.

        `strokes`: labels in the shape of the volume. `at`: index of the slice, 0 in 2D.
        Returns: (phases,) and float32, (phases, y, x).
        Raises InputError unless strokes have 2 to 8 labels.
        """
        stack = strokes.reshape(-1, *strokes.shape[-2:])
        rows, labels = [], []
        for z in np.flatnonzero(stack.any(axis=(1, 2))).tolist():
            where = np.flatnonzero(stack[z])
            if z not in self._painted or not np.array_equal(self._painted[z][0], where):
                values = self._features(z, threads).reshape(COUNT, -1)[:, where].T
                self._painted[z] = where, values
            rows.append(self._painted[z][1])
            labels.append(stack[z].reshape(-1)[where])
        known, classes = classes_of(np.concatenate([np.zeros(0, np.int64), *labels]))
        forest = Forest.grown(np.concatenate(rows), classes, threads, self.TREES)
        return known, forest.probabilities(self._features(at, threads)[:, 0], threads)

    def _features(self, z: int, threads: KernelThreads) -> Float32s:
        if z not in self._slices:
            data = self._volume.data
            values = np.asarray(data[z] if self._volume.n_spatial == 3 else data)[None]
            box = tuple((0, n) for n in values.shape)
            while len(self._slices) >= self.KEPT:
                del self._slices[next(iter(self._slices))]
            self._slices[z] = features_of(
                lambda first, last: values[first:last], values.shape, box, self._extent, threads
            )
        return self._slices[z]


def classes_of(labels: Array) -> tuple[Int64s, Int64s]:
    """Return the different labels of painted voxels, and the class of each voxel, from 0.

    Raises InputError unless there are 2 to 8 labels, all of at least 1.
    """
    known, classes = np.unique(labels.astype(np.int64), return_inverse=True)
    if not 2 <= known.size <= MOST or known[0] < 1:
        found = ", ".join(map(str, known[:10].tolist())) or "none"
        raise InputError(
            f"strokes must hold 2 to {MOST} different labels of at least 1, one for each phase, "
            f"and 0 on all other voxels; got {found}. Paint a few voxels of each phase."
        )
    return known, classes


def load_classifier(path: str) -> Classifier:
    """Read a stored classifier.

    `path`: a ``classifier.npz``, or the result folder that holds one.
    Raises InputError if there is none, or it is damaged.
    """
    given = Path(path).expanduser()
    file = given / f"{CLASSIFIER}.npz" if given.is_dir() else given
    if not file.is_file():
        raise InputError(
            f"There is no classifier {file}. Give the {CLASSIFIER}.npz of a result whose phases "
            "were found from strokes, or the folder of that result."
        )
    try:
        with zipfile.ZipFile(file) as archive:
            if sum(each.file_size for each in archive.infolist()) > _LARGEST:
                raise ValueError("it is too large")
        with np.load(file, allow_pickle=False) as arrays:
            return Classifier.of_arrays(dict(arrays))
    except (
        OSError, KeyError, ValueError, TypeError, AttributeError, EOFError, RecursionError,
        zipfile.BadZipFile,
    ) as error:  # fmt: skip
        raise InputError(
            f"{file} is not a classifier of hushpore, or it is damaged ({type(error).__name__}). "
            "Copy the original file again, or train a new one from strokes."
        ) from error


def repeated_phases(
    values: Mapping[str, Any], made: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the settings that measure the same phases again.

    Raises InputError if the applied classifier is missing or has changed.
    """
    known = made.get("auxiliary", {}).get(CLASSIFIER)
    if not known:
        return dict(values)
    # that of an earlier window may be gone, and each result keeps a copy
    is_there = Path(known["name"]).expanduser().exists()
    name = known["name"] if is_there else str(file.parent)
    if load_classifier(name).fingerprint != known["blake2b"]:
        raise InputError(
            f"{name} is not the classifier of this result: its fingerprint differs. Put the "
            "original file back and run again. Nothing was run."
        )
    return {**values, CLASSIFIER: name}
