"""Raw voxels with a scanner's header (VGI, X-Tek, phoenix, PyHST, Scanco ISQ), and SkyScan logs."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import decoded, on_one_line, require_plain, unit_of
from hushpore.base.rescaled import Scaled
from hushpore.io.folders import header_beside
from hushpore.io.guards import explained_damage
from hushpore.io.raw import TYPES_BY_BYTES, Layout, volume_of_layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hushpore.base.volume import Volume
    from hushpore.io.folders import SliceStack

    #: ``key -> value`` of each section, names in lower case.
    Sections = dict[str, dict[str, str]]


#: Maximum size of a header in bytes; logs of long scans have about 100 kB.
_LONGEST_HEADER = 1 << 22
#: Maximum length of a text setting in characters.
_LONGEST_TEXT = 80
#: Text of datos|x and other programs for a setting that nobody entered.
_NOT_ENTERED = ("unknown", "please define", "not defined", "undefined", "n/a")
_NUMBER = re.compile(r"[-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?")
#: Key in the metadata of a volume for the settings of the scanner.
SCANNER = "scanner"


def read_sections(path: Path) -> Sections:
    """Read the sections of a header in INI text.

    `path`: a text file with ``[section]`` or ``{block}`` lines and ``key = value`` lines, in UTF-8,
    UTF-16 or a single-byte encoding.
    Returns: for each section a dict of its keys, all names in lower case and with u for µ. A
    section within a block is named ``"block/section"``; keys before any section are in ``""``. Of a
    key that occurs twice in a section the first value counts.
    Raises OSError if the file cannot be read or is no plain file.
    """
    require_plain(path)
    with path.open("rb") as file:
        content = file.read(_LONGEST_HEADER)
    sections: Sections = {}
    block = section = ""
    for raw in decoded(content).splitlines():
        line = raw.strip()
        if line.startswith("{") and line.endswith("}"):
            block, section = line[1:-1].strip().lower(), ""
        elif line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip().lower()
        elif "=" in line:
            key, _, value = line.partition("=")
            name = f"{block}/{section}" if block else section
            plain = key.strip().lower().replace("µ", "u").replace("μ", "u")
            sections.setdefault(name, {}).setdefault(plain, value.strip())
    return sections


def first_value(sections: Mapping[str, Mapping[str, str]], *keys: str) -> str:
    """Return the value of the first key that is found, in any section; empty if none is."""
    for key in keys:
        for section in sections.values():
            if section.get(key):
                return section[key]
    return ""


def number_of(text: str) -> float | None:
    """Return the number at the beginning of a text, with a decimal point or comma, or None.

    >>> number_of("12,5 um"), number_of("auto")
    (12.5, None)
    """
    found = _NUMBER.match(text.strip())
    number = float(found[0].replace(",", ".")) if found else math.nan
    return number if math.isfinite(number) else None


def whole_number(text: str, what: str, header: Path) -> int:
    """Return a whole number above zero; otherwise raises InputError with key and header."""
    number = number_of(text)
    if number is None or number < 1 or not number.is_integer():
        raise InputError(
            f"{header.name}: expected a whole number above zero for {what}, found {text!r}. Copy "
            "or export it again."
        )
    return int(number)


def sizes_of(texts: Iterable[str]) -> tuple[float, ...] | None:
    """Return lengths from texts, or None unless all are numbers above zero."""
    numbers = [number_of(text) for text in texts]
    found = tuple(number for number in numbers if number is not None and number > 0)
    return found if numbers and len(found) == len(numbers) else None


def settings_of(**values: Any) -> dict[str, Any]:
    """Return the scanner settings that a header states, as metadata of a volume.

    `values`: text from the header by name, for example ``voltage_kv``, ``exposure_ms``, ``filter``.
    Names that end in a unit are numbers. Empty text, placeholders such as ``Unknown``, and text
    without the number that is expected are left out.
    Returns: ``{"scanner": {...}}``, or empty if nothing is stated.
    """
    said: dict[str, Any] = {}
    for name, value in values.items():
        text = str(value or "").strip()
        number = number_of(text)
        if not name.endswith(("_kv", "_ua", "_ms", "_deg", "_mm")):
            if text and not text.lower().startswith(_NOT_ENTERED):
                said[name] = on_one_line(text, _LONGEST_TEXT)
        elif number is not None:
            said[name] = number
    return {SCANNER: said} if said else {}


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


def open_with_header(path: Path) -> list[Volume]:
    """Open the raw volume described by a scanner's header, as a lazy array.

    `path`: the header (``.vgi``, ``.xtekct``, ``.xtekVolume``, ``.pcr``, ``.vol.info``,
    ``.raw.info``), or the raw file beside it.
    Returns: one volume for each of a ``.vgi``, else one. Axes zyx; voxel size in mm, of PyHST in
    µm.
    Raises InputError if the header cannot be understood, its raw file is missing, or is smaller
    than the header states.
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
    return None if rest else TYPES_BY_BYTES.get(each)


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


_NO_PIXEL_SIZE = re.compile("voxel size is (not known|unknown)")


def is_log(path: Path) -> bool:
    """Return whether a file is a log of SkyScan or NRecon."""
    return bool(_scan_of(read_sections(path)))


def with_log(volume: Volume, stack: SliceStack) -> Volume:
    """Return a stack of slices with the voxel size and settings of the log beside it.

    `volume`: a voxel size that its files state is kept. `stack`: its files. The log is
    ``PREFIX.log`` with the prefix of their names, or the only ``.log`` file of a folder that has
    the sections of SkyScan.
    Returns: the same volume if there is no such log.
    """
    for log in _logs(stack):
        sections = read_sections(log)
        scan = _scan_of(sections)
        if not scan:
            continue
        # prefer the voxel size of the reconstruction, which is also correct for resized slices
        text = scan.get("pixel size (um)") or scan.get("image pixel size (um)", "")
        size = sizes_of([text])
        settings = settings_of(
            scanner=first_value(sections, "scanner"),
            voltage_kv=first_value(sections, "source voltage (kv)", "source voltage  (kv)"),
            current_ua=first_value(sections, "source current (ua)", "source current  (ua)"),
            filter=first_value(sections, "filter"),
            exposure_ms=first_value(sections, "exposure (ms)"),
            rotation_step_deg=first_value(sections, "rotation step (deg)"),
        )
        metadata = {**settings, **volume.metadata}
        if size is None or volume.unit != "pixel":
            return dataclasses.replace(volume, metadata=metadata)
        said = f"The voxel size, {size[0]:g} µm, is taken from {log.name}."
        # drop the note on the missing voxel size: picture headers only have a print size
        notes = [note for note in volume.notes if not _NO_PIXEL_SIZE.search(note)]
        return dataclasses.replace(
            volume, spacing=size * volume.n_spatial, unit="um", notes=[*notes, said],
            metadata=metadata,
        )  # fmt: skip
    return volume


def _scan_of(sections: Sections) -> dict[str, str]:
    """Return the settings of acquisition and reconstruction; empty in other programs' logs."""
    return {**sections.get("acquisition", {}), **sections.get("reconstruction", {})}


def _logs(stack: SliceStack) -> list[Path]:
    """Return the logs beside a stack: the one with its prefix, else the only one."""
    folder = stack.files[0].parent
    logs = sorted(path for path in folder.glob("*.[lL][oO][gG]") if path.is_file())
    prefix = stack.name.lower()
    own = [log for log in logs if prefix and log.stem.lower().rstrip("_-. ") == prefix]
    # the log of the projections is named like the scan, without _rec
    shared = [log for log in logs if prefix.startswith(log.stem.lower().rstrip("_-. "))]
    return own or shared or (logs if len(logs) == 1 else [])


_ISQ_BLOCK = 512


def open_isq(path: Path) -> Volume:
    """Open a Scanco ISQ volume as a lazy array.

    The header has 512 bytes, little-endian: voxels along x, y, z at byte 44, lengths in µm at 56,
    ``mu_scaling`` at 88, tube voltage in V at 168, current in µA at 172, blocks before the values
    at 508. The name of the patient, at 128, is not read. Source: the fields that BoneJ
    (``ISQReader``) and ITK (``ScancoImageIO``) read.

    Returns: linear attenuation coefficients in 1/cm: stored int16 over ``mu_scaling``, as `Scaled`.
    Axes zyx, voxel size in mm.
    Raises InputError if the header is damaged or the file ends before its values do.
    """
    with path.open("rb") as file:
        header = file.read(_ISQ_BLOCK)
    if len(header) < _ISQ_BLOCK:
        raise InputError(f"{path.name} is incomplete: its header has {len(header)} of 512 bytes.")
    x, y, z, *lengths = struct.unpack_from("<6i", header, 44)
    (scaling,) = struct.unpack_from("<i", header, 88)
    volts, current = struct.unpack_from("<2i", header, 168)
    (blocks,) = struct.unpack_from("<i", header, _ISQ_BLOCK - 4)
    sizes = (z, y, x)
    if min(sizes) < 1 or blocks < 0:
        raise InputError(
            f"{path.name} is damaged: its header gives {x} x {y} x {z} voxels from block {blocks}."
        )
    known: dict[str, Any] = {}
    if min(lengths) > 0:
        steps = zip(reversed(lengths), sizes, strict=True)
        known = {"spacing": tuple(length / count / 1000 for length, count in steps), "unit": "mm"}
    else:
        known = {"notes": ["The header gives no voxel size; the voxel size is not known."]}
    layout = Layout(path, (blocks + 1) * _ISQ_BLOCK, np.dtype("<i2"), sizes)
    volume = volume_of_layout(layout, path, **known)
    scanner = {"voltage_kv": volts / 1000, "current_ua": float(current)}
    metadata: dict[str, Any] = {
        "scanner": {name: value for name, value in scanner.items() if value > 0}
    }
    if scaling < 1:
        return volume.replace(volume.data, metadata=metadata)
    metadata["value_unit"] = "1/cm"
    return volume.replace(Scaled(volume.data, 1 / scaling, 0.0), metadata=metadata)
