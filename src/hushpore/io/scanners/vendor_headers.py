"""Reader of raw volumes with a scanner's header file: VGI, X-Tek, phoenix and PyHST."""

from __future__ import annotations

import dataclasses
import math
import re
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import unit_of
from hushpore.io.folders import header_beside
from hushpore.io.libraries import explained_damage
from hushpore.io.raw import Layout, volume_of_layout
from hushpore.io.scanners.header_text import (
    first_value,
    number_of,
    read_sections,
    settings_of,
    sizes_of,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume
    from hushpore.io.scanners.header_text import Sections

_NO_SIZE = "{name} states no voxel size; the voxel size is not known."
_VGI_KINDS = {"unsigned integer": "u", "integer": "i", "signed integer": "i", "float": "f"}
_PCR_FORMATS = {1: "u1", 5: "u2", 10: "f4"}
#: Values of DATA_TYPE in headers of PyHST, which most programs leave out.
_PYHST_TYPES = {
    "uint8": "u1", "int8": "i1", "uint16": "u2", "int16": "i2", "uint32": "u4", "int32": "i4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
#: Number of values in the middle of a file that tell 16 bits from half a file of float32, and the
#: difference between every other value, in standard deviations, that only float32 has.
_SAMPLE, _UNLIKE = 1 << 16, 0.25
#: Data type by bytes per voxel, for headers without a data type.
_BY_BYTES = {1: "u1", 2: "u2", 4: "f4", 8: "f8"}


def open_with_header(path: Path) -> list[Volume]:
    """Open the raw volume described by a scanner's header, as a lazy array.

    Parameters
    ----------
    path : Path
        The header (``.vgi``, ``.xtekct``, ``.xtekVolume``, ``.pcr``, ``.vol.info``,
        ``.raw.info``), or the raw file beside it.

    Returns
    -------
    list of Volume
        One for each volume of a ``.vgi``, else one. Axes zyx; voxel size in mm, of PyHST in µm.

    Raises
    ------
    InputError
        If the header cannot be understood, its raw file is missing, or is smaller than the header
        states.
    """
    header = header_beside(path)
    if header is None:
        raise InputError(f"{path.name}: the header beside it was removed while it was read.")
    name = header.name.lower()
    if not header.stat().st_size:
        raise InputError(f"The header {header.name} is empty (0 bytes). Copy or export it again.")
    with explained_damage(partial(_damaged, header)):
        sections = read_sections(header)
        if name.endswith(".vgi"):
            return _open_vgi(header, sections)
        if name.endswith((".xtekct", ".xtekvolume")):
            return [_open_xtek(header, sections)]
        if name.endswith(".pcr"):
            return [_open_phoenix(header, sections)]
        return [_open_pyhst(header, sections)]


def _damaged(header: Path, error: Exception) -> InputError:
    return InputError(
        f"The header {header.name} cannot be understood ({type(error).__name__}: {error}). Export "
        "the volume again."
    )


def _open_vgi(header: Path, sections: Sections) -> list[Volume]:
    blocks = [key for key in sections if key.endswith("/file1")]
    if not blocks:
        raise InputError(
            f"{header.name} names no file of voxels: expected a section [file1] with Name and Size."
        )
    volumes = []
    for key in blocks:
        block, file = key.removesuffix("/file1"), sections[key]
        if f"{block}/file2" in sections:
            raise InputError(
                f"{header.name} joins several files to one volume; one file is read. Export the "
                "volume as one file."
            )
        shown = {**sections.get(f"{block}/representation", {}), **file}
        if shown.get("fileformat", "raw").lower() != "raw":
            raise InputError(
                f"{header.name}: expected FileFormat = raw, found {shown['fileformat']!r}. Export "
                "the volume as raw voxels."
            )
        bits, kind = shown.get("bitsperelement", ""), shown.get("datatype", "").lower()
        dtype = f"{_VGI_KINDS.get(kind, '?')}{(number_of(bits) or 0) / 8:g}"
        if dtype not in ("u1", "u2", "u4", "i1", "i2", "i4", "f4", "f8"):
            raise InputError(
                f"{header.name}: expected integers or floats of 8 to 64 bits, found Datatype = "
                f"{kind!r} and BitsPerElement = {bits!r}."
            )
        sizes = shown.get("size", "").split()
        shape = _shape(header, sizes if len(sizes) == 3 else ["", "", ""], "Size = x y z")
        data = _beside(header, shown.get("name") or header.with_suffix(".vol").name)
        offset = max(int(number_of(shown.get("skipheader", "")) or 0), 0)
        layout = Layout(data, offset, np.dtype("<" + dtype), shape)
        volumes.append(_volume(layout, header, **_vgi_size(sections, block)))
    return volumes


def _vgi_size(sections: Sections, block: str) -> dict[str, Any]:
    """Return the resolution of the geometry that refers to a volume, or of the only one."""
    geometries = {key.partition("/")[0]: found for key, found in sections.items()
                  if key.endswith("/geometry")}  # fmt: skip
    own = [
        geometry
        for name, geometry in geometries.items()
        if sections.get(f"{name}/volume", {}).get("volume", "").lower() == block
    ]
    geometry = (own or list(geometries.values()) or [{}])[0]
    steps = sizes_of(geometry.get("resolution", "").split())
    unit = unit_of(geometry.get("unit", "mm"))
    known = steps is not None and len(steps) == 3 and unit is not None
    return {"spacing": steps[::-1], "unit": unit[0]} if known and steps and unit else {}


def _open_xtek(header: Path, sections: Sections) -> Volume:
    scan = sections.get("xtekct", {})
    shape = _shape(header, [scan.get(f"voxels{axis}", "") for axis in "xyz"], "VoxelsX, Y, Z")
    steps = sizes_of(scan.get(f"voxelsize{axis}", "") for axis in "zyx")
    # Name is that of the projections: several reconstructions of a scan have it in common
    stems = [header.stem, *filter(None, (scan.get("outputname"), scan.get("name")))]
    data = _first_beside(header, [stem + ending for stem in stems for ending in (".vol", ".raw")])
    settings = settings_of(
        voltage_kv=first_value(sections, "xraykv"),
        current_ua=first_value(sections, "xrayua"),
        filter=_xtek_filter(sections),
    )
    known = {"spacing": steps, "unit": "mm"} if steps else {}
    dtype = "f4" if data.suffix.lower() == ".vol" else _guessed_type(data, shape, "<")
    volume = _volume(Layout(data, 0, np.dtype("<" + dtype), shape), header, settings, **known)
    return _with_guessed_type(volume, data, "CT Pro")


def _xtek_filter(sections: Sections) -> str:
    thickness = number_of(first_value(sections, "filter_thicknessmm"))
    material = first_value(sections, "filter_material")
    return f"{thickness:g} mm {material}".strip() if thickness else ""


def _open_phoenix(header: Path, sections: Sections) -> Volume:
    scan = sections.get("volumedata", {})
    shape = _shape(header, [scan.get(f"volume_size{axis}", "") for axis in "xyz"], "Volume_SizeX")
    stems = [header.stem, *filter(None, [PureWindowsPath(scan.get("vol_file", "")).stem])]
    data = _first_beside(header, [stem + ending for stem in stems for ending in (".vol", ".raw")])
    stated = number_of(scan.get("format", ""))
    dtype = _PCR_FORMATS.get(int(stated or 0)) or _by_bytes(data, shape)
    if dtype is None:
        raise InputError(
            f"{header.name}: expected Format 1, 5 or 10 (8 bits, 16 bits, floats), found "
            f"{scan.get('format', '')!r}."
        )
    steps = sizes_of([scan.get("voxelsizerec", "")])
    # the settings of the scan are in the header of its projections
    scan_file = header.with_suffix(".pca")
    if scan_file.is_file():
        sections = {**read_sections(scan_file), **sections}
    settings = settings_of(
        voltage_kv=first_value(sections, "voltage"), current_ua=first_value(sections, "current"),
        exposure_ms=first_value(sections, "timingval"), filter=first_value(sections, "filter"),
    )  # fmt: skip
    known = {"spacing": steps * 3, "unit": "mm"} if steps else {}
    return _volume(Layout(data, 0, np.dtype("<" + dtype), shape), header, settings, **known)


def _open_pyhst(header: Path, sections: Sections) -> Volume:
    scan = sections.get("", {})
    shape = _shape(header, [scan.get(f"num_{axis}", "") for axis in "xyz"], "NUM_X")
    data = _beside(header, header.name[: -len(".info")])
    order = ">" if "high" in scan.get("byteorder", "").lower() else "<"
    stated = scan.get("data_type", "").strip().lower()
    if stated and stated not in _PYHST_TYPES:
        raise InputError(
            f"{header.name}: expected DATA_TYPE {', '.join(_PYHST_TYPES)}, found {stated!r}."
        )
    dtype = _PYHST_TYPES.get(stated) or _guessed_type(data, shape, order)
    steps = sizes_of([scan.get("voxelsize", "")])
    known: dict[str, Any] = {"spacing": steps * 3, "unit": "um"} if steps else {}
    volume = _volume(Layout(data, 0, np.dtype(order + dtype), shape), header, **known)
    return volume if stated else _with_guessed_type(volume, data, "PyHST")


def _with_guessed_type(volume: Volume, data: Path, program: str) -> Volume:
    """Return a volume with a note if its data type is not the float32 that a program writes."""
    if volume.dtype == np.float32:
        return volume
    note = (
        f"The data type {volume.dtype} was guessed from the size of {data.name}; {program} writes "
        "float32. If the image looks wrong, the file is incomplete: copy it again."
    )
    return dataclasses.replace(volume, notes=[note, *volume.notes])


def _volume(
    layout: Layout, header: Path, metadata: Mapping[str, Any] | None = None, **known: Any
) -> Volume:
    notes = [] if "spacing" in known else [_NO_SIZE.format(name=header.name)]
    name = re.sub(r"\.(vol|raw)$", "", header.stem, flags=re.IGNORECASE)
    volume = volume_of_layout(layout, layout.path, notes, **known)
    return volume.replace(volume.data, name=name, metadata=dict(metadata or {}))


def _shape(header: Path, texts: list[str], what: str) -> tuple[int, int, int]:
    """Return the shape in z, y, x order from lengths in x, y, z order."""
    x, y, z = (whole_number(text, what, header) for text in texts)
    return z, y, x


def _by_bytes(data: Path, shape: tuple[int, ...]) -> str | None:
    """Return the data type for which the file has exactly the size of the volume."""
    each, rest = divmod(data.stat().st_size, math.prod(shape))
    return None if rest else _BY_BYTES.get(each)


def _guessed_type(data: Path, shape: tuple[int, ...], order: str) -> str:
    """Return the data type by the size of a file; float32 if none fits or the file is half of it.

    Half a file of float32 has the size of 16 bits, but every other value of it is the lower half of
    a number: noise or zero.
    """
    dtype = _by_bytes(data, shape) or "f4"
    if dtype != "u2":
        return dtype
    middle = data.stat().st_size // 8 * 4
    values = np.fromfile(data, order + "u2", _SAMPLE, offset=middle).astype(np.float64)
    spread = values.std() or 1.0
    first, second = values[::2], values[1::2]
    means = abs(first.mean() - second.mean())
    steps = abs(np.diff(first).std() - np.diff(second).std())
    unlike = max(means, steps) > _UNLIKE * spread
    return "f4" if unlike else dtype


def _beside(header: Path, name: str) -> Path:
    """Return the raw file named in a header, which must be in the same folder."""
    return _first_beside(header, [PureWindowsPath(name).name])


def _first_beside(header: Path, names: list[str]) -> Path:
    # use only the file name: a header must not give access to files in other folders
    wanted = [PureWindowsPath(name.strip(" \"'")).name for name in names]
    for name in wanted:
        found = header.with_name(name or "_")
        if name and found.is_file():
            return found
    # names of Windows may differ in case
    folded = [name.casefold() for name in wanted if name]
    for path in sorted(header.parent.iterdir()):
        if path.name.casefold() in folded and path.is_file():
            return path
    raise InputError(
        f"{header.name} describes {names[0]}, which is not beside it. Copy both into one folder."
    )
