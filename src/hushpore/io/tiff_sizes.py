"""Voxel size of a TIFF series: by OME, ImageJ, a microscope, a description or the resolution."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from hushpore.base.formatting import METRES, readable_unit, unit_of
from hushpore.io.undefined import is_plausible, unitless_notes, value_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tifffile


# print resolutions (dots per inch) that programs write by default, also per centimetre
_PRINT_RESOLUTIONS = (72, 96, 100, 120, 150, 200, 240, 300, 360, 400, 600)
_MOST_PRINTED = 600.5  # pixels per inch, up to which a resolution in inches is for printing
# by code of the resolution unit: inch, centimetre, and the later millimetre and micrometre
_MILLIMETRES = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}
_INCH = 25.4
_ALIKE = 0.01  # relative difference of two statements of the same size
# SI prefixes of OME that `unit_of` does not know, as powers of ten
_PREFIXES = dict(zip(("Y", "Z", "E", "P", "T", "G", "M", "k", "h", "da", "d", "p", "f", "a", "z",
                      "y"), (24, 21, 18, 15, 12, 9, 6, 3, 2, 1, -1, -12, -15, -18, -21, -24),
                     strict=True))  # fmt: skip


@dataclass(frozen=True)
class VoxelSize:
    """Geometry stated in a file."""

    # voxel size in `unit`; None if not stated
    z: float | None = None
    y: float | None = None
    x: float | None = None
    # unit of length, or ``"pixel"``; with a unit of None they are numbers in the unit `unknown`
    unit: str | None = "pixel"
    unknown: str = ""
    source: str = ""  # what states it, for notes
    notes: list[str] = field(default_factory=list)  # on doubtful values
    axes: str = ""  # letters of the axes that are stated, also with length one
    # position of the first voxel, z y x or y x; empty if not stated
    origin: tuple[float, ...] = ()
    is_boolean: bool = False  # whether nonzero values mean True
    # value metadata, with the names of `Volume.metadata`
    metadata: dict[str, Any] = field(default_factory=dict)

    def along(self, n_spatial: int) -> tuple[tuple[float, ...], str, list[str]]:
        """Return spacing and unit of a 2D or 3D image, with defaults, and the notes on these."""
        if self.y is None or self.x is None:
            return (1.0,) * n_spatial, "pixel", list(self.notes)
        steps = (self.z or self.y, self.y, self.x)[-n_spatial:]
        if self.unit is None:
            notes = [*self.notes, *unitless_notes(steps, self.unknown)]
            return (1.0,) * n_spatial, "pixel", notes
        if n_spatial == 2 or self.z is not None:
            return steps, self.unit, list(self.notes)
        note = (
            "The distance between slices is not stated and was set to the pixel size, "
            f"{self.y:.4g} {readable_unit(self.unit)}."
        )
        return steps, self.unit, [*self.notes, note]

    @property
    def is_known(self) -> bool:
        """Whether it gives lengths of a pixel."""
        return None not in (self.y, self.x, self.unit) and self.unit != "pixel"

    @property
    def is_plausible(self) -> bool:
        """Whether the lengths of a pixel are those of a scan."""
        return self.is_known and is_plausible(self._pixel(), str(self.unit))

    def differs_from(self, other: VoxelSize) -> bool:
        """Whether another statement gives other lengths of a pixel."""
        factor = METRES[str(other.unit)] / METRES[str(self.unit)]
        pairs = zip(self._pixel(), other._pixel(), strict=True)
        return not all(math.isclose(a, b * factor, rel_tol=_ALIKE) for a, b in pairs)

    def __str__(self) -> str:
        numbers = " x ".join(f"{step:.4g}" for step in dict.fromkeys(self._pixel()))
        return f"{numbers} {readable_unit(str(self.unit))} ({self.source})"

    def _pixel(self) -> tuple[float, float]:
        return self.y or 0.0, self.x or 0.0


def voxel_size(tif: tifffile.TiffFile, index: int, count: int) -> VoxelSize:
    """Determine the voxel size of one series of a file.

    Of several statements the first plausible one is used: OME, microscope, ImageJ, description,
    resolution; a note names one that contradicts it.

    `index`, `count`: index of the series, and number of series.
    """
    found = list(_statements(tif, index, count))
    known = [each for each in found if each.is_known]
    if not known:
        said = [each for each in found if each.notes or each.x is not None]
        return _with_rest([*said, VoxelSize()][0], found)
    best = next((each for each in known if each.is_plausible), known[0])
    notes = [
        f"The file gives two pixel sizes: {best} is used, {other} is not."
        for other in known
        if other.differs_from(best)
    ]
    return _with_rest(replace(best, notes=[*best.notes, *notes]), found)


def _with_rest(size: VoxelSize, found: list[VoxelSize]) -> VoxelSize:
    """Return a size with what OME states beside it."""
    ome = next((each for each in found if each.axes or each.metadata or each.origin), size)
    return replace(
        size, axes=ome.axes, origin=ome.origin, is_boolean=ome.is_boolean, metadata=ome.metadata
    )


def _statements(tif: tifffile.TiffFile, index: int, count: int) -> Iterator[VoxelSize]:
    """Yield what a file says of its voxel size, the most trustworthy first."""
    page: Any = tif.pages.first
    if tif.is_ome and tif.ome_metadata:
        found = ome_voxel_size(tif.ome_metadata, index, count)
        if found is not None:
            yield found
            if "hushpore" in tif.ome_metadata:
                return
    yield from _microscope(tif)
    per_y, per_x = _pixels_per_unit(page)
    if tif.is_imagej and tif.imagej_metadata:
        yield _imagej(tif.imagej_metadata, per_y, per_x, "ImageJ")
    elif page.shaped_description and (described := _described(page.shaped_description)):
        found = _imagej(described, per_y, per_x, "description")
        if found.is_known and page.tags.valueof("ResolutionUnit") in _MILLIMETRES:
            # tifffile adds inches to a resolution, unless told otherwise
            found.notes.append(
                f"The pixel size, {found}, is in the unit of the description; that of the "
                "resolution is another one."
            )
        yield found
    yield _resolution(page, per_y, per_x)


def _microscope(tif: tifffile.TiffFile) -> Iterator[VoxelSize]:
    """Yield the sizes in the tags of LSM, STK (MetaMorph), FEI and Zeiss SEM."""
    with suppress(KeyError, TypeError, ValueError, IndexError):
        if lsm := tif.lsm_metadata:
            yield _of_numbers([lsm[f"VoxelSize{axis}"] for axis in "ZYX"], "m", "LSM")
        elif stk := tif.stk_metadata:
            distance = next(iter(stk.get("ZDistance", ())), None)
            sizes = [distance, stk["YCalibration"], stk["XCalibration"]]
            if stk.get("SpatialCalibration", 1):
                yield _of_numbers(sizes, str(stk["CalibrationUnits"]), "STK")
        elif fei := tif.fei_metadata:
            scan = next(fei[name] for name in ("Scan", "EScan", "IScan") if name in fei)
            yield _of_numbers([None, scan["PixelHeight"], scan["PixelWidth"]], "m", "FEI")
        elif sem := tif.sem_metadata:
            _, step, unit = sem.get("ap_image_pixel_size") or sem["ap_pixel_size"]
            yield _of_numbers([None, step, step], unit, "Zeiss SEM")


def _of_numbers(sizes: list[Any], unit: str, source: str) -> VoxelSize:
    """Return the sizes along z, y, x in one unit; those in metres in µm."""
    factor, unit = (1e6, "um") if unit == "m" else (1.0, unit)
    steps = [None if (step := _positive(size)) is None else float(f"{factor * step:.12g}")
             for size in sizes]  # fmt: skip
    named = dict(zip("zyx", steps, strict=True))
    return _in_one_unit(VoxelSize(source=source), named, dict.fromkeys("zyx", unit))


def ome_voxel_size(xml: str, index: int, count: int) -> VoxelSize | None:
    """Read the voxel size from OME-XML; None if it describes no image.

    `xml`: the image description of an OME-TIFF. `index`, `count`: index of the image, and expected
    number of images.
    """
    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return None
    images = [image for image in root.iterfind("{*}Image") if image.find("{*}Pixels") is not None]
    if not images or (len(images) > 1 and len(images) != count):
        return None
    image = images[min(index, len(images) - 1)]
    pixels = image.find("{*}Pixels")
    assert pixels is not None
    sizes = {axis: _positive(pixels.get(f"PhysicalSize{axis.upper()}")) for axis in "zyx"}
    units = {axis: pixels.get(f"PhysicalSize{axis.upper()}Unit", "") for axis in "zyx"}
    notes = []
    if sizes["y"] is not None and not any(units.values()):
        notes.append(
            "The OME metadata give no unit of the voxel size; micrometres are assumed, as in the "
            "standard."
        )
    units = {axis: unit or "um" for axis, unit in units.items()}
    ours = _our_description(image.findtext("{*}Description"))
    axes = ours.get("axes", "") or ("z" if sizes["z"] is not None else "")
    known = VoxelSize(
        notes=notes,
        source="OME",
        axes=str(axes),
        origin=tuple(ours.get("origin", ())),
        is_boolean=ours.get("type") == "bool",
        metadata=value_metadata(ours),
    )
    return _in_one_unit(known, sizes, units, pixels_are_unknown=not ours)


def _in_one_unit(
    known: VoxelSize,
    sizes: dict[str, float | None],
    units: dict[str, str],
    pixels_are_unknown: bool = True,
) -> VoxelSize:
    """Convert all axes to the unit of x; `known`: the other properties."""
    if sizes["y"] is None or sizes["x"] is None:
        axis = next((axis for axis in "xy" if sizes[axis] is not None), "")
        if not axis:
            return known
        length = f"{sizes[axis]:.4g}"
        return replace(known, notes=[
            f"The file gives the voxel size along {axis} only ({length} {units[axis]}), so "
            f"lengths are in voxels. If it is that of all axes, set it: --voxel-size "
            f"{length}{units[axis]}, or in napari the field Voxel size."
        ])  # fmt: skip
    target = _unit(units["x"])
    if target is None or (pixels_are_unknown and target[0] == "pixel"):
        unknown = units["x"] if target is None else ""
        return replace(known, z=sizes["z"], y=sizes["y"], x=sizes["x"], unit=None, unknown=unknown)
    name = target[0]
    converted: dict[str, Any] = {"unit": name}
    for axis, size in sizes.items():
        own = _unit(units[axis])
        if size is None or own is None or (own[0] == "pixel") != (name == "pixel"):
            converted[axis] = None
        elif own[0] == name:
            converted[axis] = size * own[1] if own[1] != 1 else size
        else:
            converted[axis] = size * own[1] * METRES[own[0]] / METRES[name]
    return known if converted["y"] is None else replace(known, **converted)


def _unit(text: str) -> tuple[str, float] | None:
    """Return unit and factor of a spelling, as `unit_of`, and of any SI prefix as OME writes it."""
    power = _PREFIXES.get(text.strip()[:-1]) if text.strip().endswith("m") else None
    if power is None:
        return unit_of(text)
    return ("m", 10.0**power) if power > 0 else ("nm", 10.0 ** (power + 9))


def _our_description(text: str | None) -> dict[str, Any]:
    """Return the metadata that hushpore adds to OME; empty for files of other programs."""
    try:
        found = json.loads(text or "")["hushpore"]
        axes, origin = str(found["axes"]), [float(value) for value in found["origin"]]
    except (ValueError, KeyError, TypeError):
        return {}
    return {**found, "axes": axes, "origin": origin}


def _described(text: str) -> dict[str, Any]:
    """Return the unit and spacing that tifffile writes into a description, if there is a unit."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("unit") else {}


def _imagej(
    metadata: dict[str, Any], per_y: float | None, per_x: float | None, source: str
) -> VoxelSize:
    """Return the size by a unit and the numbers of the resolution, as ImageJ reads them."""
    text = str(metadata.get("unit", ""))
    unit = unit_of(text)
    known = VoxelSize(source=source)
    if (per_y is None or per_x is None) and unit is not None and unit[0] != "pixel":
        note = f"The voxel size is unknown: {source} gives the unit {unit[0]}, but no pixel size."
        return replace(known, notes=[note])
    if unit is not None and unit[0] != "pixel":
        printed = _printed(per_x or 1.0, unit[1] * METRES[unit[0]] * 1e3)
        if printed:
            return replace(known, notes=[printed])
        if (per_y, per_x) == (1, 1):
            note = (
                f"The pixel size, 1 {readable_unit(unit[0])}, is from a resolution of 1, which "
                "programs write if they know none; check it."
            )
            known = replace(known, notes=[note])
    # ImageJ has a unit for each axis, where these differ
    units = {"x": text, "y": str(metadata.get("yunit") or text),
             "z": str(metadata.get("zunit") or text)}  # fmt: skip
    sizes = {"z": _positive(metadata.get("spacing")), "y": 1 / (per_y or 1), "x": 1 / (per_x or 1)}
    return _in_one_unit(known, sizes, units)


def _resolution(page: Any, per_y: float | None, per_x: float | None) -> VoxelSize:
    tag = page.tags.get("ResolutionUnit")
    millimetres = _MILLIMETRES.get(int(tag.value) if tag is not None else 0)
    known = VoxelSize(source="resolution")
    if per_y is None or per_x is None:
        return known
    if millimetres is None:
        return replace(known, y=1 / per_y, x=1 / per_x, unit=None)
    if printed := _printed(per_x, millimetres):
        return replace(known, notes=[printed])
    notes = []
    if millimetres == _INCH:
        notes = [f"The pixel size is from a resolution of {per_x:.6g} per inch; check it."]
    return replace(known, y=millimetres / per_y, x=millimetres / per_x, unit="mm", notes=notes)


def _printed(per_x: float, millimetres: float) -> str:
    """Return a note if a resolution is one for printing or a placeholder; otherwise empty.

    `per_x`: pixels per unit. `millimetres`: length of the unit.
    """
    dpi = per_x * _INCH / millimetres
    is_inch = math.isclose(millimetres, _INCH)
    if any(math.isclose(dpi, known, abs_tol=0.02) for known in _PRINT_RESOLUTIONS) or (
        is_inch and 1 < dpi <= _MOST_PRINTED
    ):
        why = f"({dpi:.6g} dots per inch) is for printing"
    elif per_x == 1 and millimetres > 1:
        # one pixel per centimetre or inch: a placeholder
        why = "is 1"
    else:
        return ""
    return (
        f"The voxel size is unknown, because the resolution {why}. Set it: --voxel-size, or in "
        "napari the field Voxel size."
    )


def _pixels_per_unit(page: Any) -> tuple[float | None, float | None]:
    values = []
    for name in ("YResolution", "XResolution"):
        tag = page.tags.get(name)
        value = tag.value if tag is not None else None
        if isinstance(value, tuple) and len(value) == 2:
            value = value[0] / value[1] if value[1] else None
        values.append(_positive(value))
    return values[0], values[1]


def _positive(value: Any) -> float | None:
    """Return a usable size: its magnitude, since ImageJ writes negative spacing for flipped z."""
    try:
        number = abs(float(value))
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None
