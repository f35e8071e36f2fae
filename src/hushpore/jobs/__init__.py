"""The dictionary of jobs, and the two ways to use it: `start` and `run`.

A job is a generator: it yields events and returns its result. The napari worker, the command line
and a test all drive the same one. ``close()`` cancels it, and nothing is half-written after that.

All that is special to a job stands in its entry of `JOBS`. Command, settings file, preset, batch,
rerun, report, documentation and widget are made from it.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.extensions import Registry
from hushpore.base.preferences import preferred
from hushpore.base.settings import Settings
from hushpore.base.volume import Volume, VolumeLike, as_volume
from hushpore.device.backend import Backend, choose_backend
from hushpore.device.resident import Resident
from hushpore.pores.tables.totals import TOTALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hushpore.base.events import Event, Job
    from hushpore.denoising.result import Denoised
    from hushpore.patches.result import Patches
    from hushpore.pores.phases.result import Phases
    from hushpore.pores.result import Pores


def load(name: str) -> Any:
    """Import the function or class ``"module:name"``, when it is first used.

    The libraries behind a job take seconds to load, and what lies above it imports this.
    """
    return pkgutil.resolve_name(name)


@dataclass(frozen=True)
class ExtraFile:
    """A file that a command writes beside the result of its job, where it is asked for."""

    name: str  # as in ``--save-model``, with underscores
    help: str  # what it is, with the endings of its name
    # ``"module:function"``: called with path and overwrite before any work; returns the path or
    # raises
    checker: str
    # ``"module:function"``: called with path, result, the volume that was read, and overwrite
    writer: str
    # ``"module:function"``: called with the volume and the settings before the job runs; raises
    # where no such file could be made of its result. Empty where one always can
    check: str = ""
    # why it cannot be written of a result on a cluster, after its flag; empty where it can
    not_on_cluster: str = ""

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class JobDescription:
    """One entry of the dictionary of jobs: all that front ends need to know of a job."""

    title: str  # what it does, as a button says it
    settings_class: str  # ``"module:class"`` of its settings
    # ``"module:function"`` of its generator, which returns a `hushpore.base.events.Result`
    generator: str
    # whether ``"auto"`` takes a GPU; else it is the CPU, and a GPU is used where it is asked for
    on_gpu: bool = True
    on_apple: bool = False  # whether it can run on Apple's GPU; else it is the CPU there
    # ``"module:function"`` that says why a volume of a shape is not worth a GPU, of a job that
    # compares a GPU with the CPU by itself at ``"auto"``, where CuPy is installed
    gpu_problem: str = ""
    purpose: str = ""  # a sentence or two at the top of its widget
    # a line in the list of commands, and the text of its own page of help, where PATH is the scan
    short_help: str = ""
    help: str = ""
    # name of the image that it makes, for a job whose result has that as ``volume``: by itself it
    # is written as a file, and the next job of a chain works on it. Empty for a job whose result is
    # a folder.
    gives: str = ""
    share: float = 1.0  # how long it takes, compared with other jobs of a chain
    # entries of ``provenance["result"]`` that the summary of a batch shows; empty: all of them that
    # are numbers or words
    figures: tuple[str, ...] = ()
    # ``"module:function"`` that makes further ones of ``provenance["result"]``, by their columns;
    # empty: there are none
    more_figures: str = ""
    # ``"module:function"`` that makes figures and pages of a result folder; empty: there are none
    report: str = "hushpore.runs.report_page:job_report"
    extras: tuple[ExtraFile, ...] = ()  # further files that its command offers
    # ``"module:function"`` that changes the settings of a result, so that the same comes out again:
    # called with them, the provenance of the job, and the file in which that is; raises where it
    # cannot
    repeat: str = ""
    # ``"module:function"`` that runs it on a cluster, as `hushpore.cluster.denoising.denoise_on` is
    # called; empty where it cannot run there
    cluster: str = ""
    # ``"module:function"`` that raises where the job cannot work on a volume, called with that, of
    # which no value is read yet, and the settings. Empty where only the job itself finds out
    check: str = ""
    # ``"module:function"`` that says how long it will take, called with the settings, the volume
    # and the device that is asked for; and one that remembers how long it took, called with the
    # settings, that device and the provenance. Empty where nothing is said
    expected_time: str = ""
    keep_time: str = ""
    ends_early_in: str = ""  # stage that can be cut short with a result; empty where there is none

    def backend(self, device: str, shape: Sequence[int] | None = None) -> Backend:
        """Choose where it runs.

        `shape`: of the volume that it is to run on, where that is known.
        """
        if device == "auto" and not self.on_gpu and preferred("device").value == "auto":
            # to look for a GPU is to import PyTorch, which takes seconds
            if not self.gpu_problem:
                return Backend(reason="choose CUDA to use the GPU")
            if find_spec("cupy") is None:
                return Backend(reason="GPU needs CuPy: not installed")
            problem = "" if shape is None else load(self.gpu_problem)(shape)
            if problem:
                return Backend(reason=problem)
            found = choose_backend(device)
            return dataclasses.replace(found, on_trial=found.is_cuda)
        found = choose_backend(device)
        if found.is_apple and not self.on_apple:
            return Backend(reason="Apple's GPU is for denoising")
        return found

    @property
    def settings(self) -> type[Settings]:
        """Its settings, imported when they are first asked for."""
        found: type[Settings] = load(self.settings_class)
        return found

    def load(self) -> Callable[[Any, Any, Backend], Job]:
        """Import the generator."""
        found: Callable[[Any, Any, Backend], Job] = load(self.generator)
        return found


_IN_MEMORY = (
    "needs the whole scan in memory, and cannot go with --cluster. Keep the model with "
    "--save-model, and use that on a part of the scan."
)
_MODEL_CHECK = "hushpore.denoising.tensor_file:check_file_target"

#: The jobs by name.
JOBS = Registry("jobs", JobDescription, {
    "denoise": JobDescription(
        "Denoise",
        "hushpore.denoising.settings:DenoiseSettings",
        "hushpore.denoising.job:denoise",
        on_apple=True,
        purpose="Trains on this scan and removes its noise. No clean reference needed.",
        short_help="Denoise a stack by training a network on the stack itself.",
        help="Denoise the stack in PATH by training a network on the stack itself.\n\n"
        "Writes an image and a JSON record of the job.",
        gives="denoised",
        share=7.0,
        extras=(
            ExtraFile(
                "save_model", "Save the trained model (.safetensors).", _MODEL_CHECK,
                "hushpore.runs.extra_files:save_model",
            ),
            ExtraFile(
                "export_model",
                "BioImage Model Zoo package (.zip); needs --context 0 or --dimensions 3.",
                "hushpore.denoising.export:check_package",
                "hushpore.runs.extra_files:export_model",
                "hushpore.runs.extra_files:check_export", _IN_MEMORY,
            ),
            ExtraFile(
                "picture", "Figure of the removed noise and the loss curve (.png).", _MODEL_CHECK,
                "hushpore.runs.extra_files:save_picture", not_on_cluster=_IN_MEMORY,
            ),
        ),
        repeat="hushpore.denoising.reproduce:repeated_denoising",
        cluster="hushpore.cluster.denoising:denoise_on",
        expected_time="hushpore.denoising.time_estimate:expected_time",
        keep_time="hushpore.denoising.time_estimate:store_timings",
        ends_early_in="training",
    ),
    "pores": JobDescription(
        "Segment pores",
        "hushpore.pores.settings:PoreSettings",
        "hushpore.pores.job:segment_pores",
        on_gpu=False,
        gpu_problem="hushpore.pores.gpu.device_benchmark:problem_of_shape",
        purpose="Finds pores, splits them at narrow necks (watershed) and measures them.",
        short_help="Segment and measure the pores of a stack.",
        help="Segment and measure the pores of the stack in PATH.\n\n"
        "Writes tables, labels.tif, report.html and result.json.",
        figures=(*(total.name for total in TOTALS), "exterior", "exterior_share", "unit"),
        report="hushpore.runs.report_page:pore_report",
        cluster="hushpore.cluster.segmenting:segment_on",
    ),
    "phases": JobDescription(
        "Measure phases",
        "hushpore.pores.phases.settings:PhaseSettings",
        "hushpore.pores.phases.job:measure_phases",
        on_gpu=False,
        purpose="Separates up to eight materials by grey value, or uses labels, and measures them "
        "and their contacts.",
        short_help="Separate and measure up to eight phases.",
        help="Separate and measure the phases of the stack in PATH: volume fractions, thickness, "
        "contacts.\n\nWrites tables, phases.tif, report.html and result.json.",
        report="hushpore.runs.report_page:phase_report",
        more_figures="hushpore.pores.phases.measures:figures_of",
        check="hushpore.pores.phases.job:check_volume",
    ),
    "patches": JobDescription(
        "Show patches",
        "hushpore.patches.settings:PatchSettings",
        "hushpore.denoising.inspection:inspect_patches",
        purpose="Inspect training patches: where they are, which pixels are masked, which have "
        "high loss.",
        short_help="Sample training patches as a denoiser does, for inspection.",
        help="Sample patches of the stack in PATH as a denoiser does, for inspection.\n\n"
        "Writes a contact sheet, coordinates and features.",
        repeat="hushpore.denoising.reproduce:repeated_patches",
        report="",
        extras=(
            ExtraFile(
                "save_patches", "Save the patches as a data set (.npz or .zarr).",
                "hushpore.runs.extra_files:check_data_set",
                "hushpore.runs.extra_files:save_data_set",
            ),
        ),
    ),
})  # fmt: skip

#: The jobs of ``hushpore run`` and of a batch, one after another.
CHAIN = ("denoise", "pores")

#: The jobs of each command that sends many scans through the same settings.
BATCHES = {"batch": CHAIN, "batch-phases": ("denoise", "phases")}


def check_chain(jobs: Sequence[str]) -> None:
    """Check that each of some jobs can work on what the one before it gives.

    Raises InputError if there is no such job, or one gives no image for the next.
    """
    for job in jobs:
        if job not in JOBS:
            raise InputError(f"There is no job {job!r}. Available: {', '.join(JOBS)}.")
    for job, following in pairwise(jobs):
        if not JOBS[job].gives:
            raise InputError(
                f"{JOBS[job].title} makes no image, and {following!r} cannot follow it. Jobs that "
                f"make one: {', '.join(name for name, kind in JOBS.items() if kind.gives)}."
            )


def is_one_image(jobs: Sequence[str]) -> bool:
    """Whether what some jobs make, one after another, is a file and not a folder."""
    return len(jobs) == 1 and bool(JOBS[jobs[0]].gives)


def start(
    job: str,
    image: VolumeLike,
    settings: Settings | Mapping[str, Any] | None = None,
    device: str | Backend = "auto",
) -> Job:
    """Make a job, ready to be driven; nothing runs before its first ``next``.

    Parameters
    ----------
    job : str
        A key of `JOBS`.
    image : Volume or array_like
        What to work on.
    settings : Settings or mapping, optional
        Its settings; what is left out has its default. In a mapping, a setting that names
        something beside the volume may be the array itself.
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
    """
    check_chain((job,))
    kind = JOBS[job]
    volume = as_volume(image)
    if not isinstance(settings, Settings):
        volume, values = _attach(volume, kind.settings, settings or {})
        settings = kind.settings.of(values)
    for opt in settings.options():
        if opt.auxiliary:
            # what does not fit is said before anything runs
            volume.auxiliary_of(settings, opt.name)
    backend = device if isinstance(device, Backend) else kind.backend(device, volume.shape)
    return kind.load()(volume, settings, backend)


@contextmanager
def chained(device: str) -> Iterator[Callable[[str], Backend]]:
    """Give the backends of jobs that run one after another, each on the image of the one before.

    An image that one makes on a GPU stays there for the next, at the latest until the end of the
    ``with`` block.

    `device`: as for `start`.
    Yields: a function that returns the backend of a job.
    """
    with Resident() as resident:
        yield lambda job: dataclasses.replace(JOBS[job].backend(device), resident=resident)


def _attach(
    volume: Volume, kind: type[Settings], values: Mapping[str, Any]
) -> tuple[Volume, dict[str, Any]]:
    """Lay arrays given as settings beside the volume, each under the name of its setting."""
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
    """Run a job to its end and return its result; parameters as for `start`.

    Parameters
    ----------
    on_event : callable, optional
        Called with every event, in this thread.
    """
    return result_of(start(job, image, settings, device), on_event)


def denoise(volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any) -> Denoised:
    """Denoise a volume with a network that learns from the volume itself.

    With more noise like that of the volume (R2R); where its noise cannot be told for sure, with
    hidden pixels (N2V2).

    Parameters
    ----------
    volume : Volume or array_like
        2D, 3D, or with leading time and channel axes; any real dtype.
    device : str, optional
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    **settings
        See `hushpore.denoising.settings.DenoiseSettings`; among them ``dimensions`` (2 or 3),
        ``method``, ``time_budget`` (seconds, or None) and ``seed``.

    Returns
    -------
    Denoised
        With ``volume`` (float32, same geometry), ``model``, ``timings`` and ``provenance``.

    Raises
    ------
    InputError
        If the volume or a setting cannot be used.
    """
    result: Denoised = run("denoise", volume, settings, device)
    return result


def segment_pores(volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any) -> Pores:
    """Segment and measure the pores of a volume.

    Parameters
    ----------
    volume : Volume or array_like
        2D or 3D grey values, or a boolean volume, which is taken as the void itself.
    device : str, optional
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    **settings
        See `hushpore.pores.settings.PoreSettings`; among them ``threshold`` (a method's name or
        a number), ``mode`` (``"all"``, ``"open"`` or ``"closed"``) and ``h`` (voxels).

    Returns
    -------
    Pores
        With ``labels`` (int32, 0 is not pore), ``pores`` (a table), ``porosity``, ``timings``
        and ``provenance``.

    Raises
    ------
    InputError
        If the volume or a setting cannot be used.
    """
    result: Pores = run("pores", volume, settings, device)
    return result


def measure_phases(
    volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any
) -> Phases:
    """Tell up to eight phases of a volume apart, and measure each and where they touch.

    Parameters
    ----------
    volume : Volume or array_like
        2D or 3D grey values; or labels, whole numbers, with ``are_labels=True``.
    device : str, optional
        As for `denoise`; it runs on the CPU.
    **settings
        See `hushpore.pores.phases.settings.PhaseSettings`; among them ``phases`` (their number),
        ``thresholds`` (grey values between them), ``names`` and ``thickness``.

    Returns
    -------
    Phases
        With ``labels`` (uint8, 0 is not of the sample), ``phases`` and ``contacts`` (tables),
        ``thickness``, ``timings`` and ``provenance``.

    Raises
    ------
    InputError
        If the volume or a setting cannot be used.
    MemoryLimitError
        If it does not fit into memory in one piece.
    """
    result: Phases = run("phases", volume, settings, device)
    return result


def sample_patches(
    volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any
) -> Patches:
    """Draw patches at random from a volume, as the denoiser does.

    Parameters
    ----------
    volume : Volume or array_like
        2D, 3D, or with leading axes.
    device : str, optional
        As for `denoise`.
    **settings
        See `hushpore.patches.settings.PatchSettings`.

    Returns
    -------
    Patches
        With ``corners`` and ``patches``.
    """
    result: Patches = run("patches", volume, settings, device)
    return result
