"""The voxel size of a scan and of all layers made from it, given by the user or by another plugin.

The scale of a layer is its voxel size; records, tables and measured lengths follow it.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from napari.layers import Labels
from qtpy.QtCore import QTimer

from hushpore.base.formatting import readable_unit
from hushpore.io.parts import with_rescaled_positions
from hushpore.pores.tables.totals import is_proportional
from hushpore.runs.scan_recipe import GIVEN, with_voxel_size
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    OF_FILE,
    VOXEL_SIZE,
    known_of,
    layer_with,
    pint_name,
    scan_of,
    unwrapped,
    volume_of,
)
from hushpore.viewer.layers.visibility import fit_view, go_to_slice, show_scale_bar, slice_of
from hushpore.viewer.results.pore_layer import LENGTHS, result_of, tables_of, update_pore_layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.arrays import Float64s
    from hushpore.base.volume import Volume
    from hushpore.viewer.running.task import Target


def set_voxel_size(viewer: Any, layer: Any, text: str) -> list[str]:
    """Set the voxel size of a scan and of all layers made from it.

    `text`: as for `hushpore.runs.scan_recipe.with_voxel_size`.
    Returns: names of layers with measurements that are out of date with the new voxel shape.
    Raises InputError if the text is invalid or does not fit the volume.
    """
    volume = volume_of(layer, tuple(viewer.dims.axis_labels[-layer.ndim :]))
    spacing, unit = known_of(layer).get(OF_FILE, (volume.spacing, volume.unit))
    of_file = dataclasses.replace(volume, spacing=spacing, unit=unit, notes=[])
    given = with_voxel_size(of_file, text)
    n_spatial, ratio = volume.n_spatial, np.array(given.spacing) / volume.spacing
    place = slice_of(viewer, layer)
    layers = [each for each in viewer.layers if scan_of(each) == scan_of(layer)]
    outdated, note = [], " ".join(reversed(given.notes))
    for each in layers:
        if not _is_in_space(each, n_spatial):
            continue
        scale = each.scale[-n_spatial:] * ratio
        translate = (each.translate[-n_spatial:] - volume.origin) * ratio
        units = (pint_name(given.unit),) * n_spatial
        if not _rescale(each, scale, translate, units, note, text.strip()):
            outdated.append(each.name)
    # the world coordinates have changed
    go_to_slice(viewer, layer, place)
    fit_view(viewer, [each for each in layers if each.visible] or [layer])
    show_scale_bar(viewer)
    return outdated


def _is_in_space(layer: Any, n_spatial: int) -> bool:
    """Whether a layer has the axes of the scan; a sheet of patches has not."""
    return layer.ndim >= n_spatial and known_of(layer).get("sheet") is None


def _rescale(
    layer: Any,
    scale: Float64s,
    translate: Float64s,
    units: Sequence[Any],
    note: str = "",
    text: str = "",
) -> bool:
    """Set the scale of the spatial axes; return whether the measurements, if any, fit.

    `note`, `text`: as for `follow_scale`.
    """
    before, n_spatial = volume_of(layer), len(scale)
    if note:
        # first, because the facts about a layer are shown anew when its scale changes
        known = {**known_of(layer), "notes": _notes_with(note, layer)}
        layer.metadata = {**layer.metadata, METADATA_KEY: known}
    layer.units = (*layer.units[:-n_spatial], *units)
    layer.scale = (*layer.scale[:-n_spatial], *scale)
    layer.translate = (*layer.translate[:-n_spatial], *translate)
    return follow_scale(layer, before, note, text)


def follow_scale(layer: Any, before: Volume | None = None, note: str = "", text: str = "") -> bool:
    """Update record and measurements of a layer to its scale.

    `before`: volume of the layer with its previous scale; by default that of the record. `note`:
    for records; by default one on a change in napari. `text`: the voxel size as the user gave it.
    Returns: whether the measurements, if any, fit the scale. Another voxel shape needs a new
    segmentation.
    """
    now, known, record = volume_of(layer), known_of(layer), known_of(layer).get("provenance")
    tables, result, measured = tables_of(layer), result_of(layer), before
    made_of = (record or {}).get("input") or {}
    if tables is not None and len(made_of.get("spacing", ())) == now.n_spatial:
        unit = made_of.get("unit", now.unit)
        measured = dataclasses.replace(before or now, spacing=tuple(made_of["spacing"]), unit=unit)
    if measured is None or (not note and _is_as_large(measured, now)):
        return True
    owner = known.get("phases") if result is None else result
    if owner is not None:
        # positions in the tables begin at its origin
        measured = owner.volume
    # tables that were read without the basins of the pores cannot be made again
    can_resize = tables is None or result is not None
    fits = can_resize and is_proportional(measured.spacing, now.spacing)
    has_numbers = tables is not None or "phases" in known or known.get(LENGTHS)
    sizes = " x ".join(f"{step:g}" for step in now.spacing)
    note = note or f"Voxel size {GIVEN} in napari: {sizes} {readable_unit(now.unit)}."
    known = {
        OF_FILE: (measured.spacing, measured.unit),
        **known,
        VOXEL_SIZE: text,
        "notes": _notes_with(note, layer),
    }
    if before is not None:
        ratio = now.spacing[0] / before.spacing[0]
        known["metadata"] = with_rescaled_positions(known.get("metadata", {}), ratio)
    if fits and record:
        size = {"spacing": list(now.spacing), "unit": now.unit}
        notes = [*record.get("notes", []), note]
        known["provenance"] = {**record, "input": {**made_of, **size}, "notes": notes}
    layer.metadata = {**layer.metadata, METADATA_KEY: known}
    if fits and has_numbers:
        _resize_measurements(layer, measured, now, note)
    return bool(fits or not has_numbers)


def _notes_with(note: str, layer: Any) -> list[str]:
    """Return the notes of a layer with another one on the voxel size, which answers others."""
    before = known_of(layer).get("notes", [])
    return [*(each for each in before if GIVEN not in each and "--voxel-size" not in each), note]


def _is_as_large(volume: Volume, other: Volume) -> bool:
    return volume.unit == other.unit and np.allclose(volume.spacing, other.spacing, rtol=1e-9)


def _resize_measurements(layer: Any, before: Volume, now: Volume, note: str) -> None:
    """Convert the measurements of a layer to another voxel size of the same shape."""
    # imported late, because a window without results does not need the tables of pores
    from hushpore.pores.tables.measures import PORES, resized_table

    ratio = np.array(now.spacing) / before.spacing
    known, result = known_of(layer), result_of(layer)
    if result is not None:
        update_pore_layer(layer, result.resized(now.spacing, now.unit, note))
    elif "phases" in known:
        phases = known["phases"].resized(now.spacing, now.unit, note)
        known = {**known, "phases": phases, "provenance": phases.provenance}
        layer.metadata = {**layer.metadata, METADATA_KEY: known}
    elif isinstance(layer, Labels):
        layer.features = resized_table(layer.features, PORES, before.origin, ratio)
    else:
        low, high = layer.contrast_limits
        layer.data = layer.data * np.float32(ratio[0])
        layer.contrast_limits_range = layer.contrast_limits = low * ratio[0], high * ratio[0]


# ---- layers that follow others


def link_scales(viewer: Any, made: list[Any], target: Target) -> None:
    """Let the layers made from a target follow the scales of its layer and of its scan.

    For example one set by `layer.scale = ...` or napari-metadata, which change the scan alone. A
    scale that was changed while the job ran is followed at once.
    """
    n_spatial = len(target.volume.spacing)
    for name in dict.fromkeys((target.layer, target.scan)):
        source = layer_with(viewer, name)
        if source is None:
            continue
        scale = np.array(source.scale[-n_spatial:])
        origin = np.array(source.translate[-n_spatial:])
        known = known_of(source)
        note = next((note for note in known.get("notes", []) if GIVEN in note), "")
        if name == target.layer:
            # those at the start of the job
            now = volume_of(source, target.volume.axes)
            scale = np.array(target.volume.spacing) * (scale / now.spacing)
            origin = np.array(target.volume.origin)
        for layer in made:
            if _is_in_space(layer, n_spatial):
                step = np.array(layer.scale[-n_spatial:])
                offset = (layer.translate[-n_spatial:] - origin) / step
                # weak: the scan must not keep a removed result in memory
                ends = ref(unwrapped(source)), ref(unwrapped(layer))
                follow = partial(_follow, *ends, step / scale, offset)
                follow(note, known.get(VOXEL_SIZE, ""))
                _call_after_rescaling(source, follow)


def _call_after_rescaling(layer: Any, act: partial[None]) -> None:
    """Call a function in the turn after a change of scale or units, which may follow each other."""

    def schedule(event: Any = None) -> None:
        QTimer.singleShot(0, act)

    for event in (layer.events.scale, layer.events.units):
        event.connect(schedule)


def _follow(
    source: ref[Any],
    layer: ref[Any],
    ratio: Float64s,
    offset: Float64s,
    note: str = "",
    text: str = "",
) -> None:
    """Keep the scale of a layer at a ratio to that of its source, and its first voxel in place."""
    scan, made, n_spatial = source(), layer(), len(ratio)
    if scan is None or made is None:
        return
    scale, units = ratio * scan.scale[-n_spatial:], tuple(scan.units[-n_spatial:])
    is_equal = np.allclose(made.scale[-n_spatial:], scale, rtol=1e-9, atol=0)
    if not is_equal or tuple(made.units[-n_spatial:]) != units:
        _rescale(made, scale, scan.translate[-n_spatial:] + offset * scale, units, note, text)
