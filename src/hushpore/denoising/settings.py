"""Settings of the denoiser."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_duration
from hushpore.base.settings import Settings, option
from hushpore.patches.settings import explain_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hushpore.base.volume import Volume

#: Fraction of masked pixels in the papers on N2V and N2V2.
PAPER_SHARE = 0.00198

#: Flipped and turned copies that a result is averaged over, and voxels up to which it is where the
#: settings leave it open: it takes seconds there, and minutes would be noticed.
ORIENTATIONS, AVERAGED = 8, 8_000_000

#: Levels of a network below its top level: with 2 it sees 32 pixels to either side, and each more
#: doubles that and takes four times as many weights.
LEVELS = 2

#: What edges of patches are multiples of: each level halves them.
MULTIPLE = 1 << LEVELS

#: Edge of a training patch where the settings leave it open and images are as large, in pixels.
PATCH = 64

#: Edge of a training patch at least, in pixels: what a network learns from less is mostly borders.
LEAST_PATCH = 16

#: Steps of a training where neither steps nor a time are given, at most.
STEPS = 1500


@dataclass(frozen=True)
class DenoiseSettings(Settings):
    """How to denoise."""

    dimensions: int = option(
        2,
        "2: slice by slice, fast. 3: in depth too, slower.",
        minimum=2,
        maximum=3,
    )
    steps: int | None = option(
        None,
        "Training steps; more give a cleaner image, with less and less to gain. None: automatic. "
        f"That is until more would bring next to nothing, {STEPS} at most. With a time limit "
        "alone: as many as it allows.",
        label="Training steps",
        minimum=1,
        step=100,
    )
    time_budget: float | None = option(
        None,
        "Train for this time, or until all steps are done where they are given. None: no limit.",
        label="Time limit",
        unit="s",
        minimum=1,
        step=10,
        none="no limit",
    )
    seed: int = option(
        0,
        "Seed of the random numbers: the same seed gives the same result.",
        label="Random seed",
        minimum=0,
        maximum=2**63 - 1,  # PyTorch's generators take no more
    )
    correlated_along: str = option(
        "none",
        "Axis along which stripes, streaks or rings run, whose noise is correlated there; rings "
        "run along z. A whole piece of that line is masked (structN2V).",
        label="Stripes or rings along",
        choices=("none", "x", "y", "z"),
        more=True,
    )
    correlated_reach: int = option(
        4,
        "How far the noise is alike along that axis, to either side.",
        label="Length of stripes",
        unit="px",
        minimum=1,
        maximum=32,
        more=True,
    )
    correct_rings: bool = option(
        False,
        "Take rings about the middle of the slices out of the scan before anything else: what goes "
        "all around and is not in the neighbouring circles. Where there are none, nothing changes.",
        label="Correct rings",
        more=True,
    )
    test_time_augmentation: bool | None = option(
        None,
        f"Average the result over {ORIENTATIONS} flipped and rotated copies (test-time "
        f"augmentation): cleaner, and {ORIENTATIONS} times as long once the training is over. "
        f"None: automatic. That is up to {AVERAGED // 1_000_000} million voxels.",
        label=f"Average {ORIENTATIONS} orientations",
        more=True,
    )
    restore_detail: bool = option(
        False,
        "Where pixels are hidden (n2v2): restore what was removed beyond the noise: edges and "
        "texture are sharper, with a little grain on them. Needs noise that is independent from "
        "pixel to pixel.",
        label="Restore fine detail",
        more=True,
    )
    model: str = option(
        "",
        "File of a trained model (.safetensors) to apply; nothing is trained then.",
        label="Trained model",
        more=True,
        path="file",
    )
    checkpoint: str = option(
        "",
        "File (.safetensors) to keep the state of the training in, every half minute: a run that "
        "was broken off goes on from it. It can be applied as a trained model at any time.",
        label="Checkpoint file",
        more=True,
        path="new file",
    )
    repeat: str = option(
        "",
        "Record (.json) of an earlier run whose training is repeated: as many steps, at the same "
        "rates, however long they take. The time limit does not count then.",
        label="Repeat training",
        more=True,
        path="file",
    )
    method: str = option(
        "auto",
        "r2r: learns with more noise like that of the scan, which may be correlated. n2v2: hides "
        "pixels, whose noise must be independent. n2v: the original Noise2Void, to compare. "
        "auto: r2r; for several channels, with an axis of correlated noise, or where independent "
        "noise is strong n2v2; with a second scan Noise2Noise.",
        choices=("auto", "r2r", "n2v2", "n2v"),
        choice_labels=("Automatic", "R2R", "N2V2", "N2V"),
        more=True,
    )
    pair: str = option(
        "",
        "Another scan of the same sample, with noise of its own: a repeated scan, or the other "
        "half of the projections. Each of the two is learnt from the other (Noise2Noise), and the "
        "result is for their mean. In names of files, {name} stands for that of the scan.",
        label="Second scan",
        auxiliary=("scan",),
        more=True,
    )
    context: int | None = option(
        None,
        "Neighbouring slices to either side that the network sees with each slice, where "
        "dimensions is 2 (2.5D). None: automatic. That is 2, and 0 where slices lie far apart or "
        "do not look like their neighbours.",
        label="Neighbouring slices",
        unit="slices",
        minimum=0,
        maximum=8,
        more=True,
    )
    channels: str = option(
        "independent",
        "independent: each channel is denoised by itself. together: the network sees them all, "
        "for channels that show the same thing with noise of their own.",
        choices=("independent", "together"),
        choice_labels=("Separately", "Together"),
        more=True,
    )
    replacement: str = option(
        "auto",
        "What a masked pixel is replaced by: the median or mean of its neighbours, or any one of "
        "them (uniform). auto: uniform for n2v, else median.",
        label="Replace masked pixels by",
        choices=("auto", "median", "mean", "uniform"),
        choice_labels=("Automatic", "Median", "Mean", "Any neighbour"),
        more=True,
    )
    replacement_window: int = option(
        5,
        "Edge of the neighbourhood that replacements come from; odd.",
        unit="px",
        minimum=3,
        maximum=11,
        step=2,
        more=True,
    )
    masked_share: float | str = option(
        0.08,
        "Share of the pixels of a patch that are masked (blind spots); paper: 0.00198.",
        label="Share of masked pixels",
        choices=("paper",),
        choice_labels=("As in the paper",),
        minimum=0.0005,
        maximum=0.2,
        step=0.005,
        more=True,
    )
    patch_size: int | None = option(
        None,
        f"Edge of a training patch in y and x; a multiple of {MULTIPLE}. None: automatic. That is "
        f"{PATCH}, and less in smaller images.",
        unit="px",
        minimum=LEAST_PATCH,
        maximum=512,
        step=MULTIPLE,
        more=True,
    )
    patch_depth: int = option(
        16,
        f"Depth of a training patch in z, where dimensions is 3; a multiple of {MULTIPLE}.",
        unit="slices",
        minimum=MULTIPLE,
        maximum=128,
        step=MULTIPLE,
        more=True,
    )
    batch_size: int | None = option(
        None,
        "Patches in one training step. None: automatic. That is 16 in 2D and 4 in 3D.",
        minimum=1,
        maximum=1024,
        more=True,
    )
    learning_rate: float = option(
        4e-3,
        "Highest learning rate: held after a warm-up, and brought down to 0 at the end.",
        minimum=1e-6,
        maximum=1.0,
        step=1e-4,
        more=True,
    )
    train_at: str = option(
        "",
        "Points about which training patches lie, and nowhere else; or labels, by whose area "
        "inside a patch it is drawn.",
        label="Training regions",
        auxiliary=("points", "labels"),
        more=True,
    )
    leave_out: str = option(
        "",
        "Labels or mask of regions to exclude from the training: no patch reaches into them. They "
        "are denoised all the same.",
        label="Exclude from training",
        auxiliary=("labels",),
        more=True,
    )
    precision: str = option(
        "auto",
        "Arithmetic of the network. auto: bfloat16 where the device is fast at it.",
        choices=("auto", "float32", "bfloat16"),
        choice_labels=("Automatic", "float32", "bfloat16"),
        more=True,
    )
    denoise_memory: float | None = option(
        None,
        "Memory for images and, in the prediction, what the network needs; what does not fit is "
        "read block by block, and the result is kept in a file. None: automatic. That is 90 % of "
        "what is free.",
        label="Memory limit",
        unit="GB",
        minimum=0.001,
        step=1,
        more=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("patch_size", "patch_depth"):
            if (given := getattr(self, name)) is not None and given % MULTIPLE:
                raise InputError(f"{name} must be a multiple of {MULTIPLE}; got {given}.")
        if self.replacement_window % 2 == 0:
            raise InputError(
                f"replacement_window must be odd, to have a centre; got {self.replacement_window}."
            )
        if self.pair and self.method != "auto":
            raise InputError(
                f"With a second scan (pair) nothing else is needed to learn from: method must be "
                f"'auto'; got {self.method!r}."
            )

    @property
    def pace_kind(self) -> str:
        """What the time of a training step and of a denoised voxel depends on, in words."""
        names = [
            "dimensions", "method", "context", "channels", "patch_size", "patch_depth",
            "batch_size", "precision", "correlated_along",
        ]  # fmt: skip
        kind = {name: getattr(self, name) for name in names} | {"pair": bool(self.pair)}
        return " ".join(f"{name}={value}" for name, value in kind.items())

    def orientations(self, shape: Sequence[int]) -> int:
        """Return over how many orientations the result is averaged. `shape`: of the volume."""
        wanted = self.test_time_augmentation
        if self.correlated_along != "none":
            wanted = False  # turned, stripes would run along another axis
        elif wanted is None:
            wanted = math.prod(shape) <= AVERAGED
        return ORIENTATIONS if wanted else 1

    def patch_edge(self, plane: Sequence[int]) -> int:
        """Return the edge of a patch in slices of some shape (y, x)."""
        if self.patch_size is not None:
            return self.patch_size
        fitting: int = min(plane) // MULTIPLE * MULTIPLE
        return max(min(PATCH, fitting), LEAST_PATCH)

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return how long it will take, and what the fraction of masked pixels comes to.

        `known`: beside the ``volume``, ``pace``: seconds of a training ``step``, of a denoised
        ``voxel`` in one orientation, and of the ``rest``, in the last run of this `pace_kind`.
        """
        return self.time_hint(known) | self._share_hint(known.get("volume"))

    def time_hint(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return how long it will take, at what decides that. `known`: as for `hints`."""
        pace, volume = known.get("pace"), known.get("volume")
        if not pace or volume is None or self.repeat:
            return {}
        predicted = self.orientations(volume.shape) * math.prod(volume.shape)
        rest = predicted * pace["voxel"] + pace["rest"]
        steps, training = "steps", (self.steps or STEPS) * pace["step"]
        if self.model:
            steps, training = "model", 0.0
        elif self.time_budget is not None and (self.steps is None or training > self.time_budget):
            steps, training = "time_budget", self.time_budget
        time = readable_duration(training + rest)
        is_open = steps == "steps" and self.steps is None
        most = " at most" if is_open else ""
        return {steps: f"About {time} in all{most}, at the speed of the last run."}

    def _share_hint(self, volume: Volume | None) -> dict[str, str]:
        if self.model or self.correlated_along != "none" or self.method == "r2r" or self.pair:
            # a trained model, r2r and a second scan mask none; beside a line others are masked too
            return {}
        share = PAPER_SHARE if isinstance(self.masked_share, str) else self.masked_share
        edge = self.patch_edge(volume.shape[-2:] if volume is not None else (PATCH, PATCH))
        plane = (edge, edge)
        size = plane if self.dimensions == 2 else (self.patch_depth, *plane)
        return {"masked_share": explain_share(share, size)}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings change nothing beside the others."""
        reasons = {}
        if self.correlated_along == "none":
            reasons["correlated_reach"] = "Not used: no axis is chosen (Stripes or rings along)."
        else:
            reasons["test_time_augmentation"] = (
                "Not used: stripes of a turned copy would run along another axis (Stripes or rings "
                "along)."
            )
        if self.dimensions == 2:
            reasons["patch_depth"] = "Not used: patches lie in one slice (Dimensions)."
        if self.method == "r2r" or self.pair:
            hiding = "correlated_along correlated_reach masked_share replacement replacement_window"
            why = "a second scan is learnt from" if self.pair else "this method hides no pixels"
            named = "Second scan" if self.pair else "Method"
            reasons |= dict.fromkeys(
                f"{hiding} restore_detail".split(), f"Not used: {why} ({named})."
            )
        if self.model:
            training = "steps time_budget masked_share learning_rate replacement train_at leave_out"
            text = "Not used: a trained model is applied, nothing is trained (Trained model)."
            reasons |= dict.fromkeys(training.split(), text)
        return reasons
