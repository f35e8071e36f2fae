"""Cropped and binned copies of a layer, with the masks and points that lie on it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Image, Labels, Layer, Points

from hushpore.base.errors import InputError
from hushpore.io.loading import into_memory
from hushpore.io.parts import binned, cropped
from hushpore.runs.sample_crop import CYLINDER, SAMPLE, cropped_to_cylinder
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    OF_FILE,
    READ,
    VOXEL_SIZE,
    Lineage,
    appearance_of,
    identity,
    known_of,
    layer_data,
    placement_of,
    scan_of,
    set_lineage,
    volume_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.runs.sample_crop import Cylinder
    from hushpore.viewer.layers.conversion import Placement

#: Note on the crop of a layer that a job has made.
_OF_RESULT = (
    "This is a crop of a job's result, so rerun cannot make it from the file. To be able to rerun, "
    "crop the scan first and run the job on the crop."
)

#: Note on a cylinder that no single recipe reads from the file.
_IN_TWO_STEPS = (
    "The part was cropped in two steps, one to a cylinder or the sample, so rerun cannot read it "
    "from the file. To be able to rerun, save the part as a file, and run the job on that."
)


@dataclass(frozen=True)
class Part:
    """A box of a layer, and the block length of means over it."""

    box: tuple[tuple[int, int], ...]  # first voxel and end along z, y, x (in 2D y, x)
    factors: tuple[int, ...]  # block length along the same axes
    cylinder: Cylinder | None = None  # in the box, if only that is kept

    @property
    def recipe(self) -> str:
        """The part as `hushpore.runs.sample_crop.crop_to` takes it."""
        return self.crop if self.cylinder is None else CYLINDER

    @property
    def crop(self) -> str:
        """The box as `hushpore.io.parts.cropped` takes it."""
        return ",".join(f"{start}:{end}" for start, end in self.box)

    @property
    def bin(self) -> str:
        """The block length as `hushpore.io.parts.binned` takes it; empty for single voxels."""
        return ",".join(map(str, self.factors)) if max(self.factors) > 1 else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the copy along the spatial axes."""
        pairs = zip(self.box, self.factors, strict=True)
        return tuple((end - start) // factor for (start, end), factor in pairs)


def can_crop(layer: Any) -> bool:
    """Whether a layer is a greyscale image."""
    try:
        return isinstance(layer, Image) and bool(volume_of(layer))
    except InputError:
        return False


def is_scan(layer: Any) -> bool:
    """Whether a layer is a scan, denoised or not, and no image that was measured in one."""
    record = known_of(layer).get("provenance") or {}
    return record.get("job") in (None, "denoise")


def crop_job(viewer: Any, layer: Any, part: Part) -> Job:
    """Return a job that makes the copies of an image and of the masks and points on it.

    `part`: the box, in voxels of the layer, and the block length.
    Returns: the layers, the image last.
    Raises InputError if the layer was binned before and is to be binned again.
    """
    labels = tuple(viewer.dims.axis_labels[-layer.ndim :])
    volume, placement = volume_of(layer, labels), placement_of(layer)
    masks = [other for other in viewer.layers if _is_mask_on(other, layer)]
    volumes = [(_labels_of(mask, labels), _cropped_name(mask, part), "labels") for mask in masks]
    points = [
        made for other in viewer.layers if (made := _points_in(other, layer, part)) is not None
    ]
    source = _source_of(layer, volume, part)
    if not source:
        notes = [_OF_RESULT] if known_of(layer).get("provenance") else []
        if _is_in_two_steps(known_of(layer).get(READ) or {}, part):
            notes = [_IN_TWO_STEPS]
        volume = dataclasses.replace(volume, source="", notes=[*volume.notes, *notes])
    volumes.append((volume, _cropped_name(layer, part), "image"))
    shared: dict[str, Any] = {READ: source}
    if known_of(layer).get(VOXEL_SIZE):
        shared[VOXEL_SIZE] = known_of(layer)[VOXEL_SIZE]
        spacing, unit = known_of(layer)[OF_FILE]
        pairs = zip(spacing, part.factors, strict=True)
        shared[OF_FILE] = (tuple(step * n for step, n in pairs), unit)
    looks = appearance_of(layer)
    lineage = Lineage(scan_of(layer), identity(layer), "crop", _cropped_name(layer, part))
    return _made(volumes, points, _placed(placement, part), part, shared, looks, lineage)


def _labels_of(mask: Any, axis_labels: Sequence[str]) -> Volume:
    """Return the labels of a layer as such, so that binning does not average them."""
    volume = volume_of(mask, axis_labels)
    return volume.as_labels(volume.data, volume.name)


def _made(
    volumes: Sequence[tuple[Volume, str, str]],
    points: list[Any],
    placement: Placement,
    part: Part,
    shared: dict[str, Any],
    looks: dict[str, Any],
    lineage: Lineage,
) -> Job:
    made = []
    for volume, name, kind in volumes:
        is_image = kind == "image"
        if is_image and part.cylinder is not None:
            copy = cropped_to_cylinder(volume, part.cylinder)
        else:
            copy = cropped(volume, part.crop)
        if part.bin:
            copy = binned(copy, part.bin)
        (copy,) = yield from into_memory([copy])
        if kind == "labels" and isinstance(copy.data, np.ndarray):
            # painting on the copy must not change the mask
            copy = copy.replace(copy.data.copy())
        more = looks if is_image else {}
        data, keywords, _ = layer_data(copy, kind, placement=placement, name=name, **more)
        if is_image:
            keywords["metadata"][METADATA_KEY] |= shared
        made.append(Layer.create(data, keywords, kind))
    set_lineage(made[-1], lineage)
    return [*made[:-1], *points, made[-1]]


def add_copies(viewer: Any, made: Sequence[Any]) -> None:
    """Add the layers of a `crop_job`, and hide the other layers of the scan."""
    *others, image = made
    scan = scan_of(image)
    for layer in viewer.layers:
        if scan_of(layer) == scan:
            layer.visible = False
    for layer in (image, *others):
        viewer.add_layer(layer)
    viewer.layers.selection.active = image


def _cropped_name(layer: Any, part: Part) -> str:
    whole = tuple((0, n) for n in _shape(layer)[-len(part.box) :]) == part.box
    words = [] if whole else ["crop"]
    if part.bin:
        same = len(set(part.factors)) == 1
        words += [f"bin {part.factors[0] if same else part.bin}"]
    return " ".join([layer.name, *(words or ["copy"])])


def _shape(layer: Any) -> tuple[int, ...]:
    return tuple((layer.data[0] if layer.multiscale else layer.data).shape)


def _placed(placement: Placement, part: Part) -> Placement:
    """Return the placement of the copy: its voxels lie where they do in the layer."""
    n_leading = len(placement.scale) - len(part.box)
    pairs = list(zip(part.box, part.factors, strict=True))
    # a block of voxels lies at its centre
    first: Any = [0] * n_leading + [start + (factor - 1) / 2 for (start, _), factor in pairs]
    factors = (1,) * n_leading + part.factors
    scale = tuple(step * factor for step, factor in zip(placement.scale, factors, strict=True))
    return dataclasses.replace(placement.at(first), scale=scale)


def _is_mask_on(mask: Any, layer: Any) -> bool:
    """Whether labels that no job has made have the voxels of an image."""
    if not isinstance(mask, Labels) or known_of(mask).get("provenance"):
        return False
    if _shape(mask) != _shape(layer)[-mask.ndim :] or mask.ndim < min(layer.ndim, 3):
        return False
    pairs = ((mask.scale, layer.scale), (mask.translate, layer.translate))
    return all(np.allclose(of_mask, of_layer[-mask.ndim :]) for of_mask, of_layer in pairs)


def _points_in(points: Any, layer: Any, part: Part) -> Any:
    """Return the points of a layer in a box of an image, or None if there are none."""
    if not isinstance(points, Points) or points.ndim != layer.ndim or not len(points.data):
        return None
    places = np.array([layer.world_to_data(points.data_to_world(at)) for at in points.data])
    low, high = np.array(part.box, float).T - 0.5
    kept = ((places[:, -len(part.box) :] >= low) & (places[:, -len(part.box) :] < high)).all(1)
    if not kept.any():
        return None
    return Points(
        points.data[kept], name=f"{points.name} crop", features=points.features[kept],
        size=points.size[kept], face_color=points.face_color[kept], symbol=points.symbol[kept],
        **placement_of(points).kwargs(),
    )  # fmt: skip


def _is_in_two_steps(source: dict[str, Any], part: Part) -> bool:
    """Whether the box of the part in the file depends on the values of an earlier part."""
    before = str(source.get("crop", "")).strip().lower()
    if part.cylinder is not None:
        return bool(before or source.get("bin"))
    is_whole = all(start == 0 for start, _ in part.box) and not part.bin
    return before in (SAMPLE, CYLINDER) and not is_whole


def _source_of(layer: Any, volume: Volume, part: Part) -> dict[str, Any]:
    """Return how the copy is read from the file of a layer; empty if unknown.

    Raises InputError if the layer was binned before and is to be binned again.
    """
    source = dict(known_of(layer).get(READ) or {})
    # rerun would fit the field to the crop
    if not source or source.get("flatten") or known_of(layer).get("provenance"):
        return {}
    if _is_in_two_steps(source, part):
        return {}
    n_spatial = len(part.box)
    if tuple(source.get("scan_shape", ()))[-n_spatial:] != volume.shape[-n_spatial:]:
        return {}
    box, factors = part.box, part.factors
    if source.get("bin"):
        if part.bin:
            raise InputError(
                f"{layer.name} is binned already. Choose the unbinned scan, and bin it more."
            )
        numbers = [int(number) for number in str(source["bin"]).split(",")]
        factors = tuple(numbers * n_spatial if len(numbers) == 1 else numbers)
        pairs = zip(box, factors, strict=True)
        box = tuple((start * factor, end * factor) for (start, end), factor in pairs)
    if source.get("crop"):
        starts = [int(ends.partition(":")[0] or 0) for ends in str(source["crop"]).split(",")]
        pairs = zip(box, starts, strict=True)
        box = tuple((start + first, end + first) for (start, end), first in pairs)
    leading = tuple(source["scan_shape"])[:-n_spatial]
    crop = Part(box, factors, part.cylinder).recipe
    source |= {"crop": crop, "scan_shape": (*leading, *part.shape)}
    if part.bin:
        source["bin"] = part.bin
    return source
