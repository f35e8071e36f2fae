"""The voxel size of a TIFF file: from ImageJ, OME, or its resolution tags."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from hushpore.base.formatting import METRES, readable_unit, unit_of
from hushpore.io.unitless import unitless_notes
from hushpore.io.value_metadata import value_metadata

if TYPE_CHECKING:
    import tifffile

# dots per inch that programs write when they know nothing of the image
_PRINT_RESOLUTIONS = (72.0, 96.0, 150.0, 300.0, 600.0)
_CENTIMETRE = 3  # units of the resolution, as TIFF numbers them
_INCH = 2


@dataclass(frozen=True)
class VoxelSize:
    """What a file states of its geometry."""

    # voxel size in `unit`; None where it is not stated
    z: float | None = None
    y: float | None = None
    x: float | None = None
    unit: str = "pixel"  # unit of length, or ``"pixel"``
    notes: list[str] = field(default_factory=list)  # what was doubtful
    axes: str = ""  # letters of the axes that the file states to be there even with length one
    # position of the first voxel, z y x or y x; empty where it is not stated
    origin: tuple[float, ...] = ()
    is_boolean: bool = False  # whether what is not 0 stands for true
    # what it states of its values, by the names that metadata of a volume have
    metadata: dict[str, Any] = field(default_factory=dict)

    def along(self, n_spatial: int) -> tuple[tuple[float, ...], list[str]]:
        """Return the spacing of a 2D or 3D image, what is missing supplied and said."""
        if self.y is None or self.x is None:
            return (1.0,) * n_spatial, list(self.notes)
        if n_spatial == 2:
            return (self.y, self.x), list(self.notes)
        if self.z is not None:
            return (self.z, self.y, self.x), list(self.notes)
        note = (
            "The distance between slices is not stated; taken as the pixel size, "
            f"{self.y:.4g} {readable_unit(self.unit)}."
        )
        return (self.y, self.y, self.x), [*self.notes, note]


def voxel_size(tif: tifffile.TiffFile, index: int, count: int) -> VoxelSize:
    """Find the voxel size of one series of a file.

    `index`, `count`: which series, and of how many.
    """
    if tif.is_ome and tif.ome_metadata:
        found = ome_voxel_size(tif.ome_metadata, index, count)
        if found is not None:
            return found
    if tif.is_imagej and tif.imagej_metadata:
        return _imagej(tif.imagej_metadata, *_pixels_per_unit(tif))
    return _resolution(tif)


def ome_voxel_size(xml: str, index: int, count: int) -> VoxelSize | None:
    """Read the voxel size from OME-XML, or None where there is no image in it.

    `xml`: the image description of an OME-TIFF. `index`, `count`: which of its images, and how many
    there should be.
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
            "OME states no unit of the voxel size; micrometres are meant then, by its standard."
        )
    units = {axis: unit or "um" for axis, unit in units.items()}
    ours = _our_description(image.findtext("{*}Description"))
    axes = ours.get("axes", "") or ("z" if sizes["z"] is not None else "")
    known = VoxelSize(
        notes=notes,
        axes=str(axes),
        origin=tuple(ours.get("origin", ())),
        is_boolean=ours.get("type") == "bool",
        metadata=value_metadata(ours),
    )
    return _in_one_unit(known, sizes, units)


def _in_one_unit(
    known: VoxelSize, sizes: dict[str, float | None], units: dict[str, str]
) -> VoxelSize:
    """Bring all axes to the unit of x; `known`: what is said beside them."""
    target = unit_of(units["x"])
    if target is None:
        if sizes["x"] is None:
            return known
        steps = [size for size in sizes.values() if size is not None]
        return replace(known, notes=[*known.notes, *unitless_notes(steps, units["x"])])
    name = target[0]
    converted: dict[str, Any] = {"unit": name}
    for axis, size in sizes.items():
        own = unit_of(units[axis])
        if size is None or own is None or (own[0] == "pixel") != (name == "pixel"):
            converted[axis] = None
        elif own[0] == name:
            converted[axis] = size * own[1] if own[1] != 1 else size
        else:
            converted[axis] = size * own[1] * METRES[own[0]] / METRES[name]
    if converted["y"] is None or converted["x"] is None:
        return known
    return replace(known, **converted)


def _our_description(text: str | None) -> dict[str, Any]:
    """Return what hushpore wrote, which OME has no place for; empty where it wrote nothing."""
    try:
        found = json.loads(text or "")["hushpore"]
        axes, origin = str(found["axes"]), [float(value) for value in found["origin"]]
    except (ValueError, KeyError, TypeError):
        return {}
    return {**found, "axes": axes, "origin": origin}


def _imagej(metadata: dict[str, Any], per_y: float | None, per_x: float | None) -> VoxelSize:
    text = str(metadata.get("unit", ""))
    unit = unit_of(text)
    if unit is None or unit[0] == "pixel":
        notes = []
        if unit is None:
            notes.append(f"ImageJ states the unit {text!r}, which is not known: pixels are taken.")
        elif (per_y or 1.0, per_x or 1.0) != (1.0, 1.0):
            notes.append("The resolution is stated without a unit; the voxel size is not known.")
        return VoxelSize(notes=notes)
    if per_y is None or per_x is None:
        note = f"ImageJ states the unit {unit[0]} but no pixel size: the voxel size is not known."
        return VoxelSize(notes=[note])
    # ImageJ has a unit for each axis, where these differ
    units = {"x": text, "y": str(metadata.get("yunit") or text),
             "z": str(metadata.get("zunit") or text)}  # fmt: skip
    sizes = {"z": _positive(metadata.get("spacing")), "y": 1 / per_y, "x": 1 / per_x}
    return _in_one_unit(VoxelSize(), sizes, units)


def _resolution(tif: tifffile.TiffFile) -> VoxelSize:
    per_y, per_x = _pixels_per_unit(tif)
    tag = tif.pages.first.tags.get("ResolutionUnit")
    unit = int(tag.value) if tag is not None else 0
    if per_y is None or per_x is None:
        return VoxelSize()
    millimetres = 10.0 if unit == _CENTIMETRE else 25.4
    dpi = per_x * 25.4 / millimetres
    if unit not in (_CENTIMETRE, _INCH):
        if (per_y, per_x) == (1.0, 1.0):
            return VoxelSize()
        why = " is stated without a unit"
    elif any(math.isclose(dpi, known, abs_tol=0.02) for known in _PRINT_RESOLUTIONS):
        why = f" of {dpi:.0f} dots per inch is one for printing"
    elif dpi == 25.4 / millimetres:  # one pixel per centimetre or inch: a placeholder
        why = " is 1"
    else:
        return VoxelSize(y=millimetres / per_y, x=millimetres / per_x, unit="mm")
    return VoxelSize(notes=[f"The resolution{why}; the voxel size is not known."])


def _pixels_per_unit(tif: tifffile.TiffFile) -> tuple[float | None, float | None]:
    tags = tif.pages.first.tags
    values = []
    for name in ("YResolution", "XResolution"):
        tag = tags.get(name)
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
