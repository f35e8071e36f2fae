"""The voxel size given by the user: applied to a scan and to all layers made from it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Labels

from hushpore.base.formatting import readable_unit
from hushpore.io.resample import with_rescaled_positions
from hushpore.pores.tables.measures import PORES, THROATS
from hushpore.pores.tables.resizing import (
    is_proportional,
    resized_curve,
    resized_distribution,
    resized_table,
    resized_totals,
)
from hushpore.runs.scan_recipe import GIVEN, with_voxel_size
from hushpore.viewer.layers.conversion import METADATA_KEY, known_of, pint_name, volume_of
from hushpore.viewer.layers.lineage import OF_FILE, VOXEL_SIZE, layer_with, scan_of
from hushpore.viewer.layers.visibility import go_to_slice, show_scale_bar, slice_of
from hushpore.viewer.results.pore_layer import (
    LENGTHS,
    REV,
    THICKNESS,
    features_of,
    result_of,
    tables_of,
    update_pore_layer,
)
from hushpore.viewer.results.pore_layer import THROATS as THROATS_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Float64s
    from hushpore.base.volume import Volume
    from hushpore.pores.phases.result import Phases
    from hushpore.viewer.results.pore_layer import PoreTables
    from hushpore.viewer.running.task import Target


@dataclasses.dataclass(frozen=True)
class NewSize:
    """A voxel size given by the user."""

    text: str  # as given: ``"15.4µm"``
    spacing: tuple[float, ...]  # z, y, x; in 2D y, x
    unit: str
    note: str  # for records


def parse_voxel_size(volume: Volume, text: str) -> NewSize:
    """Return the voxel size of a volume from a text.

    Raises InputError as `hushpore.runs.scan_recipe.with_voxel_size` does.
    """
    bare = dataclasses.replace(volume, notes=[])
    found = with_voxel_size(bare, text)
    return NewSize(text.strip(), found.spacing, found.unit, found.notes[-1])


def set_voxel_size(viewer: Any, layer: Any, text: str) -> list[str]:
    """Set the voxel size of a scan and of all layers made from it.

    `text`: as for `hushpore.runs.scan_recipe.with_voxel_size`.
    Returns: names of layers with measurements that are out of date with the new voxel shape.
    Raises InputError if the text is invalid or does not fit the volume.
    """
    volume = volume_of(layer, tuple(viewer.dims.axis_labels[-layer.ndim :]))
    spacing, unit = known_of(layer).get(OF_FILE, (volume.spacing, volume.unit))
    size = parse_voxel_size(dataclasses.replace(volume, spacing=spacing, unit=unit), text)
    place = slice_of(viewer, layer)
    others = [each for each in viewer.layers if scan_of(each) == scan_of(layer)]
    left = [each.name for each in others if not resize_layer(each, volume, size)]
    # the world coordinates have changed
    go_to_slice(viewer, layer, place)
    viewer.reset_view(layers=[each for each in others if each.visible] or [layer])
    show_scale_bar(viewer)
    return left


def resize_layer(layer: Any, volume: Volume, size: NewSize) -> bool:
    """Set the voxel size of a layer; return whether its measurements, if any, were updated.

    `volume`: volume of the scan, with the previous voxel size and position.
    """
    n_spatial = len(volume.spacing)
    if layer.ndim < n_spatial or known_of(layer).get("sheet") is not None:
        return True
    ratio = np.array(size.spacing) / volume.spacing
    scale, translate = np.array(layer.scale, float), np.array(layer.translate, float)
    scale[-n_spatial:] *= ratio
    translate[-n_spatial:] = (translate[-n_spatial:] - volume.origin) * ratio
    _record_size(layer, volume, size)
    layer.units = (*layer.units[:-n_spatial], *[pint_name(size.unit)] * n_spatial)
    layer.scale, layer.translate = scale, translate
    return _resize_measurements(layer, volume, size)


def follow_scale(layer: Any) -> bool:
    """Update the measurements of a pore layer whose scale or unit was changed outside hushpore.

    For example by `layer.scale = ...` or napari-metadata.
    Returns: whether the tables have the voxel size of the layer. Another voxel shape needs a new
    segmentation.
    """
    tables, result = tables_of(layer), result_of(layer)
    made_of = (known_of(layer).get("provenance") or {}).get("input") or {}
    now = volume_of(layer)
    if tables is None or len(made_of.get("spacing", ())) != now.n_spatial:
        return True
    spacing, unit = tuple(made_of["spacing"]), made_of.get("unit", now.unit)
    if np.allclose(spacing, now.spacing, rtol=1e-9) and unit == now.unit:
        return True
    # the positions in the tables begin at the origin of the volume that was measured
    volume = dataclasses.replace(now, spacing=spacing, unit=unit)
    if result is not None:
        volume = result.volume
    size = _size_in_napari(now)
    if not is_proportional(spacing, size.spacing):
        return False
    _record_size(layer, volume, size)
    return _resize_measurements(layer, volume, size)


def rescale_layer(layer: Any, scale: Float64s, units: tuple[Any, ...], fixed: Any) -> None:
    """Set the scale of a layer to that of its scan, and update its measurements.

    `scale`, `units`: of the spatial axes. `fixed`: the point whose world coordinates stay.
    """
    before, n_spatial = volume_of(layer), len(scale)
    whole, translate = np.array(layer.scale, float), np.array(layer.translate, float)
    translate[-n_spatial:] = fixed + (translate[-n_spatial:] - fixed) * scale / whole[-n_spatial:]
    whole[-n_spatial:] = scale
    layer.units = (*layer.units[:-n_spatial], *units)
    layer.scale, layer.translate = whole, translate
    if tables_of(layer) is not None:
        follow_scale(layer)
        return
    size = _size_in_napari(volume_of(layer))
    _record_size(layer, before, size)
    _resize_measurements(layer, before, size)


def _size_in_napari(volume: Volume) -> NewSize:
    sizes = " x ".join(f"{step:g}" for step in volume.spacing)
    note = f"Voxel size {GIVEN} in napari: {sizes} {readable_unit(volume.unit)}."
    return NewSize("", volume.spacing, volume.unit, note)


def _record_size(layer: Any, volume: Volume, size: NewSize) -> None:
    """Write a voxel size, and its note, into what is known about a layer."""
    ratio = np.array(size.spacing) / volume.spacing
    known = dict(known_of(layer))
    notes = [note for note in known.get("notes", []) if GIVEN not in note]
    known |= {VOXEL_SIZE: size.text, "notes": [*notes, size.note]}
    known["metadata"] = with_rescaled_positions(known.get("metadata", {}), float(ratio[0]))
    known.setdefault(OF_FILE, (volume.spacing, volume.unit))
    if is_proportional(volume.spacing, size.spacing) and known.get("provenance"):
        known["provenance"] = _with_size(known["provenance"], size)
    layer.metadata = {**layer.metadata, METADATA_KEY: known}


def _resize_measurements(layer: Any, volume: Volume, size: NewSize) -> bool:
    """Scale the measurements of a layer; return whether they, if any, fit the voxel size."""
    tables = tables_of(layer)
    follows = is_proportional(volume.spacing, size.spacing)
    has_numbers = tables is not None or "phases" in known_of(layer) or known_of(layer).get(LENGTHS)
    if has_numbers and follows:
        if tables is None:
            _resize_values(layer, volume, size)
        else:
            _resize_pores(layer, tables, volume, size)
    return follows or not has_numbers


def _resize_values(layer: Any, volume: Volume, size: NewSize) -> None:
    """Scale the measurements of phases or regions, or an image of lengths."""
    ratio = np.array(size.spacing) / volume.spacing
    known = known_of(layer)
    measured: Phases | None = known.get("phases")
    if measured is not None:
        measured = measured.resized(size.spacing, size.unit, size.note)
        known = {**known, "phases": measured, "provenance": measured.provenance}
        layer.metadata = {**layer.metadata, METADATA_KEY: known}
    elif isinstance(layer, Labels):
        layer.features = resized_table(layer.features, PORES, volume.origin, ratio)
    else:
        low, high = layer.contrast_limits
        layer.data = layer.data * np.float32(ratio[0])
        layer.contrast_limits_range = layer.contrast_limits = low * ratio[0], high * ratio[0]


def _resize_pores(layer: Any, tables: PoreTables, volume: Volume, size: NewSize) -> None:
    """Scale the measurements of a pore result."""
    n_spatial = volume.n_spatial
    ratio = np.array(size.spacing) / volume.spacing
    result = result_of(layer)
    if result is not None:
        update_pore_layer(layer, result.resized(size.spacing, size.unit, size.note))
        return
    # read from a folder, with tables only
    known = dict(known_of(layer))
    if tables.throats is not None:
        known[THROATS_KEY] = resized_table(tables.throats, THROATS, volume.origin, ratio)
    if tables.thickness is not None:
        known[THICKNESS] = resized_distribution(tables.thickness, float(ratio[0]), n_spatial)
    if tables.rev is not None:
        figures = {name: tables.rev[name].to_numpy() for name in tables.rev}
        curve = resized_curve(figures, float(ratio[0]), n_spatial)
        known[REV] = tables.rev.assign(**curve)
    if known.get("provenance"):
        totals = resized_totals(tables.totals, float(ratio[0]), size.unit)
        known["provenance"] = {**known["provenance"], "result": totals}
    layer.metadata = {**layer.metadata, METADATA_KEY: known}
    layer.features = features_of(resized_table(tables.pores, PORES, volume.origin, ratio))


def update_voxel_size(viewer: Any, made: Sequence[Any], target: Target) -> None:
    """Apply a voxel size that was set on the input layer during the job to its results."""
    layer = layer_with(viewer, target.layer)
    text = "" if layer is None else known_of(layer).get(VOXEL_SIZE, "")
    volume = target.volume
    if text and volume_of(layer, volume.axes).spacing != volume.spacing:
        for each in made:
            resize_layer(each, volume, parse_voxel_size(volume, text))


def _with_size(provenance: dict[str, Any], size: NewSize) -> dict[str, Any]:
    made_of = {**provenance.get("input", {}), "spacing": list(size.spacing), "unit": size.unit}
    notes = [*provenance.get("notes", []), size.note]
    return {**provenance, "input": made_of, "notes": notes}
