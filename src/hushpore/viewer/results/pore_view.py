"""The view of a pore layer: filter, selection and colours of its pores.

One object per layer is shared by tables, plots and canvas, so that they always agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from napari.utils.colormaps import AVAILABLE_COLORMAPS, CyclicLabelColormap, label_colormap
from napari.utils.colormaps.standardize_color import transform_color
from qtpy.QtCore import QEvent, QObject, QTimer, Signal
from qtpy.QtWidgets import QWidget

from hushpore.pores.tables.measures import measure_of
from hushpore.viewer.layers.conversion import point_at, units_in_world, unwrapped, voxel_at
from hushpore.viewer.results.pore_layer import tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import numpy.typing as npt
    import pandas as pd
    from napari.layers import Labels

    from hushpore.base.arrays import Float32s, Int64s, Mask
    from hushpore.viewer.results.pore_layer import PoreTables

#: Maximum number of labels that napari can colour individually.
MAX_COLOURS = 2**16 - 1

#: Opacity of unselected pores while some are selected.
DIMMED = 0.18

#: Colour maps offered for columns, all suitable for colour-blind readers.
COLORMAPS = ("viridis", "plasma", "inferno", "cividis", "gray")

#: Colours that colour-blind readers can distinguish (Okabe and Ito, 2008,
#: https://jfly.uni-koeln.de/color).
PALETTE = (
    "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999",
)  # fmt: skip

#: Colour of pores with a missing value.
MISSING = "#60606080"

#: Maximum movement of the pointer in a click, in pixels.
_CLICK = 4

#: Layer modes in which a click selects a pore.
_LOOKING = ("pan_zoom", "pick")


class Category(NamedTuple):
    """A category of pores."""

    word: str  # its name
    colour: str  # as ``#rrggbb``
    rows: Mask  # (pores,), bool: the pores of this category


class PoreView(QObject):
    """Filter, selection and colours of one pore layer.

    `shown`, `selected`: (pores,), bool, in the order of the table of pores. `column`, `colormap`:
    column and colour map of the colours; an empty column means random colours. `is_outdated`:
    whether the voxel shape of the layer is no longer that of the tables.
    """

    #: Emitted when the layer has another result; filter and selection were cleared.
    tables_changed = Signal()
    shown_changed = Signal()
    #: Emitted with the sender, which can ignore the signal.
    selected_changed = Signal(object)
    colours_changed = Signal()

    _of_layer: ClassVar[dict[int, PoreView]] = {}

    @classmethod
    def of(cls, viewer: Any, layer: Any) -> PoreView:
        """Return the view of a layer; created on first use."""
        layer = unwrapped(layer)
        view = cls._of_layer.get(id(layer))
        if view is None or view.layer is not layer:
            view = cls._of_layer[id(layer)] = PoreView(viewer, layer)
        return view

    def __init__(self, viewer: Any, layer: Labels) -> None:
        super().__init__()
        self._viewer, self.layer = viewer, layer
        self._users: set[int] = set()
        self._layer_colormap = layer.colormap
        self.column, self.colormap = "", COLORMAPS[0]
        self.shown: Mask
        self.selected: Mask
        self._reread_timer = QTimer(self, singleShot=True, interval=0, timeout=self._reread)
        self._scale_timer = QTimer(self, singleShot=True, interval=0, timeout=self._follow_scale)
        tables = tables_of(layer)
        assert tables is not None
        self._read(tables)
        self.is_outdated = False
        self._scale_timer.start()
        self._followed = (
            # read once after data, features and metadata were all replaced
            (layer.events.features, self._schedule_reread),
            (layer.events.metadata, self._schedule_reread),
            (layer.events.colormap, self._colormap_changed),
            # scale and unit may change one after the other
            (layer.events.scale, self._schedule_scale),
            (layer.events.units, self._schedule_scale),
            (viewer.dims.events.ndisplay, self._paint_selection),
            (viewer.layers.events.removed, self._removed),
        )
        for event, slot in self._followed:
            event.connect(slot)
        viewer.mouse_drag_callbacks.append(self._clicked)

    @classmethod
    def base_colormap(cls, layer: Any) -> Any:
        """Return the colours of a layer without those by column, filter or selection."""
        view = cls._of_layer.get(id(layer))
        return layer.colormap if view is None or view.layer is not layer else view._layer_colormap

    @classmethod
    def set_base_colours(cls, layer: Any, colours: Float32s) -> None:
        """Give label k colour k where no column, filter or selection colours the labels.

        `colours`: (n, 4).
        """
        base = CyclicLabelColormap(colors=colours)
        if layer.colormap is cls.base_colormap(layer):
            layer.colormap = base
        else:
            cls._of_layer[id(layer)]._layer_colormap = base

    def attach(self, user: object) -> None:
        """Register a user of the view; the view exists while it has users."""
        self._users.add(id(user))

    def detach(self, user: object) -> None:
        """Remove a user; the last one closes the view."""
        self._users.discard(id(user))
        if not self._users:
            self.close()

    def close(self) -> None:
        """Restore the layer, and delete the view."""
        if self._of_layer.pop(id(self.layer), None) is None:
            return
        self.reset()
        self._reread_timer.stop()
        self._scale_timer.stop()
        for event, slot in self._followed:
            event.disconnect(slot)
        self._viewer.mouse_drag_callbacks.remove(self._clicked)

    # ---- filter, selection, colours

    @property
    def can_colour(self) -> bool:
        """Whether the layer can show filter, selection and colours."""
        return self._highest <= MAX_COLOURS

    def show_only(self, mask: Mask) -> None:
        """Show the pores that pass a filter."""
        if np.array_equal(mask, self.shown):
            return
        self.shown = mask
        self.paint()
        self.shown_changed.emit()

    def select(self, mask: Mask, by: object = None) -> None:
        """Select pores; the others are dimmed, or hidden in 3D, where they would cover these."""
        if np.array_equal(mask, self.selected):
            return
        self.selected = mask
        self.paint()
        self.selected_changed.emit(by)

    def select_labels(self, labels: npt.ArrayLike, by: object = None) -> None:
        """Select pores by their labels."""
        self.select(np.isin(self.labels, labels), by)

    def colour_by(self, column: str, colormap: str = "") -> None:
        """Colour the pores by a column; an empty name means napari's random colours."""
        self.column, self.colormap = column, colormap or self.colormap
        self.paint()
        self.colours_changed.emit()

    def reset(self) -> None:
        """Show all pores, select none, and restore the colours of the layer."""
        everything = np.ones(len(self.labels), np.bool_)
        self.column = ""
        self.show_only(everything)
        self.select(~everything)
        self.paint()
        self.colours_changed.emit()

    def categories(self) -> list[Category]:
        """Return the categories of the column; none if it is numeric."""
        if not self.column or not is_categorical(self.tables.pores[self.column]):
            return []
        return categories_of(self.tables.pores[self.column])

    def limits(self) -> tuple[float, float]:
        """Return the values at the ends of the colour map: 1st and 99th percentile."""
        values = self.tables.pores[self.column].to_numpy(np.float64)
        values = values[np.isfinite(values)]
        if not values.size:
            return 0.0, 1.0
        low, high = (float(limit) for limit in np.percentile(values, (1, 99)))
        return (low, high) if low < high else (low, low + 1.0)

    def go_to(self, position: int) -> None:
        """Show a slice with the pore of a table row, unless the current one contains it."""
        pore, dims = self.tables.pores.iloc[position], self._viewer.dims
        if self.tables.n_spatial == 2 or dims.ndisplay == 3 or "bbox_z_start" not in pore:
            return
        start, stop = int(pore["bbox_z_start"]), int(pore["bbox_z_stop"])
        if not start <= round(self.slice_on_screen()) < stop:
            self.show_slice((start + stop - 1) // 2)

    def slice_on_screen(self) -> float:
        """Return the position of the slice on the screen in the layer, in slices."""
        return float(voxel_at(self._viewer, self.layer, self._viewer.dims.point)[0])

    def show_slice(self, number: int) -> None:
        """Show a slice of the layer."""
        dims, place = self._viewer.dims, [number] + [0] * (self.layer.ndim - 1)
        point = point_at(self._viewer, self.layer, place)
        dims.set_point(dims.ndim - self.layer.ndim, float(point[0]))

    def paint(self) -> None:
        """Colour all labels."""
        if not self.can_colour:
            return
        with self.layer.events.colormap.blocker(self._colormap_changed):
            if self.column or not self.shown.all() or self.selected.any():
                self._set_colours(self._colours())
            elif self.layer.colormap is not self._layer_colormap:
                self.layer.colormap = self._layer_colormap

    # ---- reading the layer

    def _read(self, tables: PoreTables) -> None:
        self.tables = tables
        self.labels: Int64s = tables.pores["label"].to_numpy(np.int64)
        self._highest = int(self.labels.max(initial=0))
        self.shown = np.ones(len(self.labels), np.bool_)
        self.selected = np.zeros(len(self.labels), np.bool_)

    def _schedule_reread(self, event: Any = None) -> None:
        self._reread_timer.start()

    def _reread(self) -> None:
        tables = tables_of(self.layer)
        if tables is None:
            self.close()
            return
        self._read(tables)
        if self.column not in self.tables.pores:
            self.column = ""
        self.paint()
        self.tables_changed.emit()

    def _schedule_scale(self, event: Any = None) -> None:
        self._scale_timer.start()

    def _follow_scale(self) -> None:
        """Update the tables after a change of the scale, or emit that they are out of date."""
        from hushpore.viewer.layers.voxel_size import follow_scale

        before, self.is_outdated = self.is_outdated, not follow_scale(self.layer)
        if self.is_outdated != before:
            self.tables_changed.emit()

    def _colours(self) -> Float32s:
        """Return the colours of all labels: (highest label + 1, 4)."""
        kinds = self.categories()
        colours: Any = np.zeros((len(self.labels), 4), np.float32)
        if kinds:
            for kind in kinds:
                colours[kind.rows] = transform_color(kind.colour)[0]
        elif self.column:
            values = self.tables.pores[self.column].to_numpy(np.float64)
            low, high = self.limits()
            share = np.nan_to_num(np.clip((values - low) / (high - low), 0, 1))
            colours = AVAILABLE_COLORMAPS[self.colormap].map(share)
            colours[np.isnan(values)] = transform_color(MISSING)[0]
        else:
            colours = self._layer_colormap.map(self.labels.astype(np.int32))
        colours = np.array(colours, np.float32)
        if self.selected.any():
            colours[~self.selected, 3] *= DIMMED if self._viewer.dims.ndisplay == 2 else 0.0
        colours[~self.shown] = 0
        table = np.zeros((self._highest + 1, 4), np.float32)
        table[self.labels] = colours
        return table

    def _set_colours(self, colours: Float32s) -> None:
        """Give label k colour k, with a cyclic colour map of that length."""
        layer = self.layer
        layer.colormap = CyclicLabelColormap(
            colors=colours, use_selection=layer.show_selected_label, selection=layer.selected_label
        )

    def _colormap_changed(self, event: Any = None) -> None:
        """Keep a colour map that the user has set, for example by shuffling."""
        given = self.layer.colormap
        if isinstance(given, CyclicLabelColormap) and (given.colors[1:, 3] < 1).any():
            # napari has shuffled our colours, including transparent ones
            given = label_colormap(49, seed=float(np.random.default_rng().random()))
        self._layer_colormap = given
        self.paint()

    def _paint_selection(self, event: Any = None) -> None:
        if self.selected.any():
            self.paint()

    def _removed(self, event: Any) -> None:
        if unwrapped(event.value) is self.layer:
            self.close()

    # ---- the canvas

    def _clicked(self, viewer: Any, event: Any) -> Any:
        """Select the clicked pore, or none; Ctrl or Shift adds to the selection."""
        is_click = yield from ends_as_click(event)
        if not is_click or not self.layer.visible or event.button != 1:
            return
        active = viewer.layers.selection.active
        if active is not None and str(getattr(active, "mode", "pan_zoom")) not in _LOOKING:
            return
        label = self.label_at(event.position, event.view_direction, event.dims_displayed)
        hit = self.labels == label
        if any(key in event.modifiers for key in ("Control", "Shift")):
            hit = self.selected ^ hit
        self.select(hit, "canvas")

    def label_at(self, position: Any, direction: Any, dims_displayed: Any) -> int:
        """Return the label of the visible pore at a position of the canvas; 0 if there is none."""
        layer = self.layer
        position = np.asarray(position)[-layer.ndim :] / units_in_world(self._viewer, layer.units)
        if len(dims_displayed) < 3:
            # from the data: get_value still has the last slice while napari loads asynchronously
            labels = layer.data[0] if layer.multiscale else layer.data
            place = np.round(layer.world_to_data(position)).astype(int)
            if (place < 0).any() or (place >= labels.shape).any():
                return 0
            # read as a box: lazy arrays cannot be indexed by points
            label = np.asarray(labels[tuple(slice(at, at + 1) for at in place)]).item()
            return label if label in self.labels[self.shown] else 0
        start, end = layer.get_ray_intersections(position, direction, dims_displayed)
        if start is None or end is None:
            return 0
        # in 3D napari shows the coarsest level
        data = layer.data[-1] if layer.multiscale else layer.data
        count = int(np.ceil(np.linalg.norm(end - start) * 2)) + 2
        share = np.divide(data.shape, layer.data.shape)
        places = np.floor((np.linspace(start, end, count) + 0.5) * share).astype(int)
        places = np.clip(places, 0, np.array(data.shape) - 1)
        # read the bounding box: lazy arrays cannot be indexed by points
        first = places.min(axis=0)
        part = data[tuple(map(slice, first, places.max(axis=0) + 1))]
        along = np.asarray(part)[tuple((places - first).T)]
        seen = self.shown & (self.selected | ~self.selected.any())
        found = along[np.isin(along, self.labels[seen])]
        return int(found[0]) if found.size else 0


class LayerTrackingWidget(QWidget):
    """Base of widgets that show the pore layer selected last."""

    def __init__(self, viewer: Any) -> None:
        super().__init__()
        self._viewer = viewer
        self.view: PoreView | None = None
        self._events = [
            viewer.layers.selection.events.active,
            viewer.layers.events.removed,
            viewer.layers.events.inserted,
        ]
        for event in self._events:
            event.connect(self.follow)

    def show_view(self) -> None:
        """Show the current view; clear the widget if there is none."""
        raise NotImplementedError

    def slots(self) -> dict[str, Callable[..., None]]:
        """Return the slots for the signals of a view, by name."""
        raise NotImplementedError

    def follow(self, event: Any = None) -> None:
        """Find the layer to show."""
        layers = self._viewer.layers
        layer = layers.selection.active
        if layer is None or tables_of(layer) is None:
            layer = None if self.view is None else self.view.layer
        if layer is None or not any(unwrapped(each) is unwrapped(layer) for each in layers):
            known = [each for each in layers if tables_of(each) is not None]
            layer = known[-1] if known else None
        if self.view is not None and unwrapped(layer) is self.view.layer:
            return
        self._let_go()
        if layer is not None:
            self.view = PoreView.of(self._viewer, layer)
            self.view.attach(self)
            for signal, slot in self.slots().items():
                getattr(self.view, signal).connect(slot)
        self.show_view()

    def _let_go(self) -> None:
        if self.view is not None:
            for signal, slot in self.slots().items():
                getattr(self.view, signal).disconnect(slot)
            self.view.detach(self)
            self.view = None

    def changeEvent(self, event: Any) -> None:  # noqa: N802
        """Restore the colours of the layer when napari removes the widget from its dock."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            self._let_go()
            for each in self._events:
                each.disconnect(self.follow)
            self._events = []


def ends_as_click(event: Any) -> Generator[None, None, bool]:
    """Wait for the mouse release in a napari callback; return whether it was a click.

    A movement of the pointer by more than `_CLICK` pixels is a drag.
    """
    start, away = np.array(event.pos), 0.0
    yield
    while event.type == "mouse_move":
        away = max(away, np.abs(np.array(event.pos) - start).max())
        yield
    return away <= _CLICK


def is_categorical(column: pd.Series) -> bool:
    """Whether a column is bool, or text with at most as many values as there are colours."""
    if column.dtype.kind in "uif":
        return False
    return bool(column.dtype.kind == "b" or column.nunique() <= len(PALETTE))


def categories_of(column: pd.Series) -> list[Category]:
    """Return the categories that occur in a column, in order.

    Examples
    --------
    >>> import pandas as pd
    >>> kinds = categories_of(pd.Series([True, False, True], name="is_open"))
    >>> [(kind.word, int(kind.rows.sum())) for kind in kinds]
    [('closed', 1), ('open', 2)]
    """
    import pandas as pd

    codes, values = pd.factorize(column, sort=True)
    # True and False have fixed colours, even if only one of them occurs
    places = values.astype(int) if column.dtype.kind == "b" else np.arange(len(values))
    kinds = [
        Category(_word(str(column.name), value), PALETTE[place], codes == code)
        for code, (value, place) in enumerate(zip(values, places, strict=True))
    ]
    if (codes < 0).any():
        kinds.append(Category("unknown", MISSING, codes < 0))
    return kinds


def _word(column: str, value: Any) -> str:
    """Return the meaning of True or False in a column, or the value as text."""
    if isinstance(value, bool | np.bool_):
        return measure_of(column).words[int(value)]
    return str(value)
