"""What is done in the thread of a worker on behalf of a widget: from a layer to layers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from napari.layers import Labels, Layer

from hushpore import jobs
from hushpore.base.events import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.viewer.layers.conversion import LayerData
    from hushpore.viewer.running.target import Target


@dataclass(frozen=True)
class Outcome:
    """A finished job, made ready for the window."""

    summary: str  # one line on the result
    layers: list[Layer]  # the result as layers, which no viewer has yet
    timings: Mapping[str, float]  # seconds by stage
    result: Any  # what the job returned


class LayerJob(Protocol):
    """How a job goes from a layer to layers; what a widget says of it, without the widget."""

    job: str

    def prepare(self, target: Target) -> Volume:
        """Return the volume to give to the job."""

    def result_layers(self, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result."""

    def cluster_layers(self, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result that a cluster has written to disk."""


def local_task(widget: LayerJob, target: Target, settings: Settings, device: str) -> Job:
    """Prepare the volume, run the job and make the layers of its result.

    `widget`: a class of widgets; no widget itself is touched. `device`: as `hushpore.jobs.start`
    takes it.
    Returns: from the generator.
    """
    yield Progress("preparing", 0, 0, "", 0.0)
    volume = widget.prepare(target)
    result = yield from jobs.start(widget.job, volume, settings, device)
    # made here, for napari looks for contrast, thumbnail and colours when a layer is made
    layers: list[Any] = [Layer.create(*data) for data in widget.result_layers(result, target)]
    return Outcome(result.summary, layers, result.timings, result)


def import_libraries(kind: jobs.JobDescription) -> Job:
    """Import the libraries behind a job and its layers, and make ready a first layer of labels.

    What that needs is the code of napari's colours, which is compiled, and the dashes of the lines
    around a label, for which VisPy takes a twentieth of a second.
    """
    yield from ()
    kind.load()
    # what was removed from an image is computed slice by slice
    import_module("dask.array")
    Labels(np.zeros((2, 2), np.int32))
    with contextlib.suppress(ImportError, AttributeError):
        # it remembers them
        import_module("vispy.visuals.line.dash_atlas").DashAtlas()
