"""The layer of a pore result: labels with their tables and totals.

The table of pores is in the features of the layer, from which napari shows the pore under the
pointer; everything else is in its metadata. So new layers, merged layers and layers read from
a result folder are all shown in the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.layers import Labels
from napari.utils.colormaps import AVAILABLE_COLORMAPS, Colormap

from hushpore.base.formatting import (
    percent_digits,
    readable_count,
    readable_number,
    readable_percent,
    readable_unit,
)
from hushpore.pores.tables.totals import intervals_in_words
from hushpore.viewer.forms.choices import is_preview
from hushpore.viewer.layers.conversion import (
    METADATA_KEY,
    is_painted,
    known_of,
    layer_data,
    name_of,
    unpainted,
    volume_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from hushpore.base.arrays import Float64s, Int32s, Mask
    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.pores.transport.result import Transport
    from hushpore.viewer.layers.conversion import LayerData, Placement

#: Keys of the metadata: table of throats, porosity of each slice.
THROATS, PROFILE = "throats", "porosity_profile"

#: Key of the distribution of the local thickness.
THICKNESS = "thickness"

#: Key of the REV curve.
REV = "rev"

#: Key of the mean concentrations and pressures along each axis.
ALONG = "transport_profile"

#: Key for layers whose values (of images) or features (of labels) are lengths in the layer's unit.
LENGTHS = "lengths"

#: Key for maps of transport, whose values have no unit.
TRANSPORT = "transport"

#: Key of the result itself, which can be merged again; missing in layers read from some folders.
RESULT = "pores"


@dataclass(frozen=True, eq=False)
class PoreTables:
    """The numbers of a pore result."""

    pores: pd.DataFrame  # one row per pore; the first column is ``label``
    # one row per throat, with the columns ``pore_1`` and ``pore_2``
    throats: pd.DataFrame | None
    # the totals of the record, such as ``porosity``; empty without a record
    totals: dict[str, Any]
    # porosity of each slice (row, in 2D), 0 to 1; NaN outside the sample
    profile: Float64s | None
    unit: str  # of lengths in the tables
    n_spatial: int  # 2 or 3
    # see `Pores.thickness_distribution`; None: not measured
    thickness: pd.DataFrame | None = None
    # see `Pores.curve`; None: not measured
    rev: pd.DataFrame | None = None
    # see `Transport.profile`; None: not solved
    along: pd.DataFrame | None = None

    def unit_of(self, column: str) -> str:
        """Return the unit of a column of the table of pores, for display."""
        # imported late, because it loads the pore engine
        from hushpore.pores.tables.measures import measure_of

        return measure_of(column).unit(self.unit, self.n_spatial)

    def titled(self, column: str) -> str:
        """Return the title of a column of the table of pores with its unit, for an axis."""
        from hushpore.pores.tables.measures import measure_of

        return measure_of(column).titled(self.unit, self.n_spatial)


#: Colours of the paths along each axis.
_PATH_COLOURS = {"z": "#e69f00", "y": "#56b4e9", "x": "#009e73"}


def features_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of pores as features of labels, with the column ``index`` for napari."""
    features = table.copy()
    features.insert(0, "index", table["label"])
    return features.drop(columns="label")


def pore_layer(result: Pores, name: str, placement: Placement | None = None) -> LayerData:
    """Return a pore result as napari's (data, keywords, type of layer)."""
    data, keywords, kind = layer_data(
        result.labels_volume,
        "labels",
        placement=placement,
        provenance=result.provenance,
        name=name,
        features=features_of(result.pores_of_form),
    )
    keywords["metadata"][METADATA_KEY].update(_tables_metadata(result))
    return data, keywords, kind


def thickness_layers(result: Pores, placement: Placement | None = None) -> list[LayerData]:
    """Return the local thickness of each phase as an image, transparent elsewhere.

    The layers are above the labels and hidden at first.
    """
    from hushpore.pores.result import thickness_title

    return [
        thickness_layer(
            result.thickness_volume(phase),
            float(found.edges[-1]),
            result.provenance,
            name=name_of(result.volume.name, thickness_title(phase)),
            placement=placement,
            visible=False,
        )
        for phase, found in result.thickness.items()
    ]


def path_layers(result: Pores, placement: Placement | None = None) -> list[LayerData]:
    """Return the paths of the largest balls that pass from face to face, as a layer of lines.

    The layer is hidden at first; without the forms of flow there is none. Its lines are vectors:
    VisPy crashes without a graphics card when shapes are removed.
    """
    table = result.breakthrough_paths
    if table.empty:
        return []
    names = [f"position_{axis}" for axis in "zyx"[-result.volume.n_spatial :]]
    spacing, origin = np.asarray(result.volume.spacing), np.asarray(result.volume.origin)
    places = (table[names].to_numpy() - origin) / spacing
    ahead = np.diff(places, axis=0)
    # the last place on each path begins no line
    begins = (table["axis"].to_numpy()[1:] == table["axis"].to_numpy()[:-1]).nonzero()[0]
    of_lines = table.iloc[begins]
    _, keywords, _ = layer_data(
        result.labels_volume,
        "labels",
        placement=placement,
        name=name_of(result.volume.name, "breakthrough paths"),
        vector_style="line",
        # a quarter as wide as the ball that passes, so that the pores stay visible
        edge_width=max(1.0, float(table["diameter"].min() / spacing.min()) / 4),
        edge_color=[_PATH_COLOURS[axis] for axis in of_lines["axis"]],
        features={name: of_lines[name].tolist() for name in ("axis", "diameter")},
        visible=False,
    )
    return [(np.stack([places[begins], ahead[begins]], axis=1), keywords, "vectors")]


def map_layers(
    transport: Transport | None, provenance: dict[str, Any], placement: Placement | None = None
) -> list[LayerData]:
    """Return the maps of transport as images; hidden at first."""
    from hushpore.pores.transport.result import map_title

    volumes = {} if transport is None else transport.map_volumes
    words: dict[str, Any] = {"placement": placement, "visible": False}
    return [
        map_layer(volume, provenance, name=name_of(volume.name, map_title(name)), **words)
        for name, volume in volumes.items()
    ]


def map_layer(volume: Volume, provenance: dict[str, Any], **more: Any) -> LayerData:
    """Return a map of transport as an image, transparent where nothing flows.

    One value in 200 of the others is brighter than the scale; parameters as for `thickness_layer`.
    """
    values = volume.array()
    flowing = values[values > 0]
    largest = float(np.quantile(flowing, 0.995)) if flowing.size else 1.0
    layer = thickness_layer(volume, largest, provenance, colours="inferno", **more)
    known = layer[1]["metadata"][METADATA_KEY]
    known[TRANSPORT] = known.pop(LENGTHS)
    return layer


def thickness_layer(
    volume: Volume,
    largest: float,
    provenance: dict[str, Any],
    colours: str = "viridis",
    **more: Any,
) -> LayerData:
    """Return a local thickness as an image, transparent outside the phase.

    `largest`: its maximum, in the unit of the volume. `provenance`: the record of the job.
    `colours`: name of napari's colour map.
    ``**more``: as for `layer_data`.
    """
    scale = AVAILABLE_COLORMAPS[colours].colors
    opaque = Colormap(scale, name=f"{colours} above 0", low_color=(0, 0, 0, 0))
    limits = (1e-6 * (largest or 1.0), largest or 1.0)
    data, keywords, kind = layer_data(
        volume, provenance=provenance, colormap=opaque, contrast_limits=limits, **more
    )
    keywords["metadata"][METADATA_KEY][LENGTHS] = True
    return data, keywords, kind


def with_tables(result: Pores) -> Pores:
    """Return a result after computing all tables that its layer needs.

    Call it in a worker's thread, because the porosity of each slice needs a pass over all labels.
    """
    features_of(result.pores_of_form)
    _tables_metadata(result)
    return result


def update_pore_layer(layer: Any, result: Pores, labels: Int32s | None = None) -> None:
    """Show another result of the same volume in a layer, for example after merging.

    `labels`: a copy of its labels, if the user may paint in the layer.
    """
    known = {**unpainted(layer), "provenance": result.provenance, **_tables_metadata(result)}
    layer.metadata = {**layer.metadata, METADATA_KEY: known}
    layer.data = result.labels if labels is None else labels
    layer.features = features_of(result.pores_of_form)


def colour_numbers(given: Pores, merged: Pores) -> Int32s:
    """Return a number for the colour of each merged pore; pores that stay keep that of their label.

    A merged pore has the label of the given one whose widest place is its own widest place; other
    pores get new numbers.

    Returns: (basins + 1,), by the label of the merged pore.
    """
    from hushpore.pores.numbering import numbering_of

    before, after = (numbering_of(each.labels, each.graph) for each in (given, merged))
    count = merged.graph.count
    of_basin = np.arange(count + 1) + int(before.names.max(initial=0))
    of_basin[before.root] = before.names[1:]
    numbers = np.arange(count + 1, dtype=np.int32)
    numbers[after.names[1:]] = of_basin[after.root]
    return numbers


def name_in_words(layer: Any) -> None:
    """Make napari's status line use the titles of columns instead of their names.

    Layers without tables are not changed.
    """
    if tables_of(layer) is not None:
        layer.get_status = partial(_status, layer)


def _status(layer: Any, *place: Any, **more: Any) -> dict[str, str]:
    kind: Any = type(layer)
    status: dict[str, str] = kind.get_status(layer, *place, **more)
    tables = tables_of(layer)
    if tables is None:
        return status
    # napari writes "label; name: value, name: value", and "[No Properties]" outside pores
    titles = {name: tables.titled(name) for name in tables.pores if name != "label"}
    return {
        what: re.sub(
            r"(?<=[;,] )\w+(?=: )",
            lambda name: titles.get(name[0], name[0]),
            text.replace("; [No Properties]", ""),
        )
        for what, text in status.items()
    }


def result_of(layer: Any) -> Pores | None:
    """Return the result of a layer, or None if it cannot be merged again.

    Labels edited by hand no longer belong to their result.
    """
    return None if is_painted(layer) else known_of(layer).get(RESULT)


def tables_of(layer: Any) -> PoreTables | None:
    """Return the tables of a layer, or None if it is not a pore result."""
    if not isinstance(layer, Labels) or is_preview(layer):
        return None
    features = layer.features
    if "index" not in features or "num_voxels" not in features:
        return None
    known = layer.metadata.get(METADATA_KEY, {})
    volume = volume_of(layer)
    pores = features.rename(columns={"index": "label"})
    totals = (known.get("provenance") or {}).get("result") or {}
    unit = totals.get("unit", volume.unit)
    return PoreTables(
        pores,
        known.get(THROATS),
        totals,
        known.get(PROFILE),
        unit,
        volume.n_spatial,
        known.get(THICKNESS),
        known.get(REV),
        known.get(ALONG),
    )


def summary_lines(tables: PoreTables, shown: Mask | None = None) -> list[str]:
    """Return the summary of a result as lines.

    `shown`: (pores,), bool: the pores that pass a filter, for the last line.
    """
    pores, throats = tables.pores, tables.throats
    more = "" if throats is None else f", {readable_count(len(throats), 'throat')}"
    lines = [_void(tables.totals), _count(pores, tables.unit, more)]
    lines.append(intervals_in_words(tables.totals))
    if shown is not None and not shown.all():
        volume = pores["num_voxels"].to_numpy()
        share = readable_percent(volume[shown].sum() / max(volume.sum(), 1))
        part = _count(pores[shown], tables.unit, f", {share} of pore volume")
        lines.append(f"Shown: {part}")
    return [line for line in lines if line]


def _tables_metadata(result: Pores) -> dict[str, Any]:
    known = {RESULT: result, THROATS: result.throats, PROFILE: result.porosity_profile}
    known[ALONG] = None if result.transport is None else result.transport.profile
    if result.thickness:
        known[THICKNESS] = result.thickness_distribution
    if result.curve:
        import pandas as pd

        known[REV] = pd.DataFrame(result.curve)
    return known


def _void(totals: Mapping[str, Any]) -> str:
    if "porosity" not in totals:
        return ""
    text = f"Porosity {percent_digits(totals['porosity'])} %"
    if "open_porosity" in totals:
        is_open = percent_digits(totals["open_porosity"])
        is_closed = percent_digits(totals["closed_porosity"])
        text += f" (open {is_open} %, closed {is_closed} %)"
    if totals.get("specific_surface") is not None:
        per_length = readable_unit(totals.get("unit", "pixel"), -1)
        text += f" · specific surface {readable_number(totals['specific_surface'], 4)} {per_length}"
    return text


def _count(pores: pd.DataFrame, unit: str, more: str) -> str:
    count = len(pores)
    text = f"{readable_count(count, 'pore')}{more}"
    if not count:
        return text
    if "equivalent_diameter" not in pores:
        return f"{text} · diameters unknown"
    sizes, unit = pores["equivalent_diameter"], readable_unit(unit)
    mean, median = (readable_number(each, 4) for each in (sizes.mean(), sizes.median()))
    return f"{text} · diameter: mean {mean} {unit}, median {median} {unit}"
