"""Layers of phases: labels with colours and names, and the preview of a slice."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.utils.colormaps import CyclicLabelColormap

from hushpore.base.formatting import readable_number
from hushpore.pores.phases.measures import CONTACTS, PHASES
from hushpore.pores.phases.result import COLOURS
from hushpore.viewer.layers.conversion import METADATA_KEY, layer_data
from hushpore.viewer.results.pore_layer import LENGTHS
from hushpore.viewer.running.previews import OPACITY, SlicePreview
from hushpore.viewer.segment.grey_panel import prepare_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.pores.phases.measures import PhaseSums
    from hushpore.pores.phases.result import Phases
    from hushpore.pores.phases.settings import PhaseSettings
    from hushpore.pores.preview import GreySurvey, SliceVoid
    from hushpore.pores.settings import PoreSettings
    from hushpore.pores.tables.measures import Measure
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.task import Target


def phase_layers(result: Phases, target: Target) -> list[LayerData]:
    """Return the layers of a result: labels with colours and names, regions, thickness."""
    name = target.volume.name
    place: dict[str, Any] = {"placement": target.placement, "provenance": result.provenance}
    data, keywords, kind = labels_layer(
        result.labels_volume, result.phases, name=f"{name} phases", **place
    )
    keywords["metadata"][METADATA_KEY]["phases"] = result
    layers = [(data, keywords, kind)]
    if result.regions is not None:
        regions = result.regions_volume.replace(result.regions.labels, name=f"{name} regions")
        layers.append(regions_layer(regions, result.region_table, result.names, **place))
    if result.thickness is not None:
        layers.append(thickness_layer(result.thickness_volume, **place))
    return layers


def labels_layer(labels: Volume, phases: pd.DataFrame, **more: Any) -> LayerData:
    """Return labels of phases in their colours, with their names.

    ``**more``: as for `hushpore.viewer.layers.conversion.layer_data`; also in the functions below.
    """
    features = features_of(phases)
    # not a DirectLabelColormap, for which napari compiles code for 1.5 s in every session
    colours = CyclicLabelColormap(colors=["transparent", *COLOURS])
    return layer_data(
        labels, "labels", colormap=colours, opacity=OPACITY, features=features, **more
    )


def regions_layer(
    regions: Volume, table: pd.DataFrame, names: Sequence[str], **more: Any
) -> LayerData:
    """Return the hidden layer of regions, with phase and size of each."""
    features = _regions_features(table, names)
    data, keywords, kind = layer_data(regions, "labels", visible=False, features=features, **more)
    keywords["metadata"][METADATA_KEY][LENGTHS] = True
    return data, keywords, kind


def thickness_layer(thickness: Volume, **more: Any) -> LayerData:
    """Return the hidden layer of local thickness, with colours from diameter 0."""
    values = thickness.array()
    largest = float(values[np.isfinite(values)].max(initial=0)) or 1.0
    limits = (0.0, largest)
    data, keywords, kind = layer_data(
        thickness, contrast_limits=limits, colormap="viridis", visible=False, **more
    )
    keywords["metadata"][METADATA_KEY][LENGTHS] = True
    return data, keywords, kind


def features_of(phases: pd.DataFrame) -> pd.DataFrame:
    """Return a table of phases as features, which napari shows for the label under the pointer."""
    columns = {"index": phases["phase"], "phase": phases["name"], "share": phases["share"]}
    return type(phases)(columns)


def _regions_features(table: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return phase and size of each region as features."""
    named = table["phase"].map(dict(enumerate(names, 1)))
    columns = {"index": table["label"], "phase": named}
    sizes = {name: table[name] for name in ("volume", "equivalent_diameter")}
    return type(table)({**columns, **sizes})


def table_of(result: Phases) -> list[tuple[str, ...]]:
    """Return the rows of the table of phases as text, titles first, without empty measures."""
    table = result.phases
    # the most important measures first, visible without scrolling
    first = ("share", "specific_surface", "thickness", "thickness_deviation", "num_regions")
    measures = sorted(PHASES[1:], key=lambda each: each.name not in first)
    measures = [each for each in measures if table[each.name].notna().any()]
    return _table("Phase", list(table["name"]), table, measures, result.volume)


def contacts_of(result: Phases) -> list[tuple[str, ...]]:
    """Return the rows of the table of contacts as text, titles first."""
    table = result.contacts
    pairs = [f"{one} – {other}" for one, other in table[["name_1", "name_2"]].to_numpy()]
    return _table("Contact", pairs, table, CONTACTS[2:], result.volume)


def _table(
    title: str,
    names: Sequence[str],
    table: pd.DataFrame,
    measures: Sequence[Measure[PhaseSums]],
    volume: Volume,
) -> list[tuple[str, ...]]:
    """Return names and measures as rows of text, titles first."""
    titles = (each.titled(volume.unit, volume.n_spatial) for each in measures)
    heads = (each[0].upper() + each[1:] for each in titles)
    columns = ([_in_words(each.name, value) for value in table[each.name]] for each in measures)
    return [(title, *heads), *zip(names, *columns, strict=True)]


def _in_words(name: str, value: float) -> str:
    if np.isnan(value):
        return "–"
    if name == "share":
        return f"{100 * value:.3g} %"
    return f"{value:,.0f}" if float(value).is_integer() else readable_number(value, 4)


class PhasePreview(SlicePreview):
    """A preview of the phases in the slice on the screen."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(viewer, "phases", "phases", COLOURS)

    def show(
        self,
        target: Target,
        settings: PhaseSettings,
        thresholds: tuple[float, ...],
        greys: GreySurvey,
    ) -> None:
        """Start to show the phases of a volume in the slice on the screen.

        Surrounding air is excluded as in `hushpore.pores.preview.SliceVoid`.
        """
        from hushpore.pores.preview import SliceVoid

        if not self.is_of(target):
            self.hide()
            self._void = SliceVoid(target.volume)
        how = settings.of_pores(thresholds[0])
        if settings.sample_mask:
            # the mask defines the sample
            how = dataclasses.replace(how, exterior="keep")
        self._follow(target, partial(_find, target.volume, self._void, thresholds, how, greys))


def _find(
    volume: Volume,
    void: SliceVoid,
    thresholds: tuple[float, ...],
    how: PoreSettings,
    greys: GreySurvey,
    index: tuple[int, ...],
) -> Job:
    from hushpore.pores.parallel import KernelThreads
    from hushpore.pores.void.threshold import make_void

    yield from prepare_kernels(how)
    values = np.asarray(volume.data[index])
    labels = np.ones(values.shape, np.uint8)
    with KernelThreads(1) as threads:
        for threshold in thresholds:
            labels += make_void(values, threshold, True, threads)
    labels[void.excluded(index, how, greys)] = 0
    return labels
