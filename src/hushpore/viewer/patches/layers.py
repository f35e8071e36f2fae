"""Layers of patches: boxes, masked pixels, groups, and a contact sheet beside the image.

Boxes are lines of a Vectors layer: for 5,000 boxes it is made 40 times faster than a Shapes layer,
recoloured in milliseconds, and also drawn in 3D.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from napari.layers import Vectors
from qtpy.QtCore import QTimer
from qtpy.QtWidgets import QCheckBox

from hushpore.base.events import Batch, mapped
from hushpore.viewer.layers.conversion import METADATA_KEY
from hushpore.viewer.running.previews import add_unselected
from hushpore.viewer.running.status import POLL_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from hushpore.base.arrays import Float32s, Int64s
    from hushpore.base.events import Event, Job
    from hushpore.patches.result import Patches, Sheet
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.task import Target


#: Colour map of boxes by a feature.
COLOURS = "plasma"

#: Number of patches in the contact sheet, small enough to discern them beside the image.
TILES = 24

#: Maximum number of masked pixels shown as points.
MOST_POINTS = 50_000

#: Kind of a layer of patches, in ``metadata["hushpore"]["shows"]``.
BOXES, MASKED, GROUPS, SHEET = "boxes", "masked pixels", "groups", "contact sheet"

#: Corners of a rectangle in the order in which its sides are drawn.
_TURNS = np.array([(0, 0), (0, 1), (1, 1), (1, 0)])


def patch_layers(result: Patches, target: Target) -> list[LayerData]:
    """Return the layers of sampled patches."""
    shown = result.ranked(first_feature(result), TILES)
    layers = [box_layer(result, target)]
    if result.blind is not None:
        layers.append(_masked_layer(result, target, shown))
    if len(result.groups):
        layers.append(_group_layer(result, target))
    layers.append(sheet_layer(result, target, result.sheet(shown)))
    return layers


def box_layer(result: Patches, target: Target) -> LayerData:
    """Return the boxes, coloured by the most informative feature."""
    lines = boxes(result.corners, result.patch_shape)
    table = {"patch": np.arange(len(result.corners)), **result.features}
    n_edges = len(lines) // max(len(result.corners), 1)
    keywords = _keywords(
        result, target, BOXES,
        name="patches",
        features={name: np.repeat(values, n_edges) for name, values in table.items()},
        edge_color=first_feature(result),
        edge_colormap=COLOURS,
        edge_width=max(1.0, result.patch_shape[-1] / 40),
        vector_style="line",
    )  # fmt: skip
    keywords["metadata"][METADATA_KEY]["patches"] = result
    return lines, keywords, "vectors"


def first_feature(result: Patches) -> str:
    """Return the feature to colour by at first: the loss, or else the gradient.

    >>> from types import SimpleNamespace
    >>> first_feature(SimpleNamespace(features={"order": [], "gradient": []}))
    'gradient'
    """
    named = (name for name in ("loss", "gradient") if name in result.features)
    return next(named, "order")


def boxes(corners: npt.NDArray[np.integer[Any]], patch_shape: Sequence[int]) -> Float32s:
    """Return the edges of patches as vectors.

    `corners`: shape (n_patches, ndim): first voxel of each patch. `patch_shape`: (y, x) or (z, y,
    x).
    Returns: shape (n_patches * n_edges, 2, ndim): start and direction. Voxel centres have integer
    coordinates, and edges lie around the voxels. A patch of one slice has four edges; a deeper one
    has four in each of its slices, so that it is visible there, and four along z.
    """
    count, ndim = corners.shape
    plane = np.array(patch_shape[-2:])
    depth = patch_shape[0] if len(patch_shape) == 3 else 1
    square = np.zeros((4, 2, ndim), np.float32)
    square[:, 0, -2:] = _TURNS * plane - 0.5
    square[:, 1, -2:] = (np.roll(_TURNS, -1, axis=0) - _TURNS) * plane
    box = square
    if depth > 1:
        slices = np.repeat(square[None], depth, axis=0)
        slices[:, :, 0, -3] = np.arange(depth)[:, None]
        along = square.copy()
        along[:, 1] = 0
        along[:, 1, -3] = depth - 1
        box = np.concatenate([*slices, along])
    lines = np.repeat(box[None], count, axis=0)
    lines[:, :, 0] += corners[:, None].astype(np.float32)
    return lines.reshape(-1, 2, ndim)


def sheet_layer(result: Patches, target: Target, sheet: Sheet) -> LayerData:
    """Return the contact sheet: an image to the right of the volume and as high."""
    placement, shape = target.placement, result.volume.shape[-2:]
    step = np.abs(np.array(placement.scale[-2:])) * shape / np.maximum(sheet.image.shape, 1)
    appearance: dict[str, Any] = {
        name: target.appearance[name]
        for name in ("contrast_limits", "gamma")
        if name in target.appearance
    }
    keywords: dict[str, Any] = {
        **appearance,
        "name": target.named("contact sheet"),
        "scale": (step[0], step[0]),
        "units": placement.units[-2:],
        "axis_labels": placement.axis_labels[-2:],
        "translate": (
            placement.translate[-2],
            placement.translate[-1] + placement.scale[-1] * shape[1] * 1.04,
        ),
        "metadata": _keywords(result, target, SHEET, name="")["metadata"],
    }
    # for display only, so not offered as an input of jobs
    keywords["metadata"][METADATA_KEY] |= {"sheet": sheet, "preview": SHEET}
    return sheet.captioned, keywords, "image"


def _masked_layer(result: Patches, target: Target, patches: Int64s) -> LayerData:
    assert result.blind is not None
    n_pixels = max(1, result.blind.positions.shape[1])
    shown = patches[: max(1, MOST_POINTS // n_pixels)]
    original = result.blind.originals[shown].ravel()
    replacement = result.blind.replacements[shown].ravel()
    most = float(np.abs(replacement - original).max(initial=0)) or 1.0
    keywords = _keywords(
        result, target, MASKED,
        name="masked pixels",
        features={
            "patch": np.repeat(shown, n_pixels),
            "original": original,
            "replacement": replacement,
            "change": replacement - original,
        },
        size=1.0,
        symbol="square",
        face_color="change",
        face_colormap="PiYG",
        face_contrast_limits=(-most, most),
        border_width=0,
        # many small points, hidden at first
        visible=False,
    )  # fmt: skip
    where = [result.hidden_voxels(int(patch)) for patch in shown]
    data = np.concatenate(where) if where else np.empty((0, result.corners.shape[1]))
    return data.astype(np.float32), keywords, "points"


def _group_layer(result: Patches, target: Target) -> LayerData:
    centres = result.centres
    first = np.repeat(result.groups[:, 0], result.groups.shape[1] - 1)
    lines = np.stack([centres[first], centres[result.groups[:, 1:].ravel()] - centres[first]], 1)
    number = np.repeat(np.arange(len(result.groups)), result.groups.shape[1] - 1)
    keywords = _keywords(
        result, target, GROUPS,
        name="patch groups",
        features={"group": [str(n + 1) for n in number]},
        edge_color="group",
        edge_width=max(2.0, result.patch_shape[-1] / 20),
    )  # fmt: skip
    return lines.astype(np.float32), keywords, "vectors"


def _keywords(
    result: Patches, target: Target, shows: str, *, name: str, **more: Any
) -> dict[str, Any]:
    metadata = {
        "source": target.volume.source,
        "notes": list(target.volume.notes),
        "provenance": result.provenance,
        "shows": shows,
    }
    name = target.named(name)
    return {**target.placement.kwargs(), "name": name, "metadata": {METADATA_KEY: metadata}, **more}


class LatestBatch:
    """The newest training batch of a running job; older ones are dropped."""

    #: The batch, and the input layer of the job.
    seen: ClassVar[tuple[Batch, Target] | None] = None

    @classmethod
    def watch(cls, job: Job, target: Target) -> Job:
        """Return a job that also keeps its newest batch."""

        def kept(event: Event) -> Event:
            if isinstance(event, Batch):
                cls.seen = event, target
            return event

        try:
            return (yield from mapped(job, kept))
        finally:
            cls.seen = None


class LivePatches(QCheckBox):
    """A check box that shows the patches of the newest batch, up to five times a second."""

    def __init__(self, viewer: Any) -> None:
        super().__init__(
            "&Live: outline the batch", toggled=self._toggle,
            toolTip="Outline the patches of the current batch, coloured by loss (yellow: high).",
        )  # fmt: skip
        self._viewer = viewer
        self._layer: Any = None
        self._shown: tuple[Batch, Target] | None = None
        self._timer = QTimer(self, interval=POLL_INTERVAL, timeout=self.poll)

    def poll(self) -> None:
        """Show the newest batch, if it has changed."""
        seen = LatestBatch.seen
        if seen is None:
            self.clear()
        elif seen is not self._shown:
            self._shown = seen
            self._show(*seen)

    def clear(self) -> None:
        """Remove the boxes."""
        self._shown = None
        if self._layer is not None and self._layer in self._viewer.layers:
            self._viewer.layers.remove(self._layer)
        self._layer = None

    def _toggle(self, is_on: bool) -> None:
        if is_on:
            self._timer.start()
            self.poll()
        else:
            self._timer.stop()
            self.clear()

    def _show(self, batch: Batch, target: Target) -> None:
        lines = boxes(batch.corners, batch.patch_shape)
        n_edges = len(lines) // max(len(batch.losses), 1)
        # logarithmic, so that a patch of very high loss does not dominate the colours
        loss = np.log10(np.maximum(batch.losses, 1e-12)).repeat(n_edges)
        features = {"log10 of loss": loss}
        if self._layer is None:
            self._layer = self._add(lines, features, batch, target)
        elif self._layer in self._viewer.layers:
            # not after the user has deleted the boxes
            layers = self._viewer.layers
            if layers[-1] is not self._layer:
                # the preview of the denoiser came later
                layers.move(layers.index(self._layer), -1)
            self._layer.data = lines
            self._layer.features = features
            self._layer.edge_color = "log10 of loss"
            low, high = float(loss.min()), float(loss.max())
            self._layer.edge_contrast_limits = (low, high if high > low else low + 1)

    def _add(self, lines: Any, features: dict[str, Any], batch: Batch, target: Target) -> Any:
        layer = Vectors(
            lines,
            **target.placement.kwargs(),
            name=target.named("batch (live)"),
            features=features,
            edge_color="log10 of loss",
            edge_colormap=COLOURS,
            edge_width=max(1.0, batch.patch_shape[-1] / 30),
            vector_style="line",
            metadata={METADATA_KEY: {"preview": "batch"}},
        )
        add_unselected(self._viewer, layer)
        return layer
