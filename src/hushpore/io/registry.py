"""Registry of file formats: one entry for each format that is read or written.

To support another input format, write a function that opens such a file and add an entry to
`READERS`; file detection, messages and the help of the command line use the entries. To support
another output format, write a function that writes it and add an entry to `EXPORTERS`. Tests
compare napari.yaml and the tables of the documentation with the entries.
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
from hushpore.base.errors import Registry, import_optional
from hushpore.io import folders
from hushpore.io.folders import PEEK, first_files
from hushpore.io.raw import layout_by_name

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A function, or its ``"module:function"``, which is imported at the first use.
Function = str | Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Format:
    """Common part of input and output formats."""

    title: str  # name for users
    # optional package that the format needs, and the extra of hushpore that installs it; both
    # empty if it needs none
    package: str = ""
    extra: str = ""

    def require(self) -> None:
        """Import the package that the format needs.

        Raises MissingPackageError if the package is not installed.
        """
        if self.package:
            import_optional(self.package, self.title, self.extra)


@dataclass(frozen=True, kw_only=True)
class Reader(Format):
    """Input format."""

    # ``matches(start, path)``: whether a file has this format. `start`: its first
    # `hushpore.io.folders.START` bytes; the name of the file counts only if these do not decide.
    matches: Callable[[bytes, Path], bool]
    # ``read(path)`` returns one or more volumes, preferably lazy; or it is a generator that yields
    # the fraction of the headers read so far, and returns the volumes
    read: Function
    # wildcards for file names; napari offers files that match to hushpore
    patterns: tuple[str, ...]
    is_folder: bool = False  # whether it is a folder; `matches` then gets no bytes
    # {"", "header", "name"}: what orders the files of a folder as slices of one volume; empty if a
    # file is never a slice. With "header" the files may be in subfolders.
    slices_by: Literal["", "header", "name"] = ""
    # ``read_slices(files, folder, others)``: as `read`, for several files of this format; `others`
    # are the remaining files of the folder
    read_slices: Function = ""
    hint: str = ""  # what may be missing if the extension matches but the content does not
    # for the table in docs/formats.md: supported variants, and the source of the voxel size
    understood: str
    voxel_size: str

    @property
    def extensions(self) -> tuple[str, ...]:
        """Patterns that consist of an extension, as ``"*.tif"``."""
        return tuple(pattern for pattern in self.patterns if pattern.startswith("*."))

    def is_named_like(self, path: Path) -> bool:
        """Return whether a file has one of the extensions."""
        return any(fnmatch.fnmatch(path.name.lower(), each) for each in self.extensions)


#: Names without extension (DICOM of many scanners, DICOMDIR) or with a UID for a name.
_NAMELESS = (*("[!.]" * length for length in range(1, 17)), "[12].[0-9]*.[0-9]*.[0-9]*")

_READERS: dict[str, Reader] = {
    # first, because the 128 bytes before its signature are arbitrary and may look like a TIFF
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
        read="hushpore.io.tiff_reader:read_tiff",
        patterns=("*.tif", "*.tiff", "*.btf", "*.lsm", "*.stk"),
        slices_by="name",
        read_slices="hushpore.io.tiff_reader:read_tiff_folder",
        understood="ImageJ hyperstacks, OME-TIFF, BigTIFF, pyramids (full resolution), tiles, all "
        "compressions of imagecodecs (WebP, LERC, JPEG XL and JPEG XR with `--trust`), both byte "
        "orders, pages of several shapes, a folder with one slice a file",
        voxel_size="OME, LSM, STK, FEI, Zeiss SEM, ImageJ, a description by tifffile, or the "
        "resolution tags, unless they are for printing",
    ),
    "zarr": Reader(
        title="OME-Zarr",
        matches=folders.is_zarr,
        read="hushpore.io.zarr_reader:open_zarr",
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
        read="hushpore.io.nifti_nrrd:read_nifti",
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
        read="hushpore.io.nifti_nrrd:open_nrrd",
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
        patterns=("*.h5", "*.hdf5", "*.hdf", "*.nxs", "*.nx", "*.ims"),
        package="h5py",
        extra="formats",
        understood="every data set of 2 to 5 axes is a series, that of Data Exchange and NeXus "
        "first; axes by labels, scales, `axistags` or NXdata; Imaris without its padding, "
        "BigDataViewer; projections and colours are named and left out; compressions of h5py "
        "and hdf5plugin",
        voxel_size="`element_size_um`, `voxel_size`, `pixel_size` with a unit, axes of NXdata, "
        "scales, the extent of Imaris",
    ),
    "txm": Reader(
        title="Zeiss TXM",
        matches=lambda start, path: (
            start.startswith(b"\xd0\xcf\x11\xe0")
            and path.suffix.lower() in (".txm", ".txrm", ".xrm")
        ),
        read="hushpore.io.txm:open_txm",
        patterns=("*.txm", "*.txrm", "*.xrm"),
        package="olefile",
        extra="formats",
        understood="`.txm`; projections (`.txrm`, `.xrm`) are refused",
        voxel_size="`pixelsize`, in µm",
    ),
    "isq": Reader(
        title="Scanco ISQ",
        matches=lambda start, path: start.startswith(b"CTDATA-HEADER_V1"),
        read="hushpore.io.vendor_headers:open_isq",
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
        read="hushpore.io.vendor_headers:open_with_header",
        patterns=("*.vgi", "*.xtekct", "*.xtekvolume", "*.pcr", "*.vol.info", "*.raw.info"),
        understood="raw voxels beside a header of Volume Graphics (`.vgi`), Nikon X-Tek "
        "(`.xtekct`, `.xtekVolume`), GE phoenix (`.pcr`) or PyHST (`.vol.info`, `.raw.info`)",
        voxel_size="the header",
    ),
    "raw": Reader(
        title="raw voxels",
        matches=lambda start, path: (
            folders.sidecar_of(path) is not None or layout_by_name(path) is not None
        ),
        read="hushpore.io.raw:open_raw",
        patterns=tuple(f"*{ending}" for ending in folders.RAW),
        hint="its shape and data type are unknown. It needs the header file of the scanner (.vgi, "
        '.xtekct, .pcr, .vol.info), or a JSON file of the same name: {"shape": [z, y, x], "dtype": '
        '"<u2", "spacing": [z, y, x], "unit": "um"}; or both in its name, as in '
        "scan_512x512x400_uint16.raw (x, y, z); or, on the command line, --shape 400,512,512 "
        "(z, y, x) and --dtype uint16",
        understood="`.raw`, `.bin`, `.vol`, `.dat` with a JSON file beside it (below), or with "
        "shape and type in the name (`bread_512x512x400_16bit.raw`)",
        voxel_size="the JSON file, or the name",
    ),
}

#: Input formats by name, in the order in which they are tried on a file.
READERS = Registry("readers", Reader, _READERS)


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Exporter(Format):
    """Output format."""

    # {"image", "pores"}: content: a volume, or a pore result with ``labels``, ``pores`` and
    # ``throats``
    of: Literal["image", "pores"]
    # writers by extension: ``write(path, what)``, with `options` as further keywords. `path` is a
    # temporary name; the complete file is renamed. The first extension is the default.
    writers: Mapping[str, Function]
    # whether it is a folder. Its writer takes the keywords ``overwrite`` and ``ready``, and must
    # write atomically.
    is_folder: bool = False
    every: bool = False  # whether a name without extension stands for one file per extension
    options: tuple[str, ...] = ()  # options of `hushpore.export` that the writers take
    content: str  # content and target program, for the help and docs/howto/export.md

    @property
    def endings(self) -> tuple[str, ...]:
        """Extensions of the files."""
        return tuple(self.writers)

    def write(
        self,
        path: Path,
        what: Any,
        overwrite: bool = False,
        ready: Callable[[], None] = _nothing,
        **options: Any,
    ) -> Path:
        """Write a file with one of the extensions, atomically.

        `ready`: called when the file is complete, just before it gets its name.
        Raises MissingPackageError if a package is not installed; OutputError if the file cannot be
        written.
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
        """Return the files that are written for a target name."""
        if target.name.lower().endswith(self.endings):
            return [target]
        stem = target.stem if target.suffix.lower() in self.suffixes else target.name
        endings = self.endings if self.every else self.endings[:1]
        return [target.with_name(stem + end) for end in endings]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes that identify a file of this format, as ``".parquet"``."""
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
    "xlsx": Exporter(
        title="Excel",
        of="pores",
        writers={".xlsx": "hushpore.io.export.workbook:write_xlsx"},
        package="xlsxwriter",
        extra="xlsx",
        content="totals, tables, form and settings in one workbook",
    ),
    "ome-tiff": Exporter(
        title="OME-TIFF",
        of="image",
        writers=dict.fromkeys((".tif", ".tiff"), "hushpore.io.results:write_tiff"),
        content="an image with its voxel size",
    ),
    "ome-zarr": Exporter(
        title="OME-Zarr",
        of="image",
        writers={".zarr": "hushpore.io.zarr:write_zarr"},
        is_folder=True,
        package="zarr",
        extra="zarr",
        content="an image with its voxel size, in blocks and with a pyramid",
    ),
}

#: Output formats by name.
EXPORTERS = Registry("exporters", Exporter, _EXPORTERS)


def exporters_of(what: str) -> dict[str, Exporter]:
    """Return the output formats for an image or for a pore result."""
    return {name: each for name, each in EXPORTERS.items() if each.of == what}


def exporter_by_ending(path: Path, of: str) -> Exporter | None:
    """Return the output format for the extension of a path, or None."""
    suffix = path.suffix.lower()
    return next((each for each in exporters_of(of).values() if suffix in each.suffixes), None)


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the format of a file or folder, from a few bytes of it.

    For a folder, the first few files are examined. Never raises.

    Parameters
    ----------
    path : str or path-like
        A file or folder, existing or not.

    Returns
    -------
    str or None
        A key of `READERS`; None if `hushpore.read` cannot read it.

    Examples
    --------
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
        # a folder with one volume of a format without slices opens it
        single = kinds - {None}
        if len(single) == 1:
            (kind,) = single
            return None if READERS[str(kind)].slices_by else kind
    except (OSError, ValueError):
        pass
    return None


def kind_of_one(path: Path) -> str | None:
    """Return the format of one file, or of a folder in the format of an image, or None.

    Raises OSError if it does not exist or cannot be opened.
    """
    state, start = path.stat(), b""
    is_folder = stat.S_ISDIR(state.st_mode)
    if not is_folder and not stat.S_ISREG(state.st_mode):
        return None  # reading a pipe or device might block or never end
    if not is_folder and state.st_size:
        with path.open("rb") as file:
            start = file.read(folders.START)
    for name, reader in READERS.items():
        if reader.is_folder == is_folder and reader.matches(start, path):
            return name
    return None


def titles(readers: Iterable[Reader], last: str = "or") -> str:
    """Return the names of some formats, as a list for a sentence."""
    *others, final = (reader.title for reader in readers)
    return f"{', '.join(others)} {last} {final}" if others else final


def resolved(function: Function) -> Callable[..., Any]:
    """Return a function, imported first if it is given by name."""
    found: Callable[..., Any] = (
        pkgutil.resolve_name(function) if isinstance(function, str) else function
    )
    return found


def _lies_in(folder: Path, kind: str) -> bool:
    """Return whether a folder directly contains files of a format."""
    with os.scandir(folder) as entries:
        files = (Path(entry.path) for entry in entries if entry.is_file())
        return any(kind_of_one(path) == kind for path in itertools.islice(files, PEEK))
