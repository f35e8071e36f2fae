"""The plan of a segmentation on a cluster, and the shared folder of slabs, tables and records.

Tasks exchange large data only through files in this folder, so no result is lost when a worker
dies, and the existing files show which tasks are finished. Files are written atomically. Each
contains checksums, because a run may be resumed after a crash or in a folder that others can write
to.

Values are compressed: phases, basins and tables shrink to about a tenth. LZ4 with byte shuffling
(Blosc) is faster than writing the saved bytes to a disk or network, and stores incompressible data
unchanged.
"""

from __future__ import annotations

import dataclasses
import hashlib
import uuid
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from hushpore.base.atomic import new_file
from hushpore.base.errors import HushporeError, InputError
from hushpore.base.events import Note
from hushpore.base.volume import Volume
from hushpore.io import choose
from hushpore.io.guards import trusting
from hushpore.io.lazy_arrays import DiskArray, read_uncompressed
from hushpore.io.registry import kind_of
from hushpore.io.undefined import with_fill_value
from hushpore.io.zarr import write_zarr
from hushpore.io.zarr_reader import ZarrStack, open_zarr
from hushpore.pores.numbering import whole_markers
from hushpore.pores.parallel import KernelThreads
from hushpore.pores.slabs import Scratch, Slabs
from hushpore.pores.work import Work
from hushpore.runs.convert import converting
from hushpore.runs.scan_recipe import ScanRecipe, attach_files, files_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterator, Mapping

    from hushpore.base.arrays import Array, Float32s, UInt8s
    from hushpore.base.events import Event
    from hushpore.base.settings import Settings
    from hushpore.pores.settings import PoreSettings

    #: The report of a task to the client: a few numbers.
    Report = dict[str, Any]
    #: A file or folder, as a path or with its reading options, or a volume.
    Scan: TypeAlias = str | os.PathLike[str] | ScanRecipe | Volume


_PIECE = 1 << 26  # bytes that are compressed at once: the limit of Blosc is 2 GiB
# positions of the uncompressed and the compressed size in the header of a compressed piece
_UNPACKED, _PACKED = slice(4, 8), slice(12, 16)


def pack(values: Array) -> UInt8s:
    """Compress the bytes of an array: (n,), uint8."""
    # imported here, since jobs on one machine do not need it
    from numcodecs import Blosc

    codec = Blosc("lz4")
    packed = [codec.encode(piece) for piece in _pieces(np.ascontiguousarray(values))]
    return np.frombuffer(b"".join(packed), np.uint8)


def unpack(packed: UInt8s, out: Array) -> None:
    """Decompress the output of `pack` into a C-contiguous array of the same shape and dtype.

    Raises ValueError if the bytes are not those of such an array.
    """
    from numcodecs import Blosc

    codec, content = Blosc("lz4"), memoryview(packed.data)
    for piece in _pieces(out):
        unpacked, size = (int.from_bytes(content[at], "little") for at in (_UNPACKED, _PACKED))
        # with too few bytes, the rest of the array would stay uninitialised
        if unpacked != piece.nbytes or size > len(content):
            raise ValueError("The packed data have the wrong length.")
        try:
            codec.decode(content[:size], piece)
        except RuntimeError as error:
            raise ValueError("The packed data are damaged.") from error
        content = content[size:]


def _pieces(values: Array) -> Iterator[Array]:
    """Yield an array in pieces of whole values; nothing for an empty array."""
    flat, step = values.reshape(-1), _PIECE // values.itemsize
    for start in range(0, flat.size, step):
        yield flat[start : start + step]


# ---- plan, stacks and tables

# added to each checksum, so that the checksum of zeros is not 0
_SUM_OF_NOTHING = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Plan:
    """The plan of a job, which each task receives."""

    volume: Volume  # the scan, opened from OME-Zarr as a lazy array
    # shared folder of the tasks, and folder of the result
    scratch: str
    content: str
    settings: PoreSettings  # settings of the segmentation
    shape: tuple[int, int, int]  # (z, y, x) of the image
    thickness: int  # slices of a slab; the last may have fewer
    layer: int  # slices of the scan that are read at a time; the last layer may have fewer
    # number of bands of rows into which passes through all slabs are divided
    bands: int = 1
    threads: int = 1  # threads of a task
    padding: float | None = None  # see `hushpore.pores.slab_steps.Work`
    device: str = ""  # GPU of each worker, used for the steps that can run on it; empty: none

    @property
    def slabs(self) -> Slabs:
        """The slabs of the volume."""
        return Slabs(self.shape[0], self.thickness, on_disk=True)

    @property
    def layers(self) -> Slabs:
        """The layers in which the scan is read."""
        return Slabs(self.shape[0], self.layer, on_disk=True)

    def rows(self, band: int) -> tuple[int, int]:
        """Return the first row of a band and the row after its last."""
        height = self.shape[1]
        return height * band // self.bands, height * (band + 1) // self.bands


class Blocks:
    """The files of a job, as one task reads and writes them; a context manager.

    `work`: the context of the segmentation passes; its volume reads the grey values stored here,
    which are those of the scan. `moved`: bytes read and written so far.
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

    def read(self, stack: str, first: int, last: int) -> Array:
        """Return slices of a stack, clipped to the volume, from the slabs that contain them."""
        depth, *plane = self.plan.shape
        first, last = max(first, 0), min(last, depth)
        kinds: dict[str, Any] = {"basins": np.int32, "distance": np.float32}
        kinds["grey"] = self.plan.volume.dtype.newbyteorder("=")
        # all other stacks are phases
        values = np.empty((last - first, *plane), kinds.get(stack, np.uint8))
        slabs = self.plan.layers if stack == "grey" else self.plan.slabs
        for slab in range(first // slabs.thickness, -(-last // slabs.thickness)):
            begin, end = slabs[slab]
            low, high = max(first, begin), min(last, end)
            self._read_slab(
                self._file(stack, slab),
                end - begin,
                low - begin,
                values[low - first : high - first],
            )
        return values

    def _read_slab(self, file: Path, slices: int, first: int, values: Array) -> None:
        """Fill an array with slices of a slab, from `first` on; the slab has `slices` in all."""
        index = np.empty((2, slices), np.uint64)
        with whole(file):
            size = file.stat().st_size - index.nbytes
            read_uncompressed(file, max(size, 0), index.dtype, index)
            ends, sums = [0, *index[0].tolist()], index[1]
            for number, each in enumerate(values, first):
                begin, end = ends[number], ends[number + 1]
                # damaged positions must not be used for reading
                if not 0 <= begin <= end <= size:
                    raise _changed(file)
                packed = np.empty(end - begin, np.uint8)
                read_uncompressed(file, begin, packed.dtype, packed)
                if _sum(packed) != sums[number]:
                    raise _changed(file)
                unpack(packed, each)
                self.moved += packed.nbytes

    def write(self, stack: str, slab: int, values: Array) -> None:
        """Store a slab of a stack, or a layer of grey values, with each slice compressed.

        The end position and the checksum of each slice follow after the last slice.
        """
        ends, sums = np.zeros((2, len(values)), np.uint64)
        end = 0
        with self.create(self._file(stack, slab)) as add:
            for number, each in enumerate(values):
                packed = pack(each)
                add(packed)
                end += packed.size
                ends[number], sums[number] = end, _sum(packed)
            add(ends)
            add(sums)

    @contextmanager
    def create(self, path: Path) -> Iterator[Callable[[Array], None]]:
        """Write a file atomically; yields a function that appends values to it."""
        with (
            new_file(path, overwrite=True, lasting=False) as part,
            part.open("wb", buffering=0) as file,
        ):

            def add(values: Array) -> None:
                np.ascontiguousarray(values).tofile(file)
                self.moved += values.nbytes

            yield add

    def save(self, table: str, number: int, **arrays: Any) -> None:
        """Store arrays under the name of a table and its number."""
        self.moved += save_arrays(self.folder / f"{table}-{number}.arrays", arrays)

    def load(self, table: str, number: int, *names: str) -> Any:
        """Return arrays of a table by name; for a single name the array itself."""
        arrays, nbytes = _load(self.folder / f"{table}-{number}.arrays", names)
        self.moved += nbytes
        return arrays[names[0]] if len(names) == 1 else [*arrays.values()]

    def planes(self, name: str, number: int) -> Path:
        """Return the path of a file of planes."""
        return self.folder / f"{name}-{number}.planes"

    def read_plane(
        self, name: str, number: int, index: int, rows: tuple[int, int], height: int
    ) -> Float32s:
        """Return rows of one plane (float32) in a file of planes."""
        width = self.plan.shape[2]
        offset = (index * height + rows[0]) * width * 4
        count = (rows[1] - rows[0]) * width
        plane = np.fromfile(self.planes(name, number), np.float32, count, offset=offset)
        self.moved += plane.nbytes
        return plane.reshape(-1, width)

    def _file(self, stack: str, slab: int) -> Path:
        return self.folder / f"{stack}-{slab}.slab"


class _StoredGrey(DiskArray):
    """The grey values of a scan, read from the layers in the folder of the tasks."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks.plan.shape, blocks.plan.volume.dtype)
        self._blocks = blocks

    def _read_part(self, keys: list[Any]) -> Array:
        places, rest = range(self.shape[0])[keys[0]], keys[1:]
        own: Any = slice(None, None, getattr(places, "step", None))
        if isinstance(places, int):
            places, own = range(places, places + 1), 0
        values: Array
        values = self._blocks.read("grey", places.start, places.stop)[(own, *rest)]
        return values


def save_arrays(path: Path, arrays: dict[str, Any]) -> int:
    """Write arrays into one file atomically; returns the number of packed bytes."""
    # not np.savez: np.load parses Python, which is not thread-safe in some versions
    packed = {name: pack(np.asarray(each)) for name, each in arrays.items()}
    # always one entry: a file without arrays and entries cannot be read again
    known = {"digest": "blake2b"}
    for name, each in arrays.items():
        values = np.asarray(each)
        form = " ".join([values.dtype.str, *map(str, values.shape)])
        known[name] = f"{_digest(packed[name], form)} {form}"
    with new_file(path, overwrite=True, lasting=False) as part:
        save_file(packed, part, known)
    return sum(each.nbytes for each in packed.values())


def load_arrays(path: Path, *names: str) -> list[Array]:
    """Return the named arrays of a file of `save_arrays`; without names, all in file order.

    Raises InputError if the file is damaged or was changed.
    """
    return [*load_named(path, *names).values()]


def load_named(path: Path, *names: str) -> dict[str, Array]:
    """Return arrays as `load_arrays` does, by name."""
    return _load(path, names)[0]


def _load(path: Path, names: tuple[str, ...]) -> tuple[dict[str, Array], int]:
    """Return arrays by name, and the number of packed bytes."""
    found, nbytes = {}, 0
    with whole(path), safe_open(path, framework="numpy") as file:
        known = file.metadata()
        for name in names or file.keys():
            packed = file.get_tensor(name)
            digest, form = known[name].split(" ", 1)
            if digest != _digest(packed, form):
                raise _changed(path)
            dtype, *shape = form.split(" ")
            found[name] = np.empty([*map(int, shape)], dtype)
            unpack(packed, found[name])
            nbytes += packed.nbytes
    return found, nbytes


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Report errors while reading a scratch file as damage to it.

    Raises InputError for all errors except those of the operating system and of memory.
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
        f"The scratch file {path} is damaged or was changed. The partial result was discarded; run "
        "the same command again."
    )


def _digest(packed: UInt8s, form: str) -> str:
    digest = hashlib.blake2b(packed.data, digest_size=16)
    digest.update(form.encode())
    return digest.hexdigest()


def _sum(packed: UInt8s) -> np.uint64:
    """Return a checksum of the bytes; as fast as reading them from memory."""
    words = packed.size // 8 * 8
    last = np.zeros(8, np.uint8)
    last[: packed.size - words] = packed[words:]
    total = np.add.reduce(packed[:words].view(np.uint64), dtype=np.uint64)
    return np.uint64(np.add.reduce(np.array([total, last.view(np.uint64)[0], _SUM_OF_NOTHING])))


def as_source(scan: Scan, series: int | str | None, trust: bool) -> ScanRecipe | Volume:
    """Return the recipe of a path; recipes and volumes are returned unchanged.

    `series`: which of several image stacks, and `trust`: as for `hushpore.read`.
    """
    if isinstance(scan, ScanRecipe | Volume):
        return scan
    return ScanRecipe(str(scan), series="" if series is None else str(series), trust=trust)


def as_zarr(
    scan: ScanRecipe | Volume, scratch: Path, copy: str = "scan", *, trust: bool = False
) -> Generator[Event, None, Volume]:
    """Return the scan as OME-Zarr, converted first if it has another format or NaN.

    `scan`: recipe of a file, or a volume. A volume opened from OME-Zarr is not converted; its
    metadata may differ from the file. `scratch`: folder for the converted scan, on a disk that all
    workers see. `copy`: name of the converted scan. `trust`: as for `hushpore.read`, for volumes.
    Yields: events of the conversion.
    Returns: the scan, without attached images.
    Raises InputError if it cannot be read.
    """
    folder = scratch / f"{copy}.ome.zarr"
    if folder.exists():
        return _own(folder)
    with trusting(trust or (isinstance(scan, ScanRecipe) and scan.trust)):
        found = _on_disk(scan)
        is_file = isinstance(scan, ScanRecipe)
        if found is not None and (not is_file or with_fill_value(found) is found):
            return found
    name = scan.name if isinstance(scan, Volume) else Path(scan.path).name
    if found is not None:
        reason = "has voxels without a value (NaN); a copy with a fill value is written first."
    else:
        reason = (
            "is not OME-Zarr and is converted first, so that workers can read blocks. To convert "
            "it once for several jobs, use hushpore convert."
        )
    yield Note(f"{name} {reason}")
    if isinstance(scan, ScanRecipe):
        yield from converting(scan.path, folder, scan, fill_undefined=True)
    else:
        yield from converting(scan, folder)
    return _own(folder)


def open_beside(
    volume: Volume, auxiliary: Mapping[str, Any], settings: Settings, scratch: Path, *, trust: bool
) -> Volume:
    """Return a scan with the files named in the settings attached, all readable by workers.

    `volume`: the scan from `as_zarr`. `auxiliary`: arrays attached to the scan, by name; other
    names in the settings are those of files. `scratch`: folder for masks and labels that are not
    OME-Zarr yet. Points are kept in memory. `trust`: as for `hushpore.read`.
    Raises InputError if a name is not found, or if its shape does not fit the scan.
    """
    volume = dataclasses.replace(volume, auxiliary=dict(auxiliary))
    volume = attach_files(volume, settings, ScanRecipe("", trust=trust))
    named = {}
    for option in settings.options():
        found = volume.auxiliary_of(settings, option.name) if option.auxiliary else None
        if found is None:
            continue
        if option.name == "markers" and found.dtype == np.bool_:
            # number the components of a mask before it is cut into slabs
            found = whole_markers(found)
        if tuple(found.shape) == volume.shape and getattr(found, "folder", None) is None:
            copy = scratch / f"{option.name}.ome.zarr"
            if not copy.exists():
                write_zarr(copy, Volume(found, name=option.name))
            found = _own(copy).data
        named[getattr(settings, option.name)] = found
    return dataclasses.replace(volume, auxiliary=named)


def folders_of(volume: Volume) -> list[Path]:
    """Return the folders of a volume and its attached images."""
    values = (volume.data, *volume.auxiliary.values())
    return [each.folder for each in values if isinstance(each, ZarrStack) and each.folder]


def inputs_of(scan: ScanRecipe | Volume, settings: Settings) -> list[str]:
    """Return the input files of a job: the scan and the files named in the settings."""
    return [scan.source if isinstance(scan, Volume) else scan.path, *files_of([settings])]


def _on_disk(scan: ScanRecipe | Volume) -> Volume | None:
    """Return the scan if it is OME-Zarr already, else None."""
    if isinstance(scan, Volume):
        return None if _in_folder(scan) is None else dataclasses.replace(scan, auxiliary={})
    path = Path(scan.path).expanduser().resolve()
    if kind_of(path) != "zarr":
        return None
    found = scan.arrange(choose(open_zarr(path), scan.series))
    # resampled values are computed and are not in the file
    return found if isinstance(found.data, ZarrStack) else None


def _own(copy: Path) -> Volume:
    """Open a copy written by this job, even if it is extremely compressed."""
    with trusting(True):
        (volume,) = open_zarr(copy)
    return volume


def _in_folder(volume: Volume) -> tuple[Path, int, Volume] | None:
    """Return the OME-Zarr folder of a volume, the number of its image, and the image in the file.

    Images are numbered from 1. Returns None if the volume is not from OME-Zarr.
    """
    if not isinstance(volume.data, ZarrStack) or volume.data.folder is None:
        return None
    folder = volume.data.folder
    images = enumerate(open_zarr(folder), start=1)
    return next(
        ((folder, n, each) for n, each in images if each.data.is_same_as(volume.data)), None
    )


def source_of(scan: ScanRecipe | Volume) -> ScanRecipe | None:
    """Return the recipe of a scan; None for values in memory."""
    if isinstance(scan, ScanRecipe):
        return scan
    found = _in_folder(scan)
    if found is None:
        return None
    folder, number, there = found
    size = ""
    if (scan.spacing, scan.unit) != (there.spacing, there.unit):
        size = f"{','.join(map(repr, scan.spacing))}{scan.unit}"
    return ScanRecipe(str(folder), series=str(number), voxel_size=size)


def stamp_of(scan: ScanRecipe | Volume) -> dict[str, Any]:
    """Return the identity of a scan as JSON values, without reading it.

    An array in memory has no lasting identity, so a later run does not resume its partial result.
    """
    source = source_of(scan)
    return {"volume": uuid.uuid4().hex} if source is None else source.to_dict()
