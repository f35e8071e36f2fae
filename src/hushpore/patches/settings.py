"""Settings of the patch sampler."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_percent
from hushpore.base.settings import Settings, option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Masked fraction below which a training step has few pixels to learn from.
FEW = 0.03


@dataclass(frozen=True)
class PatchSettings(Settings):
    """Settings of a patch job."""

    sampler: str = option(
        "uniform",
        "How patches are placed. uniform: at random, as in training. stratified: at random, spread "
        "evenly. grid: on a regular grid. foreground: more patches in bright regions. gradient: "
        "more patches at edges. weights: in proportion to a mask or image. points: around points.",
        label="Sampling",
        choices=("uniform", "stratified", "grid", "foreground", "gradient", "weights", "points"),
        choice_labels=(
            "Uniform",
            "Stratified",
            "Grid",
            "Foreground",
            "Gradient",
            "By weights",
            "Around points",
        ),
    )
    n_patches: int = option(
        64,
        "Number of patches to draw; ignored for grid and points.",
        label="Number of patches",
        minimum=1,
        maximum=100_000,
    )
    patch_size: int = option(
        64, "Edge of a patch in y and x.", unit="px", minimum=4, maximum=4096, step=4
    )
    model: str = option(
        "",
        "Trained denoiser (.safetensors): shows its prediction for each patch, and the loss at the "
        "masked pixels.",
        label="Trained model",
        path="file",
        more="Training",
    )
    dimensions: int = option(
        2,
        "2: patches lie in one slice. 3: patches extend over several slices.",
        minimum=2,
        maximum=3,
        more="Places",
    )
    patch_depth: int = option(
        16,
        "Depth of a patch in z, for 3D.",
        unit="slices",
        minimum=1,
        maximum=4096,
        step=4,
        more="Places",
    )
    overlap: int = option(
        0,
        "Overlap of neighbouring patches on a grid.",
        unit="px",
        minimum=0,
        maximum=4095,
        step=4,
        more="Places",
    )
    weights: str = option(
        "",
        "Mask, image or labels with the sampling weights: patches are drawn in proportion to the "
        "sum of the weights inside them.",
        auxiliary=("labels", "image"),
        more="Places",
    )
    weights_are_labels: bool = option(
        False,
        "Treat the weights as labels: every label counts as 1. Otherwise their values are the "
        "weights. In napari, a labels layer always counts as labels.",
        label="Weights are labels",
        more="Places",
    )
    points: str = option(
        "", "Centres of the patches, for the sampling points.", auxiliary=("points",), more="Places"
    )
    masked_share: float = option(
        0.08,
        "Fraction of the pixels of a patch that are masked, as in training.",
        label="Masked fraction",
        minimum=0.0005,
        maximum=0.2,
        step=0.005,
        more="Training",
    )
    group_size: int = option(
        1,
        "Number of patches in a group of similar patches, including its central patch; 1: no "
        "groups.",
        minimum=1,
        maximum=64,
        more="Groups",
    )
    n_groups: int = option(
        8,
        "Number of groups to draw.",
        label="Number of groups",
        minimum=1,
        maximum=100_000,
        more="Groups",
    )
    n_neighbours: int = option(
        7,
        "Number of most similar patches from which a group is drawn, including its central patch.",
        label="Nearest neighbours",
        minimum=1,
        maximum=1024,
        more="Groups",
    )
    seed: int = option(
        0,
        "Seed of the random numbers. Same seed, same result.",
        label="Random seed",
        minimum=0,
        maximum=2**63 - 1,  # the largest seed of PyTorch's generators
        more="Places",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        needs = {"weights": "a mask, labels or an image", "points": "a set of points"}
        if self.sampler in needs and not getattr(self, self.sampler):
            raise InputError(
                f"sampler={self.sampler!r} needs {needs[self.sampler]}. Set {self.sampler} to one."
            )
        if self.sampler == "grid" and self.overlap >= self.patch_size:
            raise InputError(
                f"overlap must be smaller than patch_size ({self.patch_size}); got {self.overlap}."
            )

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return the number of masked pixels of a patch, in a sentence."""
        return {"masked_share": explain_share(self.masked_share, self.size)}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return the settings that have no effect, each with the reason.

        `known`: ``weights_hold_labels``: whether the weights are a labels layer.
        """
        reasons = {}
        for name, label in (("weights", "By weights"), ("points", "Around points")):
            if self.sampler != name:
                reasons[name] = f"Only used with Sampling = {label}."
        if "weights" in reasons:
            reasons["weights_are_labels"] = reasons["weights"]
        elif known.get("weights_hold_labels"):
            reasons["weights_are_labels"] = "Not used: the weights are a labels layer."
        if self.sampler != "grid":
            reasons["overlap"] = "Only used with Sampling = Grid."
        if self.sampler in ("grid", "points"):
            decides = "the grid" if self.sampler == "grid" else "the points"
            reasons["n_patches"] = f"Not used: {decides} set the number of patches."
        if self.dimensions == 2:
            reasons["patch_depth"] = "Only used with Dimensions = 3."
        if self.group_size == 1:
            text = "Only used with a group size above 1."
            reasons |= dict.fromkeys(("n_groups", "n_neighbours"), text)
        return reasons

    @property
    def size(self) -> tuple[int, ...]:
        """Shape of a patch: (y, x) or (z, y, x)."""
        plane = (self.patch_size, self.patch_size)
        return plane if self.dimensions == 2 else (self.patch_depth, *plane)


def masked_pixels(share: float, size: Sequence[int]) -> int:
    """Return the number of masked pixels of a patch: one in each cell of a grid."""
    return math.prod(max(1, round(edge * share ** (1 / len(size)))) for edge in size)


def explain_share(share: float, size: Sequence[int]) -> str:
    """Return the number of masked pixels of a patch in a sentence, and its effect.

    Examples
    --------
    >>> explain_share(0.08, (64, 64))
    'Masks 324 of the 4,096 pixels of a patch (8 %). Results hardly differ between 3 and 20 %.'
    """
    pixels = f"{masked_pixels(share, size):,} of the {math.prod(size):,} pixels of a patch"
    text = f"Masks {pixels} ({readable_percent(share)})."
    if share < FEW:
        return f"{text} Training takes longer with so few."
    return f"{text} Results hardly differ between 3 and 20 %."
