"""The jobs as functions for scripts, each with the types of its result."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from hushpore.base.events import result_of
from hushpore.base.provenance import fingerprint
from hushpore.base.volume import as_volume
from hushpore.jobs import JOBS, run, start

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.events import Job
    from hushpore.base.volume import VolumeLike
    from hushpore.denoising.result import Denoised
    from hushpore.device.backend import Backend
    from hushpore.patches.result import Patches
    from hushpore.pores.phases.result import Phases
    from hushpore.pores.result import Pores


def denoise(volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any) -> Denoised:
    """Denoise a volume with a network trained on the volume itself.

    Trains by recorruption with simulated noise (R2R), or with blind spots (N2V2) if the noise
    cannot be characterised.

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

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> noisy = np.random.default_rng(0).normal(100, 10, (3, 32, 32)).astype(np.float32)
    >>> result = hushpore.denoise(noisy, steps=1, patch_size=16, device="cpu")
    >>> result.volume.shape
    (3, 32, 32)
    """
    result: Denoised = run("denoise", volume, settings, device)
    return result


def train_together(
    volumes: Sequence[VolumeLike], *, device: str | Backend = "auto", **settings: Any
) -> Denoised:
    """Train one denoising network on several scans, to apply it to each.

    The network trains on the middles of the scans, see
    `hushpore.denoising.images.join_scans`. Use it for scans of one kind of sample, from the same
    scanner with the same settings: their grey values and noise are treated as alike.

    Parameters
    ----------
    volumes : sequence of Volume or array_like
        At least two, 2D or 3D, with the same voxel size.
    device : str, optional
        As for `denoise`.
    **settings
        As for `denoise`.

    Returns
    -------
    Denoised
        With the ``model``, to be given to `denoise` as ``model`` once it is saved, and the middles
        of the scans as the times of ``volume``. ``provenance["trained_on"]`` lists the scans.

    Raises
    ------
    InputError
        If the scans cannot be joined, or a setting cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> scans = np.random.default_rng(0).normal(100, 10, (2, 3, 32, 32))
    >>> result = hushpore.train_together(list(scans), steps=1, patch_size=16, device="cpu")
    >>> len(result.provenance["trained_on"])
    2
    """
    result: Denoised = result_of(start_together(volumes, settings, device))
    return result


def start_together(
    volumes: Sequence[VolumeLike], settings: Mapping[str, Any], device: str | Backend = "auto"
) -> Job:
    """Yield the events of `train_together`, and return its result."""
    from hushpore.denoising.images import join_scans

    scans = [as_volume(each) for each in volumes]
    result: Denoised = yield from start("denoise", join_scans(scans), settings, device)
    result.provenance["trained_on"] = [
        {
            "name": each.name, "source": each.source, "shape": list(each.shape),
            "blake2b": fingerprint(each.data),
        }
        for each in scans
    ]  # fmt: skip
    return result


def segment_pores(
    volume: VolumeLike,
    *,
    device: str | Backend = "auto",
    device_result: bool = False,
    **settings: Any,
) -> Pores:
    """Segment and measure the pores of a volume.

    Parameters
    ----------
    volume : Volume or array_like
        2D or 3D grey values, or a boolean mask of the void.
    device : str, optional
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    device_result : bool, optional
        Whether the labels also stay in GPU memory, as ``device_labels``, a CuPy array: 4 bytes per
        voxel. None if pores were segmented on the CPU, or on the GPU in slabs.
    **settings
        See `hushpore.pores.settings.PoreSettings`; among them ``threshold`` (a method's name or
        a number), ``pore_type`` (``"all"``, ``"open"`` or ``"closed"``) and ``merge_height``
        (voxels).

    Returns
    -------
    Pores
        With ``labels`` (int32, 0 is not pore), ``pores`` (a table), ``porosity``, ``timings``
        and ``provenance``.

    Raises
    ------
    InputError
        If the volume or a setting cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> void = np.zeros((9, 9, 9), bool)
    >>> void[3:6, 3:6, 3:6] = True
    >>> found = hushpore.segment_pores(void, device="cpu")
    >>> found.headline.split(" · ")[:2]
    ['Porosity 3.7 % (open 0.0 %, closed 3.7 %)', '1 pore']
    """
    if device_result:
        if isinstance(device, str):
            device = JOBS["pores"].backend(device, as_volume(volume).shape)
        device = dataclasses.replace(device, keeps_labels=True)
    result: Pores = run("pores", volume, settings, device)
    return result


def measure_labels(volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any) -> Pores:
    """Measure labels made by another program, without a threshold or a watershed.

    Parameters
    ----------
    volume : Volume or array_like
        2D or 3D labels, one whole number above 0 for each pore; or a mask, or a probability map
        from 0 to 1, whose connected components are the pores.
    device : str, optional
        As for `denoise`; the job always runs on the CPU.
    **settings
        See `hushpore.pores.labelled.settings.MeasureSettings`; among them ``image`` (the scan, for
        grey values), ``sample_mask`` and ``values`` (what the values are).

    Returns
    -------
    Pores
        As for `segment_pores`. Labels with gaps are renumbered; the column ``given_label`` has
        their numbers.

    Raises
    ------
    InputError
        If the volume holds grey values, or a setting cannot be used.
    MemoryLimitError
        If the volume does not fit into memory.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> labels = np.zeros((8, 8, 8), np.uint8)
    >>> labels[2:5, 2:5, 2:5], labels[5:7, 2:5, 2:5] = 1, 2
    >>> found = hushpore.measure_labels(labels, values="labels")
    >>> found.pores["num_voxels"].tolist(), len(found.throats)
    ([27, 18], 1)
    """
    result: Pores = run("measure", volume, settings, device)
    return result


def measure_phases(
    volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any
) -> Phases:
    """Separate and measure up to eight phases of a volume and the contacts between them.

    Parameters
    ----------
    volume : Volume or array_like
        2D or 3D grey values, or integer labels with ``are_labels=True``.
    device : str, optional
        As for `denoise`; the job always runs on the CPU.
    **settings
        See `hushpore.pores.phases.settings.PhaseSettings`; among them ``phases`` (their number),
        ``thresholds`` (grey values between them), ``names`` and ``thickness``.

    Returns
    -------
    Phases
        With ``labels`` (uint8, 0 is outside the sample), ``phases`` and ``contacts`` (tables),
        ``thickness``, ``timings`` and ``provenance``.

    Raises
    ------
    InputError
        If the volume or a setting cannot be used.
    MemoryLimitError
        If the volume does not fit into memory.

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> labels = np.repeat(np.array([1, 2], np.uint8), 32).reshape(4, 4, 4)
    >>> hushpore.measure_phases(labels, are_labels=True, names="clay, quartz").headline
    '2 phases · clay 50 % · quartz 50 %'
    """
    result: Phases = run("phases", volume, settings, device)
    return result


def sample_patches(
    volume: VolumeLike, *, device: str | Backend = "auto", **settings: Any
) -> Patches:
    """Sample training patches of a volume as the denoiser does.

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

    Examples
    --------
    >>> import numpy as np
    >>> import hushpore
    >>> found = hushpore.sample_patches(np.zeros((3, 32, 32)), n_patches=5, patch_size=16)
    >>> found.patches.shape
    (5, 16, 16)
    """
    result: Patches = run("patches", volume, settings, device)
    return result
