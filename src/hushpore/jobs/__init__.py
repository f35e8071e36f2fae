"""The registry of jobs, and the functions that run them: `start` and `run`.

A job is a generator that yields events and returns its result. The window, the command line and
tests all drive the same generator. ``close()`` cancels it and leaves no partial files.

Everything specific to a job is in its entry of `JOBS`. Command, settings file, preset, batch,
rerun, report, documentation and widget are made from that entry.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError, Registry, import_optional
from hushpore.base.events import result_of
from hushpore.base.preferences import preferred
from hushpore.base.settings import Settings
from hushpore.base.volume import Volume, VolumeLike, as_volume
from hushpore.device.backend import Backend, choose_backend
from hushpore.pores.tables.totals import TOTALS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hushpore.base.events import Event, Job


def load(name: str) -> Any:
    """Import the function or class ``"module:name"``.

    Called on first use: the libraries behind a job take seconds to load.
    Raises MissingPackageError if it needs PyTorch and that is not installed.
    """
    try:
        return pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            import_optional("torch", "The denoiser", "denoise")
        raise


@dataclass(frozen=True)
class ExtraFile:
    """An optional file that a command writes beside the result of its job."""

    name: str  # as in ``--save-model``, with underscores
    help: str  # content, with the suffixes
    # ``"module:function"``: called with path and overwrite before the job; returns the path or
    # raises an error
    checker: str
    # ``"module:function"``: called with path, result, input volume and overwrite
    writer: str
    # why it cannot be written on a cluster, as text after the flag; empty if it can
    not_on_cluster: str = ""

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")


_NO_GPU = "this job uses no GPU"


@dataclass(frozen=True)
class JobDescription:
    """An entry of the registry of jobs, with everything that front ends need."""

    title: str  # of the command and the widget, an imperative
    settings_class: str  # ``"module:class"`` of its settings
    # ``"module:function"`` of its generator, which returns a `hushpore.base.events.Result`
    generator: str
    function: str = ""  # its name in `hushpore`; empty for jobs that only `run` runs
    # whether ``"auto"`` uses a GPU; else a GPU is used on request only
    on_gpu: bool = True
    cpu_only: bool = False  # whether it never uses a GPU
    on_apple: bool = False  # whether it can run on Apple's GPU
    # ``"module:function"`` that returns why a volume of a shape should not use the GPU; for jobs
    # that benchmark GPU and CPU at ``"auto"`` if CuPy is installed
    gpu_problem: str = ""
    purpose: str = ""  # text at the top of the widget
    # help in the list of commands, and of the command itself, where PATH is the scan
    short_help: str = ""
    help: str = ""
    # name of the output image, for jobs with an image as ``volume`` of their result: alone it is
    # written as a file, in a chain it is the input of the next job. Empty for result folders.
    gives: str = ""
    share: float = 1.0  # relative duration within a chain of jobs
    # entries of ``provenance["result"]`` in the summary of a batch; empty: all numbers and texts
    figures: tuple[str, ...] = ()
    # ``"module:function"`` that derives further columns from ``provenance["result"]``; may be empty
    more_figures: str = ""
    # ``"module:function"`` that makes figures and pages of a result folder; may be empty
    report: str = "hushpore.runs.report_page:job_report"
    extras: tuple[ExtraFile, ...] = ()  # optional files of the command
    # ``"module:function"`` that adapts recorded settings for a rerun: called with the settings, the
    # record of the job and the path of the record; raises an error if it cannot be reproduced
    repeat: str = ""
    # ``"module:function"`` that makes recorded corrections by hand again: called with the result of
    # a rerun and the record of the job, returns the corrected result; may be empty
    correct: str = ""
    # ``"module:function"`` that runs it on a cluster, with the signature of
    # `hushpore.cluster.denoising.denoise_on`; empty if it cannot run there
    cluster: str = ""
    # ``"module:function"`` that checks a lazy volume and the settings before the scan is read, and
    # raises an error if the job cannot process it; may be empty
    check: str = ""
    # ``"module:function"`` that estimates the duration from settings, volume and device, and one
    # that stores the measured duration, called with settings, device and record; may be empty
    expected_time: str = ""
    keep_time: str = ""
    ends_early_in: str = ""  # stage that can be finished early; may be empty

    def backend(self, device: str, shape: Sequence[int] | None = None) -> Backend:
        """Choose the device of the job.

        `shape`: of the input volume, if known.
        """
        if device == "auto" and not self.on_gpu and preferred("device").value == "auto":
            # looking for a GPU imports PyTorch, which takes seconds
            if not self.gpu_problem:
                return Backend(reason=_NO_GPU if self.cpu_only else "choose CUDA to use the GPU")
            if find_spec("cupy") is None:
                return Backend(reason="GPU needs CuPy: not installed")
            problem = "" if shape is None else load(self.gpu_problem)(shape)
            if problem:
                return Backend(reason=problem)
        found = choose_backend(device)
        if self.cpu_only:
            found = Backend(reason=_NO_GPU)
        elif found.is_apple and not self.on_apple:
            found = Backend(reason="Apple's GPU is used for denoising only")
        return found

    @property
    def settings(self) -> type[Settings]:
        """The class of the settings, imported on first use."""
        found: type[Settings] = load(self.settings_class)
        return found

    def load(self) -> Callable[[Any, Any, Backend], Job]:
        """Import the generator."""
        found: Callable[[Any, Any, Backend], Job] = load(self.generator)
        return found


_IN_MEMORY = (
    "needs the whole scan in memory and cannot be combined with --cluster. Save the model with "
    "--save-model and apply it to a part of the scan."
)
_MODEL_CHECK = "hushpore.denoising.trained_model:check_file_target"

_FIGURES = (*(total.name for total in TOTALS), "exterior", "exterior_share", "unit", "limits")

#: The jobs by name.
JOBS = Registry("jobs", JobDescription, {
    "denoise": JobDescription(
        "Denoise",
        "hushpore.denoising.settings:DenoiseSettings",
        "hushpore.denoising.job:denoise",
        "denoise",
        on_apple=True,
        purpose="Removes noise, trained on this scan.",
        short_help="Denoise a stack by training a network on the stack itself.",
        help="Denoise the stack in PATH by training a network on the stack itself.\n\n"
        "Writes an image and a JSON record of the job.",
        gives="denoised",
        share=7.0,
        extras=(
            ExtraFile(
                "save_model", "Save the trained model (.safetensors).", _MODEL_CHECK,
                "hushpore.runs.result_folder:save_model",
            ),
            ExtraFile(
                "picture", "Figure of the removed noise and the loss curve (.png).", _MODEL_CHECK,
                "hushpore.runs.result_folder:save_picture", not_on_cluster=_IN_MEMORY,
            ),
        ),
        repeat="hushpore.denoising.trained_model:repeated_denoising",
        cluster="hushpore.cluster.denoising:denoise_on",
        expected_time="hushpore.denoising.settings:expected_time",
        keep_time="hushpore.denoising.settings:store_timings",
        ends_early_in="training",
    ),
    "pores": JobDescription(
        "Segment pores",
        "hushpore.pores.settings:PoreSettings",
        "hushpore.pores.job:segment_pores",
        "segment_pores",
        on_gpu=False,
        gpu_problem="hushpore.pores.gpu.engines:problem_of_shape",
        purpose="Finds, splits and measures pores.",
        short_help="Segment and measure the pores of a stack.",
        help="Segment and measure the pores of the stack in PATH.\n\n"
        "Writes tables, labels.tif, report.html and result.json.",
        figures=_FIGURES,
        more_figures="hushpore.pores.forms.limits:figures_of",
        report="hushpore.runs.report_page:pore_report",
        correct="hushpore.pores.corrections.session:repeat_corrections",
        cluster="hushpore.cluster.segmenting:segment_on",
    ),
    "measure": JobDescription(
        "Measure labels",
        "hushpore.pores.labelled.settings:MeasureSettings",
        "hushpore.pores.labelled.job:measure_labels",
        "measure_labels",
        on_gpu=False,
        cpu_only=True,
        purpose="Measures labels of other programs.",
        short_help="Measure labels made by another program.",
        help="Measure the labels, the mask or the probability map in PATH, made by another "
        "program.\n\nWrites tables, labels.tif, report.html and result.json.",
        figures=_FIGURES,
        more_figures="hushpore.pores.forms.limits:figures_of",
        report="hushpore.runs.report_page:pore_report",
        correct="hushpore.pores.corrections.session:repeat_corrections",
    ),
    "phases": JobDescription(
        "Measure phases",
        "hushpore.pores.phases.settings:PhaseSettings",
        "hushpore.jobs.phases:measure_phases",
        "measure_phases",
        on_gpu=False,
        cpu_only=True,
        purpose="Measures up to eight materials.",
        short_help="Separate and measure up to eight phases.",
        help="Separate and measure the phases of the stack in PATH: volume fractions, thickness, "
        "contacts.\n\nWrites tables, phases.tif, report.html and result.json.",
        report="hushpore.runs.report_page:phase_report",
        repeat="hushpore.jobs.phases:repeated_phases",
        more_figures="hushpore.pores.phases.measures:figures_of",
        cluster="hushpore.cluster.phases:phases_on",
        check="hushpore.jobs.phases:check_volume",
    ),
    "patches": JobDescription(
        "Show patches",
        "hushpore.patches.settings:PatchSettings",
        "hushpore.denoising.inspection:inspect_patches",
        "sample_patches",
        purpose="Shows training patches and losses.",
        short_help="Sample training patches as a denoiser does, for inspection.",
        help="Sample patches of the stack in PATH as a denoiser does, for inspection.\n\n"
        "Writes a contact sheet, coordinates and features.",
        repeat="hushpore.denoising.trained_model:repeated_patches",
        report="",
        extras=(
            ExtraFile(
                "save_patches", "Save the patches as a data set (.npz or .zarr).",
                "hushpore.runs.result_folder:check_data_set",
                "hushpore.runs.result_folder:save_data_set",
            ),
        ),
    ),
})  # fmt: skip

#: The jobs of ``hushpore run`` and of a batch, in sequence.
CHAIN = ("denoise", "pores")

#: The jobs of each batch command.
BATCHES = {"batch": CHAIN, "batch-phases": ("denoise", "phases"), "batch-measure": ("measure",)}

#: The jobs whose result is labels and tables of pores.
PORE_JOBS = ("pores", "measure")


def check_chain(jobs: Sequence[str]) -> None:
    """Check that jobs can run in sequence.

    Raises InputError if a job is unknown, or makes no image for the next one.
    """
    for job in jobs:
        if job not in JOBS:
            raise InputError(f"Unknown job {job!r}. Available: {', '.join(JOBS)}.")
    for job, following in pairwise(jobs):
        if not JOBS[job].gives:
            raise InputError(
                f"{following!r} cannot follow {JOBS[job].title}, which makes no image. Jobs that "
                f"make an image: {', '.join(name for name, kind in JOBS.items() if kind.gives)}."
            )


def is_one_image(jobs: Sequence[str]) -> bool:
    """Whether the result of jobs in sequence is a single image file, not a folder."""
    return len(jobs) == 1 and bool(JOBS[jobs[0]].gives)


def start(
    job: str,
    image: VolumeLike,
    settings: Settings | Mapping[str, Any] | None = None,
    device: str | Backend = "auto",
) -> Job:
    """Create a job; it starts with the first ``next``.

    Parameters
    ----------
    job : str
        A key of `JOBS`.
    image : Volume or array_like
        The input.
    settings : Settings or mapping, optional
        Settings of the job; missing ones have their defaults. In a mapping, a setting that names
        a mask, markers or a scan may be the array itself.
    device : str or Backend, optional
        See `hushpore.device.backend.choose_backend`.

    Returns
    -------
    generator
        Yields events (`hushpore.base.events`) and returns the result.

    Raises
    ------
    InputError
        If the job, a setting or the image cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> from hushpore.base.events import result_of
    >>> result_of(hushpore.start("pores", np.eye(4) > 0, device="cpu")).porosity
    0.25
    """
    check_chain((job,))
    kind = JOBS[job]
    volume = as_volume(image)
    if not isinstance(settings, Settings):
        volume, values = _attach(volume, kind.settings, settings or {})
        settings = kind.settings.of(values)
    for opt in settings.options():
        if opt.auxiliary:
            # raise errors before the job starts
            volume.auxiliary_of(settings, opt.name)
    backend = device if isinstance(device, Backend) else kind.backend(device, volume.shape)
    return kind.load()(volume, settings, backend)


def _attach(
    volume: Volume, kind: type[Settings], values: Mapping[str, Any]
) -> tuple[Volume, dict[str, Any]]:
    """Attach arrays that were given as settings to the volume, under the names of the settings."""
    named = dict(values)
    auxiliary = {}
    for opt in kind.options():
        given = named.get(opt.name)
        if opt.auxiliary and given is not None and not isinstance(given, str):
            if "scan" in opt.auxiliary:
                # its voxel size must be that of the volume
                given = as_volume(given)
            elif isinstance(given, Volume):
                given = given.data
            auxiliary[opt.name] = given
            named[opt.name] = opt.name
    if not auxiliary:
        return volume, named
    return dataclasses.replace(volume, auxiliary={**volume.auxiliary, **auxiliary}), named


def run(
    job: str,
    image: VolumeLike,
    settings: Settings | Mapping[str, Any] | None = None,
    device: str | Backend = "auto",
    on_event: Callable[[Event], None] | None = None,
) -> Any:
    """Run a job and return its result; parameters as for `start`.

    Parameters
    ----------
    on_event : callable, optional
        Called with each event, in this thread.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> hushpore.run("pores", np.eye(4) > 0, device="cpu").porosity
    0.25
    """
    return result_of(start(job, image, settings, device), on_event)
