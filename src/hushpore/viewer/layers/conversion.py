"""Conversion between napari layers and volumes, and which layer was made from which."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pint
from napari.layers import Image, Labels
from napari.utils.colormaps import AVAILABLE_COLORMAPS
from napari.utils.transforms import Affine

from hushpore.base.errors import InputError
from hushpore.base.rescaled import held
from hushpore.base.volume import Volume

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Array, Float64s


#: A layer as napari's (data, keywords, type of layer).
LayerData = tuple[Any, dict[str, Any], str]

#: Key of hushpore's entry in the metadata of a layer.
METADATA_KEY = "hushpore"

#: Number of values from which contrast limits are computed.
CONTRAST_SAMPLE = 1_000_000

#: Number of slices that are read of a lazy image.
CONTRAST_SLICES = 12

_LETTERS = {
    "t": "t", "time": "t", "frame": "t", "frames": "t",
    "c": "c", "ch": "c", "channel": "c", "channels": "c",
    "z": "z", "plane": "z", "planes": "z", "slice": "z", "slices": "z", "depth": "z",
    "y": "y", "row": "y", "rows": "y", "height": "y",
    "x": "x", "column": "x", "columns": "x", "width": "x",
}  # fmt: skip


@dataclass(frozen=True)
class Placement:
    """The transformation of a layer to world coordinates, also used for its results."""

    # per axis of the layer
    scale: tuple[float, ...]
    translate: tuple[float, ...]
    units: tuple[str, ...]  # per axis, as Pint spells them
    axis_labels: tuple[str, ...]  # per axis
    # the rest of the transformation
    rotate: Float64s
    shear: Float64s
    affine: Float64s

    def kwargs(self) -> dict[str, Any]:
        """Return the keywords for the constructor of a layer."""
        return dict(vars(self))

    def at(self, index: Sequence[int]) -> Placement:
        """Return the placement of the part of the layer that starts at a voxel."""
        offset = self._linear @ np.asarray(index, float)
        moved = tuple(float(t + o) for t, o in zip(self.translate, offset, strict=True))
        return dataclasses.replace(self, translate=moved)

    def voxel_at(self, point: Sequence[float]) -> tuple[int, ...]:
        """Return the voxel at a point in world coordinates; it may lie outside the layer."""
        ndim = len(self.scale)
        inner = np.linalg.solve(self.affine, [*point, 1.0])[:ndim] - np.asarray(self.translate)
        return tuple(round(at) for at in np.linalg.solve(self._linear, inner))

    @property
    def _linear(self) -> Float64s:
        linear: Float64s = Affine(
            scale=self.scale, rotate=self.rotate, shear=self.shear, ndim=len(self.scale)
        ).linear_matrix
        return linear


def placement_of(layer: Any) -> Placement:
    """Return the placement of a layer."""
    return Placement(
        tuple(float(step) for step in layer.scale),
        tuple(float(step) for step in layer.translate),
        tuple(str(unit) for unit in layer.units),
        tuple(layer.axis_labels),
        np.array(layer.rotate, float),
        np.array(layer.shear, float),
        np.array(layer.affine.affine_matrix, float),
    )


def appearance_of(image: Any) -> dict[str, Any]:
    """Return contrast limits, gamma and colour map of an image, for images shown beside it."""
    found = {"contrast_limits": tuple(image.contrast_limits), "gamma": image.gamma}
    if image.colormap.name in AVAILABLE_COLORMAPS:
        found["colormap"] = image.colormap.name
    return found


def volume_of(layer: Any, axis_labels: Sequence[str] = ()) -> Volume:
    """Return the volume of a layer; the values are not copied.

    `layer`: of a multiscale layer the finest level is used. `axis_labels`: the viewer's labels of
    the axes, used if the layer has none.
    Returns: spacing from the layer's scale, in the unit of its last axis; time and channels where
    the labels say so, or where there are more than three axes.
    Raises InputError if the layer is not a greyscale image or labels.
    """
    if not isinstance(layer, Image | Labels):
        raise InputError(f"{layer.name} is not an image: choose an Image or a Labels layer.")
    if isinstance(layer, Image) and layer.rgb:
        raise InputError(
            f"{layer.name} is a colour image (RGB), but grey values are needed. Right-click the "
            "layer, choose 'Split RGB', and use one of the three layers."
        )
    data = layer.data[0] if layer.multiscale else layer.data
    axes = _axes(layer, data.ndim) or _axes(layer, data.ndim, axis_labels)
    n_spatial = 2 if axes and not axes.endswith("zyx") else min(data.ndim, 3)
    spacing, unit = _spacing(layer, n_spatial)
    known = known_of(layer)
    metadata = dict(known.get("metadata", {}))
    if isinstance(layer, Labels):
        metadata["labels"] = True
    return Volume(
        data,
        spacing=spacing,
        unit=unit,
        axes=axes,
        name=layer.name,
        source=known.get("source") or str(layer.source.path or ""),
        origin=tuple(float(t) for t in layer.translate[-n_spatial:]),
        notes=known.get("notes", []),
        metadata=metadata,
    )


def layer_data(
    volume: Volume,
    kind: str = "image",
    *,
    placement: Placement | None = None,
    provenance: dict[str, Any] | None = None,
    **more: Any,
) -> LayerData:
    """Return a volume as napari's (data, keywords, type of layer).

    `volume`: its values are not copied; a pyramid becomes a multiscale layer. `placement`: by
    default that of the volume. `provenance`: the record of the job, stored in
    ``metadata["hushpore"]["provenance"]``. ``**more``: further keywords of the layer, which take
    precedence.
    """
    known = {
        "source": volume.source,
        "notes": list(volume.notes),
        "metadata": dict(volume.metadata),
        "provenance": provenance,
    }
    keywords = _placement(volume) if placement is None else placement.kwargs()
    keywords |= {"name": volume.name, "metadata": {METADATA_KEY: known}}
    if kind == "image" and "contrast_limits" not in more:
        keywords["contrast_limits"] = contrast_limits(volume.data)
    levels = list(getattr(volume.data, "levels", ()))
    if len(levels) > 1:
        keywords["multiscale"] = True
    return levels if len(levels) > 1 else volume.data, {**keywords, **more}, kind


def contrast_limits(data: Any) -> tuple[float, float]:
    """Return the 0.1st and 99.9th percentile of an image as contrast limits.

    They are computed from every n-th value, without surrounding air and padding. Of a large lazy
    image some slices are read, and of a pyramid the coarsest level.
    """
    if np.dtype(data.dtype) == np.bool_:
        return 0.0, 1.0
    coarsest = getattr(data, "levels", (data,))[-1]
    values = _values_of_sample(coarsest)
    if values is None:
        values = _sample(coarsest)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return 0.0, 1.0
    low, high = (float(limit) for limit in np.percentile(values, (0.1, 99.9)))
    return (low, high) if low < high else (low, low + 1.0)


def _values_of_sample(data: Any) -> Array | None:
    """Return values of the sample without surrounding air; None if it cannot be separated."""
    if data.ndim not in (2, 3) or 0 in data.shape or np.dtype(data.dtype).kind not in "iuf":
        return None
    from hushpore.scan.exterior import values_of_sample

    return values_of_sample(Volume(data, axes="zyx"[-data.ndim :]), CONTRAST_SLICES)


def _sample(data: Any) -> Array:
    """Return about `CONTRAST_SAMPLE` values, spread over an image."""
    planes = math.prod(data.shape[:-2])
    if isinstance(held(data), np.ndarray) or planes <= CONTRAST_SLICES:
        step = max(1, math.ceil((math.prod(data.shape) / CONTRAST_SAMPLE) ** (1 / data.ndim)))
        return np.asarray(data[(slice(None, None, step),) * data.ndim])
    step = max(1, math.ceil(math.sqrt(math.prod(data.shape[-2:]) * CONTRAST_SLICES
                                      / CONTRAST_SAMPLE)))  # fmt: skip
    places = (np.arange(CONTRAST_SLICES) + 0.5) / CONTRAST_SLICES * planes
    indices = [np.unravel_index(int(place), data.shape[:-2]) for place in places]
    every = slice(None, None, step)
    # one slice at a time, to read only its chunks
    return np.stack([np.asarray(data[(*map(int, index), every, every)]) for index in indices])


def unwrapped(given: Any) -> Any:
    """Return the object behind the proxies that napari gives to plugins."""
    return getattr(given, "__wrapped__", given)


def known_of(layer: Any) -> dict[str, Any]:
    """Return hushpore's entry in the metadata of a layer; empty if there is none."""
    known = layer.metadata.get(METADATA_KEY)
    return known if isinstance(known, dict) else {}


def is_result(layer: Any, job: str) -> bool:
    """Whether a layer is the result of a job of this name."""
    provenance = known_of(layer).get("provenance")
    return isinstance(provenance, dict) and provenance.get("job") == job


def _placement(volume: Volume) -> dict[str, Any]:
    n_leading = volume.ndim - volume.n_spatial
    return {
        "scale": (1.0,) * n_leading + volume.spacing,
        "translate": (0.0,) * n_leading + volume.origin,
        "units": ("pixel",) * n_leading + (pint_name(volume.unit),) * volume.n_spatial,
        "axis_labels": tuple(volume.axes),
    }


def pint_name(unit: str) -> str:
    """Return the name of a unit for layers; ``"pixel"`` if it is unknown."""
    try:
        return str(pint.Unit(unit))
    except (pint.errors.PintError, ValueError, TypeError):
        return "pixel"


def units_in_world(viewer: Any, units: Sequence[Any]) -> Float64s:
    """Return the units of the axes of a layer in those in which napari shows all layers.

    napari places layers of several units in the smallest of them, but a layer converts positions
    in its own. Units without a common one count as 1.
    """
    factors = np.ones(len(units))
    world = viewer.layers.units or ()
    with contextlib.suppress(pint.errors.PintError):
        for axis in range(1, min(len(units), len(world)) + 1):
            factors[-axis] = (1 * pint.Unit(str(units[-axis]))).to(world[-axis]).magnitude
    return factors


def voxel_at(viewer: Any, layer: Any, point: npt.ArrayLike) -> Float64s:
    """Return a point of the viewer in voxels of a layer."""
    own = np.asarray(point, float)[-layer.ndim :] / units_in_world(viewer, layer.units)
    return np.asarray(layer.world_to_data(own), float)


def point_at(viewer: Any, layer: Any, place: npt.ArrayLike) -> Float64s:
    """Return the point of the viewer at a place in voxels of a layer."""
    return np.asarray(layer.data_to_world(place)) * units_in_world(viewer, layer.units)


def is_length(unit: Any) -> bool:
    """Whether the unit of a layer is a length."""
    return str(unit) not in ("pixel", "dimensionless")


def _axes(layer: Any, ndim: int, labels: Sequence[str] | None = None) -> str:
    """Return the letters of the axes; empty if the labels do not name all of them."""
    given = layer.axis_labels if labels is None else labels
    if len(given) != ndim:
        return ""
    letters = [_LETTERS.get(label.strip().lower(), "") for label in given]
    if not all(letters) or len(set(letters)) < ndim:
        return ""
    axes = "".join(letters)
    leading = axes.removesuffix("yx").removesuffix("z")
    if not axes.endswith("yx") or not set(leading) <= set("tc"):
        raise InputError(
            f"The axes of {layer.name} are {' '.join(given)}; time and channels must come before "
            "z, y and x. Right-click the layer and choose 'Split Stack', or reorder its axes."
        )
    return axes


def _spacing(layer: Any, n_spatial: int) -> tuple[tuple[float, ...], str]:
    scale = np.abs(np.asarray(layer.scale, float)[-n_spatial:])
    units, name = layer.units[-n_spatial:], "pixel"
    with contextlib.suppress(pint.errors.DimensionalityError):
        factors = [float((1 * unit).to(units[-1]).magnitude) for unit in units]
        if is_length(units[-1]):
            scale, name = scale * factors, f"{units[-1]:~}".replace("µ", "u")
    return tuple(float(step) for step in scale), name


#: Key of the `Lineage` in hushpore's metadata of a layer.
LINEAGE = "lineage"

#: Key of the records of the jobs before the one that made a layer, in order.
UPSTREAM = "upstream"

#: Keys that a layer shares with all layers made from it: the voxel size given by the user, as
#: `hushpore.runs.scan_recipe.ScanRecipe` takes it; spacing and unit of the file; how the scan was
#: read, as `ScanRecipe.of` takes it, with its shape (``scan_shape``).
VOXEL_SIZE, OF_FILE, READ = INHERITED = ("voxel_size", "voxel_size_of_file", "read")

#: Key for labels edited by hand.
_PAINTED = "painted"

#: Between the name of a scan and what a layer made from it shows.
_DOT = " · "

#: Marks in the names of a replaced result and of the preview of a cancelled run.
PREVIOUS, CANCELLED = f"{_DOT}previous ", " (cancelled)"

#: Before the input of a result where there is a newer one from another layer.
_OF = " of "

#: Ending of the name of a preview.
PREVIEW = " (preview)"


@dataclass(frozen=True)
class Lineage:
    """The scan, layer and job from which a layer was made."""

    scan: str  # see `scan_of`
    layer: str  # `identity` of the input layer
    job: str  # key of `hushpore.jobs.JOBS`
    name: str  # given by hushpore; another name means that the user has renamed the layer
    helps: bool = False  # whether it is an addition to the first layer of a result


def identity(layer: Any) -> str:
    """Return an id of the layer that survives renaming."""
    return str(unwrapped(layer).unique_id)


def lineage_of(layer: Any) -> Lineage | None:
    """Return the lineage of a layer, or None if no job of this window made it."""
    found = known_of(layer).get(LINEAGE)
    return found if isinstance(found, Lineage) else None


def scan_of(layer: Any) -> str:
    """Return the id of the scan of a layer, which all layers made from it share."""
    lineage = lineage_of(layer)
    return identity(layer) if lineage is None else lineage.scan


def name_of(input_name: str, shows: str) -> str:
    """Return the name of a layer by its scan and what it shows.

    napari cuts names in the middle, so they differ at their ends.

    >>> name_of("bread · denoised", "pores")
    'bread · pores'
    """
    return f"{input_name.partition(_DOT)[0]}{_DOT}{shows}"


def mark_as_made(layer: Any, target: Any, helps: bool = False) -> None:
    """Set the lineage of a layer that was made from a target; call it after naming the layer."""
    set_lineage(layer, Lineage(target.scan, target.layer, target.job, layer.name, helps))


def set_lineage(layer: Any, lineage: Lineage) -> None:
    """Set the lineage of a layer."""
    known = {**known_of(layer), LINEAGE: lineage}
    layer.metadata = {**layer.metadata, METADATA_KEY: known}


def watch_painting(layer: Any) -> None:
    """Mark labels when the user edits them: such layers are never removed.

    From the first brush on the layer has its own copy of the labels, so that its result stays.
    """
    if hasattr(layer.events, "paint"):
        layer.events.mode.connect(_own_labels)
        # before the callbacks that ask for the mark
        layer.events.paint.connect(_remember_painting, position="first")


def is_painted(layer: Any) -> bool:
    """Whether the user has edited labels, so that their tables are out of date."""
    return bool(known_of(layer).get(_PAINTED))


def unpainted(layer: Any) -> dict[str, Any]:
    """Return hushpore's metadata of a layer without the mark of editing."""
    return {name: value for name, value in known_of(layer).items() if name != _PAINTED}


def _own_labels(event: Any) -> None:
    layer, result = event.source, known_of(event.source).get("pores")
    is_editing = str(layer.mode) not in ("pan_zoom", "pick", "transform")
    if is_editing and result is not None and np.shares_memory(layer.data, result.labels):
        layer.data = np.array(layer.data)


def _remember_painting(event: Any) -> None:
    known_of(event.source)[_PAINTED] = True


def hide_previous_results(viewer: Any, target: Any) -> None:
    """Hide the result of the previous run of a job on a layer, for comparison with the new one.

    The additions to it, results of the run before that and previews of cancelled runs are removed.
    Layers that the user has edited or renamed are hidden, but never removed. Results of the job
    from another layer of the scan get its name, and labels among them are hidden, because they
    would lie under the new ones. Images and results of other scans move below those of this scan.
    """
    lowest, above = -1, list[int]()
    for number, layer in enumerate(viewer.layers):
        lineage = lineage_of(layer)
        if scan_of(layer) == target.scan:
            lowest = number if lowest < 0 else lowest
        # points and shapes of the user stay on top
        elif lowest >= 0 and (isinstance(layer, Image) or lineage is not None):
            above.append(number)
        if lineage is None or (lineage.scan, lineage.job) != (target.scan, target.job):
            continue
        if lineage.layer == target.layer:
            continue
        if hasattr(layer, "selected_label"):
            layer.visible = False
        source = layer_with(viewer, lineage.layer)
        if source is not None and layer.name == lineage.name and _OF not in layer.name:
            layer.name += _OF + (source.name.partition(_DOT)[2] or "scan")
            set_lineage(layer, dataclasses.replace(lineage, name=layer.name))
    if above:
        viewer.layers.move_multiple(above, lowest)
    for layer, is_the_users in _made_of(viewer, target):
        layer.visible = False
        lineage = lineage_of(layer)
        if lineage is None or is_the_users:
            continue
        if lineage.helps or PREVIOUS in layer.name or CANCELLED in layer.name:
            viewer.layers.remove(layer)
        else:
            layer.name = layer.name.replace(_DOT, PREVIOUS, 1)
            mark_as_made(layer, target)


def remove_leftovers(viewer: Any, target: Any) -> None:
    """Remove previews of cancelled runs of a job on a layer."""
    for layer, is_the_users in _made_of(viewer, target):
        if CANCELLED in layer.name and not is_the_users:
            viewer.layers.remove(layer)


def _made_of(viewer: Any, target: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the results of a job on a layer, and whether the user has changed them.

    Previews are left out.
    """
    for layer in list(viewer.layers):
        lineage = lineage_of(layer)
        if lineage is None or (lineage.layer, lineage.job) != (target.layer, target.job):
            continue
        if not lineage.name.endswith(PREVIEW):
            record = known_of(layer).get("provenance") or {}
            is_edited = is_painted(layer) or bool(record.get("corrections"))
            yield layer, layer.name != lineage.name or is_edited


def layers_of_other_scans(viewer: Any, scan: str) -> list[Any]:
    """Return the layers of scans from which jobs of this window made layers, except for one scan.

    Layers that the user has edited or added by hand are left out.
    """
    made = {lineage.scan for lineage in map(lineage_of, viewer.layers) if lineage is not None}
    return [
        layer
        for layer in viewer.layers
        if scan_of(layer) in made - {scan} and not is_painted(layer)
    ]


def layer_with(viewer: Any, wanted: str) -> Any:
    """Return the layer with this `identity`, or None if it was removed."""
    return next((layer for layer in viewer.layers if identity(layer) == wanted), None)
