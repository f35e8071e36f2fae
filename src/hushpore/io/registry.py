"""The formats that are read and written: one entry each, from which all that knows of them is made.

To read one more, write a function that opens a file of it, and an entry in `READERS`. What is told
of a file, how it is opened, messages and the help of the command line follow. To write one more,
write a function that writes it, and an entry in `EXPORTERS`. Tests hold napari.yaml and the tables
of the docs equal to the entries.
"""

from __future__ import annotations

import fnmatch
import itertools
import os
import pkgutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hushpore.base.atomic import new_file, write_through
from hushpore.base.errors import import_optional
from hushpore.base.extensions import Registry
from hushpore.io import folders
from hushpore.io.folders import PEEK, first_files
from hushpore.io.raw_names import layout_by_name

if TYPE_CHECKING:
    from collections.abc import Iterable

#: As ``"module:function"``, which is imported when it is first used, or itself.
Function = str | Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Format:
    """What the formats that are read and those that are written have in common."""

    title: str  # what users call it
    # the optional package that it needs, and the extra of hushpore that brings it; empty where it
    # needs none
    package: str = ""
    extra: str = ""

    def require(self) -> None:
        """Import the package that it needs.

        Raises MissingPackageError if it is not installed.
        """
        if self.package:
            import_optional(self.package, self.title, self.extra)


@dataclass(frozen=True, kw_only=True)
class Reader(Format):
    """A format that can be read."""

    # ``matches(start, path)``: whether a file is of this format. `start` has its first
    # `hushpore.io.folders.START` bytes; no matter what its name is, if these can tell.
    matches: Callable[[bytes, Path], bool]
    # ``read(path)`` returns a volume or several, best with their values on disk still; or it is a
    # generator that yields the share of the headers that was read, and returns these
    read: Function
    # how its files are named, as wildcards: those that napari offers to hushpore
    patterns: tuple[str, ...]
    is_folder: bool = False  # whether it is a folder, of which `matches` gets no bytes
    # {"", "header", "name"}: whether several files can be slices of one volume, and what brings
    # them in order. Those with a header may lie in folders within the folder.
    slices_by: Literal["", "header", "name"] = ""
    # ``read_slices(files, folder, others)``: as `read`, of several files of this format and the
    # others that lie with them
    read_slices: Function = ""
    hint: str = ""  # what a file that is named like this format may lack
    # for the table in docs/formats.md: what is understood, and where the voxel size is from
    understood: str
    voxel_size: str

    @property
    def extensions(self) -> tuple[str, ...]:
        """The patterns that name an extension: ``"*.tif"``."""
        return tuple(pattern for pattern in self.patterns if pattern.startswith("*."))

    def is_named_like(self, path: Path) -> bool:
        """Whether a file has one of the extensions."""
        return any(fnmatch.fnmatch(path.name.lower(), each) for each in self.extensions)


#: What has no extension, as many scanners write DICOM (and a DICOMDIR), or a number as its name.
_NAMELESS = (*("[!.]" * length for length in range(1, 17)), "[12].[0-9]*.[0-9]*.[0-9]*")

_READERS: dict[str, Reader] = {
    # first, because the 128 bytes before its mark are free and may look like a TIFF
    "dicom": Reader(
        title="DICOM",
        matches=folders.is_dicom,
        read="hushpore.io.dicom.reader:open_dicom_file",
        patterns=("*.dcm", "*.ima", *_NAMELESS),
        slices_by="header",
        read_slices="hushpore.io.dicom.reader:open_dicom",
        package="pydicom",
        understood="a file; a folder, with folders in it; a DICOMDIR; with or without extension, "
        "preamble or `.dcm`; CT, MR and others; multi-frame and enhanced; 8 to 64 bits, signed or "
        "not, floating point; both byte orders, deflated; RLE, JPEG (8 and 12 bit), JPEG lossless, "
        "JPEG-LS, JPEG 2000, HTJ2K",
        voxel_size="positions along the normal of the slices",
    ),
    "tiff": Reader(
        title="TIFF",
        matches=lambda start, path: start[:4] in folders.TIFF,
        read="hushpore.io.tiff.reader:read_tiff",
        patterns=("*.tif", "*.tiff", "*.btf"),
        slices_by="name",
        read_slices="hushpore.io.tiff.reader:read_tiff_folder",
        understood="ImageJ hyperstacks, OME-TIFF, BigTIFF, pyramids (full resolution), tiles, all "
        "compressions of imagecodecs, both byte orders, pages of several shapes, a folder with one "
        "slice a file",
        voxel_size="OME, ImageJ, or the resolution tags",
    ),
    "zarr": Reader(
        title="OME-Zarr",
        matches=folders.is_zarr,
        read="hushpore.io.zarr.reader:open_zarr",
        patterns=("*.zarr",),
        is_folder=True,
        package="zarr",
        extra="zarr",
        understood="NGFF 0.1 to 0.5 (Zarr 2 and 3), pyramids, labels, several images in one "
        "folder, a bare array",
        voxel_size="`coordinateTransformations`",
    ),
    "nifti": Reader(
        title="NIfTI",
        matches=folders.is_nifti,
        read="hushpore.io.nifti:read_nifti",
        patterns=("*.nii", "*.nii.gz"),
        package="nibabel",
        extra="nifti",
        understood="`.nii`, `.nii.gz`",
        voxel_size="`pixdim` and `xyzt_units`",
    ),
    "npy": Reader(
        title="NumPy",
        matches=lambda start, path: start.startswith(folders.NUMPY),
        read="hushpore.io.raw:open_npy",
        patterns=("*.npy",),
        understood="`.npy`",
        voxel_size="is not stated",
    ),
    "metaimage": Reader(
        title="MetaImage",
        matches=lambda start, path: folders.META_IMAGE.match(start) is not None,
        read="hushpore.io.raw:open_meta_image",
        patterns=("*.mhd", "*.mha"),
        understood="`.mhd` with its raw file beside it, `.mha`; compressed or not",
        voxel_size="`ElementSpacing`, in mm",
    ),
    "nrrd": Reader(
        title="NRRD",
        matches=lambda start, path: start.startswith(b"NRRD000"),
        read="hushpore.io.nrrd:open_nrrd",
        patterns=("*.nrrd", "*.nhdr"),
        package="nrrd",
        extra="formats",
        understood="`.nrrd`, `.nhdr` with its data file beside it; raw or gzip",
        voxel_size="`space directions` or `spacings`, in `space units`, else mm",
    ),
    "hdf5": Reader(
        title="HDF5",
        matches=lambda start, path: start.startswith(b"\x89HDF\r\n\x1a\n"),
        read="hushpore.io.hdf5:open_hdf5",
        patterns=("*.h5", "*.hdf5", "*.hdf", "*.nxs", "*.nx"),
        package="h5py",
        extra="formats",
        understood="every data set of 2 to 5 axes is a series, that of Data Exchange and NeXus "
        "first; projections are named and left out; compressions of h5py and hdf5plugin",
        voxel_size="`element_size_um`, `voxel_size`, `pixel_size` with a unit, axes of NXdata",
    ),
    "txm": Reader(
        title="Zeiss TXM",
        matches=lambda start, path: (
            start.startswith(b"\xd0\xcf\x11\xe0") and path.suffix.lower() in (".txm", ".txrm")
        ),
        read="hushpore.io.scanners.txm:open_txm",
        patterns=("*.txm", "*.txrm"),
        package="olefile",
        extra="formats",
        understood="`.txm`; projections (`.txrm`) are refused",
        voxel_size="`pixelsize`, in µm",
    ),
    "isq": Reader(
        title="Scanco ISQ",
        matches=lambda start, path: start.startswith(b"CTDATA-HEADER_V1"),
        read="hushpore.io.scanners.isq:open_isq",
        patterns=("*.isq", "*.isq;1"),
        understood="`.isq`, as attenuation coefficients in 1/cm",
        voxel_size="the header",
    ),
    "picture": Reader(
        title="picture slices",
        matches=folders.is_picture,
        read="hushpore.io.pictures:open_picture",
        patterns=("*.bmp", "*.png", "*.jpg", "*.jpeg"),
        slices_by="name",
        read_slices="hushpore.io.pictures:open_pictures",
        package="PIL",
        extra="formats",
        understood="BMP, PNG and JPEG, one slice a file, in grey or with equal colours; SkyScan "
        "folders with their `.log`",
        voxel_size="a SkyScan `.log` beside the slices (also of TIFF slices)",
    ),
    "header": Reader(
        title="scanner volumes",
        matches=lambda start, path: (
            bool(start)
            and folders.sidecar_of(path) is None
            and folders.header_beside(path) is not None
        ),
        read="hushpore.io.scanners.vendor_headers:open_with_header",
        patterns=("*.vgi", "*.xtekct", "*.pcr", "*.vol.info"),
        understood="raw voxels beside a header of Volume Graphics (`.vgi`), Nikon X-Tek "
        "(`.xtekct`), GE phoenix (`.pcr`) or PyHST (`.vol.info`)",
        voxel_size="the header",
    ),
    "raw": Reader(
        title="raw voxels",
        matches=lambda start, path: (
            folders.sidecar_of(path) is not None or layout_by_name(path) is not None
        ),
        read="hushpore.io.raw:open_raw",
        patterns=tuple(f"*{ending}" for ending in folders.RAW),
        hint="their shape and type are not known. Put the scanner's header beside the file (.vgi, "
        '.xtekct, .pcr, .vol.info), or a JSON file of the same name: {"shape": [z, y, x], "dtype": '
        '"<u2", "spacing": [z, y, x], "unit": "um"}; or give them in the name, as in '
        "scan_512x512x400_uint16.raw (x, y, z)",
        understood="`.raw`, `.bin`, `.vol`, `.dat` with a JSON file beside it (below), or with "
        "shape and type in the name (`bread_512x512x400_16bit.raw`)",
        voxel_size="the JSON file, or the name",
    ),
}

#: The formats that are read, by name, in the order in which a file is held against them.
READERS = Registry("readers", Reader, _READERS)


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Exporter(Format):
    """A format that can be written."""

    # {"image", "pores"}: what is written: a volume, or a pore result, which has ``labels``,
    # ``pores`` and ``throats``
    of: Literal["image", "pores"]
    # for each ending of a name what writes such a file, ``write(path, what)`` with `options` as
    # further keywords: to a path that takes its place when it is complete. The first ending is
    # taken where nothing else is said.
    writers: Mapping[str, Function]
    # whether it is a folder. Its writer has the keywords ``overwrite`` and ``ready``, and sees to
    # it itself that it is complete or not there.
    is_folder: bool = False
    every: bool = False  # whether a name without ending means a file for each
    options: tuple[str, ...] = ()  # which options of `hushpore.export` it takes
    content: str  # what it holds and for whom, for the help and for docs/howto/export.md

    @property
    def endings(self) -> tuple[str, ...]:
        """How the names of its files end."""
        return tuple(self.writers)

    def write(
        self,
        path: Path,
        what: Any,
        overwrite: bool = False,
        ready: Callable[[], None] = _nothing,
        **options: Any,
    ) -> Path:
        """Write a file that has one of the endings, complete or not there at all.

        `ready`: called when it is complete, and just about to get its name.
        Raises MissingPackageError if a package that it needs is not installed; OutputError if it
        cannot be written.
        """
        self.require()
        name = path.name.lower()
        write = resolved(next(each for end, each in self.writers.items() if name.endswith(end)))
        if self.is_folder:
            write(path, what, overwrite=overwrite, ready=ready, **options)
        else:
            with new_file(path, overwrite) as part:
                write(part, what, **options)
                write_through(part)
                ready()
        return path

    def files(self, target: Path) -> list[Path]:
        """Return the files that a name stands for."""
        if target.name.lower().endswith(self.endings):
            return [target]
        stem = target.stem if target.suffix.lower() in self.suffixes else target.name
        endings = self.endings if self.every else self.endings[:1]
        return [target.with_name(stem + end) for end in endings]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """What a file is told to be of this format by: ``".parquet"``."""
        return tuple(dict.fromkeys(Path(f"a{end}").suffix for end in self.endings))


_EXPORTERS: dict[str, Exporter] = {
    "openpnm": Exporter(
        title="OpenPNM",
        of="pores",
        writers={
            ".csv": "hushpore.io.export.network:write_csv",
            ".npz": "hushpore.io.export.network:write_npz",
        },
        content="the network for OpenPNM",
    ),
    "vtk": Exporter(
        title="VTK",
        of="pores",
        writers={
            ".vti": "hushpore.io.export.vtk:write_vti",
            ".vtp": "hushpore.io.export.vtk:write_vtp",
        },
        every=True,
        content="labels and network for ParaView",
    ),
    "stl": Exporter(
        title="STL",
        of="pores",
        writers={".stl": "hushpore.io.export.mesh:write_stl"},
        options=("labels", "apart"),
        content="the surface of the pores",
    ),
    "ply": Exporter(
        title="PLY",
        of="pores",
        writers={".ply": "hushpore.io.export.mesh:write_ply"},
        options=("labels", "apart"),
        content="the surface of the pores, with their labels",
    ),
    "parquet": Exporter(
        title="Parquet",
        of="pores",
        writers={
            "_pores.parquet": lambda path, result: result.pores.to_parquet(path, index=False),
            "_throats.parquet": lambda path, result: result.throats.to_parquet(path, index=False),
        },
        every=True,
        package="pyarrow",
        extra="parquet",
        content="both tables",
    ),
    "ome-tiff": Exporter(
        title="OME-TIFF",
        of="image",
        writers=dict.fromkeys((".tif", ".tiff"), "hushpore.io.tiff.writer:write_tiff"),
        content="an image with its voxel size",
    ),
    "ome-zarr": Exporter(
        title="OME-Zarr",
        of="image",
        writers={".zarr": "hushpore.io.zarr.image:write_zarr"},
        is_folder=True,
        package="zarr",
        extra="zarr",
        content="an image with its voxel size, in blocks and with a pyramid",
    ),
}

#: The formats that are written, by name.
EXPORTERS = Registry("exporters", Exporter, _EXPORTERS)


def exporters_of(what: str) -> dict[str, Exporter]:
    """Return the formats that an image, or a pore result, can be written in."""
    return {name: each for name, each in EXPORTERS.items() if each.of == what}


def exporter_by_ending(path: Path, of: str) -> Exporter | None:
    """Return the format that the end of a name means, or None."""
    suffix = path.suffix.lower()
    return next((each for each in exporters_of(of).values() if suffix in each.suffixes), None)


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Say quickly whether a file or folder can be read, and as what.

    Reads a few bytes of a file, or of the first files in a folder; never raises.

    `path`: a file or folder, existing or not.
    Returns: a key of `READERS`; None where it is not for `hushpore.read`.

    >>> kind_of("no such file") is None
    True
    """
    place = Path(path).expanduser()
    try:
        kind = kind_of_one(place)
        if kind is not None or not place.is_dir():
            return kind
        kinds = {kind_of_one(file) for file in itertools.islice(first_files(place), PEEK)}
        for name, reader in READERS.items():
            if name in kinds and reader.slices_by == "header":
                return name
            if name in kinds and reader.slices_by == "name" and _lies_in(place, name):
                return name
    except (OSError, ValueError):
        pass
    return None


def kind_of_one(path: Path) -> str | None:
    """Return the format of one file, or of a folder that is one image, or None.

    Raises OSError if it is missing or cannot be opened.
    """
    known, start = path.stat(), b""
    is_folder = stat.S_ISDIR(known.st_mode)
    if not is_folder and not stat.S_ISREG(known.st_mode):
        return None  # a pipe or device would block or never end
    if not is_folder and known.st_size:
        with path.open("rb") as file:
            start = file.read(folders.START)
    for name, reader in READERS.items():
        if reader.is_folder == is_folder and reader.matches(start, path):
            return name
    return None


def titles(readers: Iterable[Reader], last: str = "or") -> str:
    """Return what users call some formats, as a list in a sentence."""
    *others, final = (reader.title for reader in readers)
    return f"{', '.join(others)} {last} {final}" if others else final


def resolved(function: Function) -> Callable[..., Any]:
    """Return a function itself, imported where it is named."""
    found: Callable[..., Any] = (
        pkgutil.resolve_name(function) if isinstance(function, str) else function
    )
    return found


def _lies_in(folder: Path, kind: str) -> bool:
    """Whether some files right in a folder are of a format."""
    with os.scandir(folder) as entries:
        files = (Path(entry.path) for entry in entries if entry.is_file())
        return any(kind_of_one(path) == kind for path in itertools.islice(files, PEEK))
