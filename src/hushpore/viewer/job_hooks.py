"""The parts of a job's widget that differ between jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from napari.layers import Image

from hushpore import jobs
from hushpore.viewer.layers.conversion import LayerData, is_result, layer_data
from hushpore.viewer.layers.shown_image import SHOWN
from hushpore.viewer.running.worker_container import WorkerContainer

if TYPE_CHECKING:
    from hushpore.base.settings import Settings
    from hushpore.base.volume import Volume
    from hushpore.viewer.forms.fields import Field
    from hushpore.viewer.forms.form import SettingsForm
    from hushpore.viewer.running.task import Target


class JobHooks(WorkerContainer):
    """Job, valid input layers, result layers and links of a widget, for subclasses to define.

    Class methods may run in the worker's thread and have no access to the widget.
    """

    form: SettingsForm

    #: Key of `hushpore.jobs.JOBS`.
    job: ClassVar[str]
    #: Names of the widgets for the next steps, and the texts of the links that open them.
    next_steps: ClassVar[dict[str, str]] = {}
    #: Link texts in the line about the layer, with their targets for `_follow`.
    fact_links: ClassVar[dict[str, str]] = {SHOWN: "shown image"}
    #: Share of the height, and maximum lines, for the buttons and the result below the form.
    room_for_result: ClassVar[tuple[float, int]] = (0.42, 19)
    #: Field classes that replace the default ones, by name of the setting.
    fields: ClassVar[dict[str, type[Field]]] = {}

    @classmethod
    def accepts(cls, layer: Any) -> bool:
        """Whether a layer can be the input: any greyscale image."""
        return isinstance(layer, Image) and not layer.rgb

    @classmethod
    def prefers(cls, layer: Any) -> bool:
        """Whether a layer is chosen automatically: a scan, denoised or not.

        Results of this job and measurements of other jobs are not.
        """
        made = [job for job, kind in jobs.JOBS.items() if job == cls.job or not kind.gives]
        return cls.accepts(layer) and not any(is_result(layer, job) for job in made)

    @classmethod
    def prepare(cls, target: Target) -> Volume:
        """Return the input volume of the job; runs in the worker's thread."""
        return target.volume

    @classmethod
    def result_layers(cls, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result: its volume as an image; runs in the worker's thread."""
        name = f"{target.volume.name} {jobs.JOBS[cls.job].title.lower()}"
        words = {"placement": target.placement, "provenance": result.provenance}
        return [layer_data(result.volume, **words, **{**target.appearance, "name": name})]

    @classmethod
    def cluster_layers(cls, result: Any, target: Target) -> list[LayerData]:
        """Return the layers of a result saved by a cluster; runs in the worker's thread."""
        return cls.result_layers(result, target)

    def facts(self, volume: Volume) -> str:
        """Return the line about the chosen layer."""
        return volume.facts

    def settings(self) -> Settings:
        """Return the settings for a run.

        Raises InputError if a setting is invalid.
        """
        return self.form.value

    @property
    def resumes(self) -> bool:
        """Whether the run that starts goes on with a cancelled one."""
        return False

    def result_links(self, result: Any) -> list[str]:
        """Return further links below a result, as HTML."""
        return []

    def after_cancel(self) -> str:
        """Return the links shown after a cancel, as HTML; empty if there are none."""
        return ""
