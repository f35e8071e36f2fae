"""What the tasks of a segmentation share: its plan, and a folder of slabs, tables and records.

Tasks pass nothing large to each other but through this folder, so that a worker that dies takes no
result with it, and what is done is known by the files that are there. A file is written beside its
name and renamed: it is there whole or not at all. What it holds is known again by sums that stand
in it, as a run may go on after a crash, or in a folder that others can write to.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from hushpore.base.errors import HushporeError, InputError
from hushpore.base.partial import new_file
from hushpore.io.planes import DiskArray, read_uncompressed
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.passes import Work
from hushpore.pores.slabs import Scratch, Slabs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings

    #: What a task tells the client: few numbers.
    Report = dict[str, Any]


# basins have numbers of so many bits where these suffice: half as much is written and read
_NARROW = np.dtype(np.uint16)

# added to each sum, so that zeros have one too
_SUM_OF_NOTHING = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Plan:
    """All that a task needs to know of its job."""

    volume: Volume  # the scan, opened from OME-Zarr: its values stay on disk
    # folder that the tasks share, and the folder of the result
    scratch: str
    content: str
    settings: PoreSettings  # how to segment
    shape: tuple[int, int, int]  # (z, y, x) of the image
    thickness: int  # slices of a slab; the last may have fewer
    layer: int  # slices of the scan that are read at a time, likewise
    # into how many ranges of rows the volume is cut where slabs are passed one after another
    bands: int = 1
    threads: int = 1  # on which a task runs
    padding: float | None = None  # see `hushpore.pores.passes.Work`
    device: str = ""  # GPU of each worker that does what it can; empty: none

    @property
    def slabs(self) -> Slabs:
        """How the image is cut."""
        return Slabs(self.shape[0], self.thickness, on_disk=True)

    @property
    def layers(self) -> Slabs:
        """How the scan is cut where it is read."""
        return Slabs(self.shape[0], self.layer, on_disk=True)

    def rows(self, band: int) -> tuple[int, int]:
        """Return the first row of a band, and the one after its last."""
        height = self.shape[1]
        return height * band // self.bands, height * (band + 1) // self.bands


class Blocks:
    """The blocks of a job, as one task reads and writes them; a context manager.

    `work`: what the passes of a segmentation need to know; its volume has the grey values that lie
    here, as they were read from the scan. `moved`: bytes read and written so far.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.folder = Path(plan.scratch)
        self.threads = KernelThreads(plan.threads)
        self.work = Work(
            dataclasses.replace(plan.volume, data=_StoredGrey(self)),
            plan.settings,
            plan.slabs,
            Scratch(False),
            self.threads,
            padding=plan.padding,
        )
        self.moved = 0

    def __enter__(self) -> Blocks:
        return self

    def __exit__(self, *raised: object) -> None:
        self.threads.__exit__(None, None, None)

    def read(self, stack: str, first: int, last: int) -> npt.NDArray[Any]:
        """Return some slices of a stack, as far as there are any, from all slabs they lie in."""
        depth, *plane = self.plan.shape
        first, last = max(first, 0), min(last, depth)
        kinds: dict[str, Any] = {"basins": np.int32, "distance": np.float32}
        kinds["grey"] = self.plan.volume.dtype.newbyteorder("=")
        # all others are phases
        values = np.empty((last - first, *plane), kinds.get(stack, np.uint8))
        slabs = self.plan.layers if stack == "grey" else self.plan.slabs
        for slab in range(first // slabs.thickness, -(-last // slabs.thickness)):
            begin, end = slabs[slab]
            low, high = max(first, begin), min(last, end)
            room, file = values[low - first : high - first], self._file(stack, slab)
            dtype, length = values.dtype, math.prod(plane)
            if stack == "basins" and file.stat().st_size < (end - begin) * length * dtype.itemsize:
                dtype = _NARROW
            size = length * dtype.itemsize
            stored = np.empty(room.shape, dtype) if dtype != room.dtype else room
            read_uncompressed(file, (low - begin) * size, dtype, stored)
            sums = np.empty(high - low, np.uint64)
            read_uncompressed(file, (end - begin) * size + 8 * (low - begin), sums.dtype, sums)
            if (sums != _sums(stored)).any():
                raise _changed(file)
            if stored is not room:
                room[...] = stored
            self.moved += stored.nbytes
        return values

    def write(self, stack: str, slab: int, values: npt.NDArray[Any]) -> None:
        """Store a slab of a stack, or a layer of grey values, and behind it a sum of each slice."""
        with self.create(self._file(stack, slab)) as add:
            add(values)
            add(_sums(values))

    def write_basins(self, slab: int, basins: npt.NDArray[np.int32], highest: int) -> None:
        """Store the basins of a slab, in 16 bits where that holds the highest of them."""
        is_narrow = highest <= np.iinfo(_NARROW).max
        self.write("basins", slab, basins.astype(_NARROW) if is_narrow else basins)

    @contextmanager
    def create(self, path: Path) -> Iterator[Callable[[npt.NDArray[Any]], None]]:
        """Write a file; yields what appends values to it."""
        with (
            new_file(path, overwrite=True, lasting=False) as part,
            part.open("wb", buffering=0) as file,
        ):

            def add(values: npt.NDArray[Any]) -> None:
                np.ascontiguousarray(values).tofile(file)
                self.moved += values.nbytes

            yield add

    def save(self, table: str, number: int, **arrays: Any) -> None:
        """Store arrays under the name of a table and its number."""
        self.moved += save_arrays(self.folder / f"{table}-{number}.arrays", arrays)

    def load(self, table: str, number: int, *names: str) -> Any:
        """Return the arrays of these names of a table; of one name the array itself."""
        arrays = load_arrays(self.folder / f"{table}-{number}.arrays", *names)
        self.moved += sum(each.nbytes for each in arrays)
        return arrays[0] if len(names) == 1 else arrays

    def planes(self, name: str, number: int) -> Path:
        """Return the file of some planes of numbers."""
        return self.folder / f"{name}-{number}.planes"

    def read_plane(
        self, name: str, number: int, index: int, rows: tuple[int, int], height: int
    ) -> npt.NDArray[np.float32]:
        """Return some rows of one of the planes, float32, of a height, in a file."""
        width = self.plan.shape[2]
        offset = (index * height + rows[0]) * width * 4
        count = (rows[1] - rows[0]) * width
        plane = np.fromfile(self.planes(name, number), np.float32, count, offset=offset)
        self.moved += plane.nbytes
        return plane.reshape(-1, width)

    def _file(self, stack: str, slab: int) -> Path:
        return self.folder / f"{stack}-{slab}.slab"


class _StoredGrey(DiskArray):
    """The grey values of a scan, read from the layers that lie in the folder of its tasks."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks.plan.shape, blocks.plan.volume.dtype)
        self._blocks = blocks

    def _read_part(self, keys: list[Any]) -> npt.NDArray[Any]:
        places, rest = range(self.shape[0])[keys[0]], keys[1:]
        own: Any = slice(None, None, getattr(places, "step", None))
        if isinstance(places, int):
            places, own = range(places, places + 1), 0
        values: npt.NDArray[Any]
        values = self._blocks.read("grey", places.start, places.stop)[(own, *rest)]
        return values


def save_arrays(path: Path, arrays: dict[str, Any]) -> int:
    """Write arrays into one file, which is there whole or not at all; returns their bytes."""
    # np.load parses Python, which several threads at once cannot with some versions
    solid = {name: np.ascontiguousarray(each) for name, each in arrays.items()}
    # a number is no axis
    solid = {name: each.reshape(np.shape(arrays[name])) for name, each in solid.items()}
    with new_file(path, overwrite=True, lasting=False) as part:
        # with an entry more, as a file of no arrays and no entries cannot be read again
        sums = {"digest": "blake2b"} | {name: _digest(each) for name, each in solid.items()}
        save_file(solid, part, sums)
    return sum(each.nbytes for each in solid.values())


def load_arrays(path: Path, *names: str) -> list[npt.NDArray[Any]]:
    """Return arrays of a file that `save_arrays` wrote; without names all, in their order there.

    Raises InputError if it is damaged, or was changed.
    """
    return [*load_named(path, *names).values()]


def load_named(path: Path, *names: str) -> dict[str, npt.NDArray[Any]]:
    """Return arrays as `load_arrays`, by their names."""
    with whole(path), safe_open(path, framework="numpy") as file:
        known = file.metadata()
        found = {name: file.get_tensor(name) for name in names or file.keys()}
        if any(known[name] != _digest(each) for name, each in found.items()):
            raise _changed(path)
    return found


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Say of a scratch file that cannot be understood that it is damaged.

    Raises InputError for errors of any kind but those of the system.
    """
    try:
        yield
    except (HushporeError, OSError, MemoryError):
        raise
    except (
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        zipfile.BadZipFile,
    ) as error:
        raise _changed(path) from error


def _changed(path: Path) -> InputError:
    return InputError(
        f"{path} is damaged, or was changed since it was written, and was not used. What was begun "
        "is given up; run the same again to begin anew."
    )


def _digest(values: npt.NDArray[Any]) -> str:
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).hexdigest()


def _sums(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Return a number for each slice in which each of its bytes counts; as fast as it is read."""
    found = np.empty(len(values), np.uint64)
    for number, each in enumerate(values):
        flat = np.ascontiguousarray(each).reshape(-1).view(np.uint8)
        words = flat.size // 8 * 8
        total = np.add.reduce(flat[:words].view(np.uint64), dtype=np.uint64)
        last = np.zeros(8, np.uint8)
        last[: flat.size - words] = flat[words:]
        found[number] = np.add.reduce(
            np.array([total, last.view(np.uint64)[0], _SUM_OF_NOTHING], np.uint64)
        )
    return found
