"""The layer of a pore result: labels that carry their tables and totals with them.

The table of pores lies where napari looks for what to show on hovering, in the layer's features;
the rest lies in its metadata. So a layer that was just made, one that was merged anew and one that
was read from a result folder are all the same to whoever shows the numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

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
from hushpore.viewer.forms.layer_choice import is_preview
from hushpore.viewer.layers.conversion import METADATA_KEY, known_of, layer_data, volume_of
from hushpore.viewer.layers.lineage import is_painted
from hushpore.viewer.running.redraw import keep_drawing_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt
    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.pores.result import Pores
    from hushpore.viewer.layers.conversion import Placement

#: Where the metadata of a layer hold the table of throats and the porosity of each slice.
THROATS, PROFILE = "throats", "porosity_profile"

#: Where they hold how much of each phase is how thick, where that was measured.
THICKNESS = "thickness"

#: Where they hold the figures of cubes of the sample by their edge, where intervals were asked for.
REV = "rev"

#: Where those of an image say that its values are lengths, in the unit of the layer; those of
#: labels, that sizes among their features are.
LENGTHS = "lengths"

#: Where they hold the result itself, which can be merged anew; not in a layer read from a folder.
RESULT = "pores"


@dataclass(frozen=True, eq=False)
class PoreTables:
    """The numbers of a pore result."""

    pores: pd.DataFrame  # one row a pore; its first column is ``label``
    # one row for each two pores that touch, with the columns ``pore_1`` and ``pore_2``
    throats: pd.DataFrame | None
    # the totals of the record, such as ``porosity``; empty where it is not known
    totals: dict[str, Any]
    # porosity of each slice (row, in 2D), a share; NaN where there is no sample
    profile: npt.NDArray[np.float64] | None
    unit: str  # of lengths in the tables
    n_spatial: int  # 2 or 3
    # how much of each phase is how thick, see `Pores.thickness_distribution`; None: not measured
    thickness: pd.DataFrame | None = None
    # figures of cubes of the sample by their edge, see `Pores.curve`; None: not measured
    rev: pd.DataFrame | None = None

    def unit_of(self, column: str) -> str:
        """Return the unit of a column of the table of pores, as it is printed."""
        # widgets open without it: it is the pore engine
        from hushpore.pores.tables.measures import measure_of

        return measure_of(column).unit(self.unit, self.n_spatial)

    def titled(self, column: str) -> str:
        """Return the title of a column of the table of pores, as it stands on an axis."""
        from hushpore.pores.tables.measures import measure_of

        return measure_of(column).titled(self.unit, self.n_spatial)


def features_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return a pore table as napari wants the features of labels: found by the column `index`."""
    features = table.copy()
    features.insert(0, "index", table["label"])
    return features.drop(columns="label")


def pore_layer(
    result: Pores, name: str, placement: Placement | None = None
) -> tuple[Any, dict[str, Any], str]:
    """Return a pore result as napari's (data, keywords, type of layer)."""
    data, keywords, kind = layer_data(
        result.labels_volume,
        "labels",
        placement=placement,
        provenance=result.provenance,
        name=name,
        features=features_of(result.pores),
    )
    keywords["metadata"][METADATA_KEY].update(_tables_metadata(result))
    return data, keywords, kind


def thickness_layers(
    result: Pores, placement: Placement | None = None
) -> list[tuple[Any, dict[str, Any], str]]:
    """Return the local thickness of each phase as an image, transparent where it is not.

    They lie above the labels, hidden at first.
    """
    return [
        thickness_layer(
            result.thickness_volume(phase),
            float(found.edges[-1]),
            result.provenance,
            placement=placement,
            visible=False,
        )
        for phase, found in result.thickness.items()
    ]


def thickness_layer(
    volume: Volume, largest: float, provenance: dict[str, Any], **more: Any
) -> tuple[Any, dict[str, Any], str]:
    """Return a local thickness as an image, transparent where there is none.

    `largest`: of its values, in the unit of the volume. `provenance`: the record of the job.
    ``**more``: as `layer_data` takes it.
    """
    colours = Colormap(
        AVAILABLE_COLORMAPS["viridis"].colors, name="thickness", low_color=(0, 0, 0, 0)
    )
    limits = (1e-6 * (largest or 1.0), largest or 1.0)
    data, keywords, kind = layer_data(
        volume, provenance=provenance, colormap=colours, contrast_limits=limits, **more
    )
    keywords["metadata"][METADATA_KEY][LENGTHS] = True
    return data, keywords, kind


def with_tables(result: Pores) -> Pores:
    """Return a result once all is made that its layer carries.

    In a worker's thread: the porosity of each slice takes a look at all labels.
    """
    features_of(result.pores)
    _tables_metadata(result)
    return result


def update_pore_layer(layer: Any, result: Pores) -> None:
    """Show another result of the same volume, for example merged anew, in a layer."""
    known = {
        **layer.metadata[METADATA_KEY],
        "provenance": result.provenance,
        **_tables_metadata(result),
    }
    layer.metadata = {**layer.metadata, METADATA_KEY: known}
    keep_drawing_code(layer)
    layer.data = result.labels
    layer.features = features_of(result.pores)


def name_in_words(layer: Any) -> None:
    """Have napari say of the pore under the mouse what stands in the table, not names of columns.

    Of another layer all stays as it is.
    """
    if tables_of(layer) is not None:
        layer.get_status = partial(_status, layer)


def _status(layer: Any, *place: Any, **more: Any) -> dict[str, str]:
    kind: Any = type(layer)
    status: dict[str, str] = kind.get_status(layer, *place, **more)
    tables = tables_of(layer)
    if tables is None:
        return status
    # napari writes: the label; name: value, name: value. Where there is no pore: [No Properties]
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
    """Return the result that a layer shows, or None where there is none that can be merged anew.

    Labels that were painted on are not those of their result.
    """
    return None if is_painted(layer) else known_of(layer).get(RESULT)


def tables_of(layer: Any) -> PoreTables | None:
    """Return the numbers that a layer carries, or None where it is not that of a pore result."""
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
    )


def summary_lines(tables: PoreTables, shown: npt.NDArray[np.bool_] | None = None) -> list[str]:
    """Return the summary of a result, a sentence a line.

    `shown`: (pores,), bool: the pores that pass a filter, which the last line is about.
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
        text += f" · open void {is_open} %, closed {is_closed} %"
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
