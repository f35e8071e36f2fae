"""Voxel size of a TIFF file, from ImageJ or OME metadata or the resolution tags."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from hushpore.base.formatting import METRES, readable_unit, unit_of
from hushpore.io.undefined import unitless_notes, value_metadata

if TYPE_CHECKING:
    import tifffile

# print resolutions (dots per inch) that programs write by default
_PRINT_RESOLUTIONS = (72.0, 96.0, 150.0, 300.0, 600.0)
# by code of the resolution unit: inch, centimetre, and the later millimetre and micrometre
_MILLIMETRES = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}


@dataclass(frozen=True)
class VoxelSize:
    """Geometry stated in a file."""

    # voxel size in `unit`; None if not stated
    z: float | None = None
    y: float | None = None
    x: float | None = None
    unit: str = "pixel"  # unit of length, or ``"pixel"``
    notes: list[str] = field(default_factory=list)  # on doubtful values
    axes: str = ""  # letters of the axes that are stated, also with length one
    # position of the first voxel, z y x or y x; empty if not stated
    origin: tuple[float, ...] = ()
    is_boolean: bool = False  # whether nonzero values mean True
    # value metadata, with the names of `Volume.metadata`
    metadata: dict[str, Any] = field(default_factory=dict)

    def along(self, n_spatial: int) -> tuple[tuple[float, ...], list[str]]:
        """Return the spacing of a 2D or 3D image, with defaults, and the notes on these."""
        if self.y is None or self.x is None:
            return (1.0,) * n_spatial, list(self.notes)
        if n_spatial == 2:
            return (self.y, self.x), list(self.notes)
        if self.z is not None:
            return (self.z, self.y, self.x), list(self.notes)
        note = (
            "The distance between slices is not stated and was set to the pixel size, "
            f"{self.y:.4g} {readable_unit(self.unit)}."
        )
        return (self.y, self.y, self.x), [*self.notes, note]


def voxel_size(tif: tifffile.TiffFile, index: int, count: int) -> VoxelSize:
    """Determine the voxel size of one series of a file.

    `index`, `count`: index of the series, and number of series.
    """
    if tif.is_ome and tif.ome_metadata:
        found = ome_voxel_size(tif.ome_metadata, index, count)
        if found is not None:
            return found
    if tif.is_imagej and tif.imagej_metadata:
        return _imagej(tif.imagej_metadata, *_pixels_per_unit(tif))
    return _resolution(tif)


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
        axes=str(axes),
        origin=tuple(ours.get("origin", ())),
        is_boolean=ours.get("type") == "bool",
        metadata=value_metadata(ours),
    )
    in_pixels = unit_of(units["x"])
    if not ours and in_pixels is not None and in_pixels[0] == "pixel":
        # numbers without a unit are no lengths
        steps = [size for size in sizes.values() if size is not None]
        return replace(known, notes=[*notes, *unitless_notes(steps)])
    return _in_one_unit(known, sizes, units)


def _in_one_unit(
    known: VoxelSize, sizes: dict[str, float | None], units: dict[str, str]
) -> VoxelSize:
    """Convert all axes to the unit of x; `known`: the other properties."""
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
    """Return the metadata that hushpore adds to OME; empty for files of other programs."""
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
            notes.append(
                f"The unit {text!r} of ImageJ is unknown; the voxel size is given in pixels."
            )
        elif (per_y or 1.0, per_x or 1.0) != (1.0, 1.0):
            notes.append("The voxel size is unknown, because the resolution has no unit.")
        return VoxelSize(notes=notes)
    if per_y is None or per_x is None:
        note = f"The voxel size is unknown: ImageJ gives the unit {unit[0]}, but no pixel size."
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
    millimetres = _MILLIMETRES.get(unit)
    dpi = per_x * 25.4 / (millimetres or 25.4)
    if millimetres is None:
        if (per_y, per_x) == (1.0, 1.0):
            return VoxelSize()
        why = "has no unit"
    elif any(math.isclose(dpi, known, abs_tol=0.02) for known in _PRINT_RESOLUTIONS):
        why = f"({dpi:.0f} dots per inch) is for printing"
    elif dpi == 25.4 / millimetres and millimetres > 1:
        # one pixel per centimetre or inch: a placeholder
        why = "is 1"
    else:
        return VoxelSize(y=millimetres / per_y, x=millimetres / per_x, unit="mm")
    return VoxelSize(notes=[f"The voxel size is unknown, because the resolution {why}."])


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
