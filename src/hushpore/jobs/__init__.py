"""The dictionary of jobs, and the two ways to use it: `start` and `run`.

A job is a generator: it yields events and returns its result. The napari worker, the command line
and a test all drive the same one. ``close()`` cancels it, and nothing is half-written after that.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.events import result_of
from hushpore.base.preferences import preferred
from hushpore.base.settings import Settings
from hushpore.base.volume import Volume, VolumeLike, as_volume
from hushpore.device.backend import Backend, choose_backend
from hushpore.n2v2.settings import DenoiseSettings
from hushpore.patches.settings import PatchSettings
from hushpore.pores.settings import PoreSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.events import Event, Job
    from hushpore.n2v2.result import Denoised
    from hushpore.patches.result import Patches
    from hushpore.pores.result import Pores


@dataclass(frozen=True)
class Kind:
    """One entry of the dictionary of jobs.

    Attributes
    ----------
    title : str
        What it does, as a button says it.
    settings : type of Settings
        Its settings.
    generator : str
        ``"module:function"`` of its generator, imported when it is first used, because the
        libraries behind it take seconds to load.
    on_gpu : bool
        Whether ``"auto"`` takes a GPU; else it is the CPU, and a GPU is used where it is asked for.
    """

    title: str
    settings: type[Settings]
    generator: str
    on_gpu: bool = True

    def backend(self, device: str) -> Backend:
        """Choose where it runs."""
        if device == "auto" and not self.on_gpu and preferred("device").value == "auto":
            # to look for a GPU is to import PyTorch, which takes seconds
            return Backend(reason="a GPU is used where it is asked for")
        return choose_backend(device)

    def load(self) -> Callable[[Any, Any, Backend], Job]:
        """Import the generator."""
        module, _, function = self.generator.partition(":")
        loaded: Callable[[Any, Any, Backend], Job] = getattr(import_module(module), function)
        return loaded


JOBS: dict[str, Kind] = {
    "denoise": Kind("Denoise", DenoiseSettings, "hushpore.n2v2.job:denoise"),
    "pores": Kind("Segment pores", PoreSettings, "hushpore.pores.job:segment_pores", False),
    "patches": Kind("Show patches", PatchSettings, "hushpore.n2v2.inspection:inspect_patches"),
}


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
    if job not in JOBS:
        raise InputError(f"There is no job {job!r}. Available: {', '.join(JOBS)}.")
    kind = JOBS[job]
    volume = as_volume(image)
    if not isinstance(settings, Settings):
        volume, values = _attach(volume, kind.settings, settings or {})
        settings = kind.settings.of(values)
    for opt in settings.options():
        if opt.auxiliary:
            # what does not fit is said before anything runs
            volume.auxiliary_of(settings, opt.name)
    backend = device if isinstance(device, Backend) else kind.backend(device)
    return kind.load()(volume, settings, backend)


def _attach(
    volume: Volume, kind: type[Settings], values: Mapping[str, Any]
) -> tuple[Volume, dict[str, Any]]:
    """Lay arrays given as settings beside the volume, each under the name of its setting."""
    named = dict(values)
    auxiliary = {}
    for opt in kind.options():
        given = named.get(opt.name)
        if opt.auxiliary and given is not None and not isinstance(given, str):
            auxiliary[opt.name] = given.data if isinstance(given, Volume) else given
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
    """Denoise a volume with N2V2, trained on the volume itself.

    Parameters
    ----------
    volume : Volume or array_like
        2D, 3D, or with leading time and channel axes; any real dtype.
    device : str, optional
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    **settings
        See `hushpore.n2v2.settings.DenoiseSettings`; among them ``dimensions`` (2 or 3),
        ``time_budget`` (seconds, or None) and ``seed``.

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
