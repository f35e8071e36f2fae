"""Settings of the denoiser.

Estimated time of a denoising, from the last run with the same settings on this computer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_duration
from hushpore.base.preferences import SPEEDS
from hushpore.base.settings import Settings, option
from hushpore.patches.settings import explain_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.volume import Volume

#: Fraction of masked pixels in the papers on N2V and N2V2.
PAPER_SHARE = 0.00198

#: Orientations of test-time augmentation, and the largest volume (in voxels) for which it is on by
#: default: there it adds seconds, not minutes.
ORIENTATIONS, AVERAGED = 8, 8_000_000

#: Levels of the network below its top level. Two see 32 pixels to either side; each further level
#: doubles that and quadruples the number of weights.
LEVELS = 2

#: Patch edges are multiples of this: each level halves them.
MULTIPLE = 1 << LEVELS

#: Default edge of a training patch, in pixels.
PATCH = 64

#: Minimum edge of a training patch, in pixels: smaller ones are mostly border.
LEAST_PATCH = 16

#: Maximum number of training steps if neither steps nor a time limit is given.
STEPS = 1500


@dataclass(frozen=True)
class DenoiseSettings(Settings):
    """Settings of a denoising job."""

    dimensions: int = option(
        2, "2: denoise slice by slice (fast). 3: denoise in 3D (slower).", minimum=2, maximum=3
    )
    steps: int | None = option(
        None,
        "Number of training steps. More steps give a cleaner image, with diminishing returns. "
        f"Default: stops when training no longer improves the result, after at most {STEPS:,} "
        "steps; with a time limit only, as many steps as fit.",
        label="Training steps",
        minimum=1,
        step=100,
        of_run=True,
    )
    time_budget: float | None = option(
        None,
        "Stop training after this time, or after the given number of steps if that comes first. "
        "Default: no limit.",
        label="Time limit",
        unit="s",
        minimum=1,
        step=10,
        none="no limit",
        of_run=True,
    )
    seed: int = option(
        0,
        "Seed of the random numbers. Same seed, same result.",
        label="Random seed",
        minimum=0,
        maximum=2**63 - 1,  # the largest seed of PyTorch's generators
        more="Training",
    )
    correlated_along: str = option(
        "none",
        "Direction of line noise: the axis along which stripes, streaks or rings (z) run. N2V2 "
        "then masks a segment of the line around each masked pixel (structN2V).",
        label="Correlation direction",
        choices=("none", "x", "y", "z"),
        more="Noise",
    )
    correlated_reach: int = option(
        4,
        "How far line noise is correlated along its direction, to either side. Increase it if "
        "lines remain in the result.",
        label="Correlation length",
        unit="px",
        minimum=1,
        maximum=32,
        more="Noise",
    )
    correct_rings: bool = option(
        False,
        "Remove ring artefacts around the centre of the slices before denoising. Does nothing if "
        "no rings are found.",
        label="Ring correction",
        more="Noise",
    )
    test_time_augmentation: bool | None = option(
        None,
        f"Average the predictions for {ORIENTATIONS} flipped and rotated copies: less residual "
        f"noise, but applying the network takes {ORIENTATIONS} times as long. Default: on for up "
        f"to {AVERAGED // 1_000_000} million voxels.",
        label="Test-time augmentation",
        more="Result",
    )
    restore_detail: bool = option(
        False,
        "Add back fine detail lost in denoising (N2V2, uncorrelated noise only). Edges and texture "
        "become sharper and keep some noise.",
        label="Detail restoration",
        more="Result",
    )
    model: str = option(
        "",
        "Trained model (.safetensors) to apply instead of training.",
        label="Trained model",
        more="Model",
        path="file",
    )
    checkpoint: str = option(
        "",
        "File (.safetensors) for the state of the training, saved every half minute. An "
        "interrupted run resumes from it; it also serves as a trained model.",
        label="Checkpoint file",
        more="Model",
        path="new file",
    )
    repeat: str = option(
        "",
        "Record (.json) of an earlier run to reproduce: the same steps and learning rates, however "
        "long they take. The time limit is ignored.",
        label="Run to repeat",
        more="Model",
        path="file",
    )
    method: str = option(
        "auto",
        "r2r: adds more noise like that of the scan and learns to predict the scan; for correlated "
        "noise too. n2v2: masks pixels and predicts them from their neighbours; for uncorrelated "
        "noise. n2v: the original Noise2Void, for comparison. auto: r2r; n2v2 for several "
        "channels, line noise, or strong uncorrelated noise; Noise2Noise with a second scan.",
        choices=("auto", "r2r", "n2v2", "n2v"),
        choice_labels=("Automatic", "R2R", "N2V2", "N2V"),
        more="Noise",
    )
    pair: str = option(
        "",
        "Repeat scan of the sample, or the other half of the projections (Noise2Noise). The two "
        "scans are trained on each other, and their mean is denoised. In file names, {name} stands "
        "for the name of the scan.",
        label="Paired scan",
        auxiliary=("scan",),
        more="Noise",
    )
    context: int | None = option(
        None,
        "Number of neighbouring slices on either side that the network sees as extra channels "
        "(2.5D). For 2D only. Default: 2, or 0 if slices lie far apart or differ from their "
        "neighbours.",
        label="Context slices",
        unit="slices",
        minimum=0,
        maximum=8,
        more="Training",
    )
    channels: str = option(
        "independent",
        "independent: denoise each channel separately. together: denoise all channels with one "
        "network; for channels that show the same structures with independent noise.",
        choices=("independent", "together"),
        choice_labels=("Separately", "Together"),
        more="Training",
    )
    replacement: str = option(
        "auto",
        "Replacement value for masked pixels: the median or mean of their neighbours, or a random "
        "neighbour (uniform). auto: uniform for n2v, otherwise median.",
        label="Replacement value",
        choices=("auto", "median", "mean", "uniform"),
        choice_labels=("Automatic", "Median", "Mean", "Random neighbour"),
        more="Training",
    )
    replacement_window: int = option(
        5,
        "Edge of the neighbourhood for replacement values; an odd number.",
        unit="px",
        minimum=3,
        maximum=11,
        step=2,
        more="Training",
    )
    masked_share: float | str = option(
        0.08,
        "Fraction of the pixels of a patch that are masked (blind spots). paper: 0.00198, as in "
        "the papers on N2V and N2V2.",
        label="Masked fraction",
        choices=("paper",),
        choice_labels=("As published (0.2 %)",),
        minimum=0.0005,
        maximum=0.2,
        step=0.005,
        more="Training",
    )
    patch_size: int | None = option(
        None,
        f"Edge of a training patch in y and x; a multiple of {MULTIPLE}. Default: {PATCH}, or less "
        "in smaller images.",
        unit="px",
        minimum=LEAST_PATCH,
        maximum=512,
        step=MULTIPLE,
        more="Training",
    )
    patch_depth: int = option(
        16,
        f"Depth of a training patch in z, for 3D; a multiple of {MULTIPLE}.",
        unit="slices",
        minimum=MULTIPLE,
        maximum=128,
        step=MULTIPLE,
        more="Training",
    )
    batch_size: int | None = option(
        None,
        "Number of patches in one training step. Default: 16 in 2D, 4 in 3D.",
        minimum=1,
        maximum=1024,
        more="Training",
    )
    learning_rate: float = option(
        4e-3,
        "Maximum learning rate: reached after a warm-up, constant for most of the training, then "
        "reduced to 0.",
        minimum=1e-6,
        maximum=1.0,
        step=1e-4,
        more="Training",
    )
    train_at: str = option(
        "",
        "Points or labels to which training is limited: patches are centred on points, or drawn in "
        "proportion to their overlap with labels.",
        label="Training regions",
        auxiliary=("points", "labels"),
        more="Training",
    )
    sample_focus: bool = option(
        True,
        "Estimate the noise and the grey scale in the sample, and draw most training patches "
        "there, if it fills less than half of the image. Switch off to use the whole image.",
        label="Focus on sample",
        more="Training",
    )
    leave_out: str = option(
        "",
        "Labels or mask of regions to exclude from training. They are still denoised.",
        label="Left-out regions",
        auxiliary=("labels",),
        more="Training",
    )
    precision: str = option(
        "auto",
        "Number format of the network. auto: bfloat16 on devices that are fast at it, otherwise "
        "float32.",
        choices=("auto", "float32", "bfloat16"),
        choice_labels=("Automatic", "float32", "bfloat16"),
        more="Computer",
    )
    denoise_memory: float | None = option(
        None,
        "Maximum memory for images and prediction. A larger volume is read block by block, and its "
        "result is kept in a temporary file. Default: 90 % of the free memory.",
        label="Memory limit",
        unit="GB",
        minimum=0.001,
        step=1,
        more="Computer",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("patch_size", "patch_depth"):
            if (given := getattr(self, name)) is not None and given % MULTIPLE:
                raise InputError(f"{name} must be a multiple of {MULTIPLE}; got {given}.")
        if self.replacement_window % 2 == 0:
            raise InputError(
                "replacement_window must be an odd number, so that it has a central pixel; got "
                f"{self.replacement_window}."
            )
        if self.pair and self.method != "auto":
            raise InputError(
                "A second scan (pair) always uses Noise2Noise: method must be 'auto'; got "
                f"{self.method!r}."
            )

    @property
    def timing_key(self) -> str:
        """The settings that decide the time of a training step and of a denoised voxel."""
        names = [
            "dimensions", "method", "context", "channels", "patch_size", "patch_depth",
            "batch_size", "precision", "correlated_along",
        ]  # fmt: skip
        kind = {name: getattr(self, name) for name in names} | {"pair": bool(self.pair)}
        return " ".join(f"{name}={value}" for name, value in kind.items())

    def orientations(self, shape: Sequence[int]) -> int:
        """Return the number of orientations of test-time augmentation for a volume's shape."""
        is_augmented = self.test_time_augmentation
        if self.correlated_along != "none":
            is_augmented = False  # lines of a rotated copy would run along another axis
        elif is_augmented is None:
            is_augmented = math.prod(shape) <= AVERAGED
        return ORIENTATIONS if is_augmented else 1

    def patch_edge(self, plane: Sequence[int]) -> int:
        """Return the patch edge for slices of shape (y, x)."""
        if self.patch_size is not None:
            return self.patch_size
        fitting: int = min(plane) // MULTIPLE * MULTIPLE
        return max(min(PATCH, fitting), LEAST_PATCH)

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return an estimate of the run time, and the number of masked pixels.

        `known`: the ``volume``, and ``timings``: seconds per training ``step``, per denoised
        ``voxel`` and orientation, and for the ``rest``, in the last run with this `timing_key`.
        """
        return self.time_hint(known) | self._masking_hint(known.get("volume"))

    def time_hint(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return an estimate of the run time, keyed by the setting that limits it.

        `known`: as for `hints`.
        """
        timings, volume = known.get("timings"), known.get("volume")
        if not timings or volume is None or self.repeat:
            return {}
        predicted = self.orientations(volume.shape) * math.prod(volume.shape)
        rest = predicted * timings["voxel"] + timings["rest"]
        limited_by, training = "steps", (self.steps or STEPS) * timings["step"]
        if self.model:
            limited_by, training = "model", 0.0
        elif self.time_budget is not None and (self.steps is None or training > self.time_budget):
            limited_by, training = "time_budget", self.time_budget
        is_maximum = limited_by == "steps" and self.steps is None
        about = "Up to" if is_maximum else "About"
        time = readable_duration(training + rest)
        return {limited_by: f"{about} {time} (at the last run's speed)."}

    def _masking_hint(self, volume: Volume | None) -> dict[str, str]:
        if self.model or self.correlated_along != "none" or self.method == "r2r" or self.pair:
            # a trained model, R2R and Noise2Noise mask nothing, and line noise masks more pixels
            return {}
        share = PAPER_SHARE if isinstance(self.masked_share, str) else self.masked_share
        edge = self.patch_edge(volume.shape[-2:] if volume is not None else (PATCH, PATCH))
        plane = (edge, edge)
        size = plane if self.dimensions == 2 else (self.patch_depth, *plane)
        return {"masked_share": explain_share(share, size)}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings that have no effect with the others, each with the reason."""
        reasons = {}
        if self.correlated_along == "none":
            reasons["correlated_reach"] = "Only used with a line noise direction."
        else:
            reasons["test_time_augmentation"] = (
                "Not used with a line noise direction: lines of rotated copies run along another "
                "axis."
            )
        if self.dimensions == 2:
            reasons["patch_depth"] = "Only used with Dimensions = 3."
        if self.method == "r2r" or self.pair:
            masking = (
                "correlated_along correlated_reach masked_share replacement replacement_window"
            )
            method = "with a second scan" if self.pair else "with Method = R2R"
            reasons |= dict.fromkeys(
                f"{masking} restore_detail".split(), f"Not used {method}: no pixels are masked."
            )
        if self.train_at or self.leave_out:
            reasons["sample_focus"] = (
                "Only used for the noise and the grey scale: training regions are given."
            )
        if self.model:
            training = "steps time_budget masked_share learning_rate replacement train_at leave_out"
            text = "Not used with a trained model: nothing is trained."
            reasons |= dict.fromkeys(training.split(), text)
        return reasons


#: Minimum number of steps for an estimate: the first steps take longer.
_MIN_STEPS = 25


def device_timing_key(settings: DenoiseSettings, device: str) -> str:
    """Return the key of stored timings: the device, as given, and the settings that matter."""
    return f"denoise device={device} {settings.timing_key}"


def expected_time(settings: DenoiseSettings, volume: Volume, device: str) -> str:
    """Return the estimated run time in a sentence; empty without an earlier run.

    `device`: as the user gave it.
    """
    timings = SPEEDS.numbers(device_timing_key(settings, device))
    return " ".join(settings.time_hint({"timings": timings, "volume": volume}).values())


def store_timings(settings: DenoiseSettings, device: str, provenance: Mapping[str, Any]) -> None:
    """Store the timings of a run for later estimates, unless its training was too short."""
    if timings := timings_from(provenance):
        SPEEDS.put(device_timing_key(settings, device), timings)


def timings_from(provenance: Mapping[str, Any]) -> dict[str, float]:
    """Return the timings in a run's record, in s; empty if its training was too short.

    Returns: seconds per training ``step``, per predicted ``voxel`` and orientation, and for the
    ``rest``.
    """
    result, times = provenance.get("result", {}), provenance.get("timings", {})
    if result.get("steps", 0) < _MIN_STEPS or "denoising" not in times:
        return {}
    shape = provenance["input"]["shape"]
    settings = DenoiseSettings.of(provenance["settings"])
    predicted = settings.orientations(shape) * math.prod(shape)
    before_and_after = {"reading", "diagnosis", "examination"} & set(times)
    return {
        "step": result["training_seconds"] / result["steps"],
        "voxel": times["denoising"] / predicted,
        "rest": sum(times[each] for each in before_and_after),
    }
