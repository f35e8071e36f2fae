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

#: Fraction below which a training step has few pixels to learn from; up to 20 % it matters little.
FEW = 0.03


@dataclass(frozen=True)
class PatchSettings(Settings):
    """Which patches to look at, and how."""

    sampler: str = option(
        "uniform",
        "Where patches lie. uniform: anywhere, as the denoiser draws them. stratified: anywhere, "
        "spread evenly. grid: side by side. foreground, gradient: more where it is bright, or "
        "where values change. weights: in proportion to a mask or image. points: about points.",
        label="Sampling",
        choices=("uniform", "stratified", "grid", "foreground", "gradient", "weights", "points"),
        choice_labels=(
            "Uniform",
            "Stratified",
            "Grid",
            "Foreground",
            "Gradient",
            "By weights",
            "About points",
        ),
    )
    n_patches: int = option(
        64,
        "How many patches to draw; a grid and points have as many as they have.",
        label="Number of patches",
        minimum=1,
        maximum=100_000,
    )
    patch_size: int = option(
        64,
        "Edge of a patch in y and x.",
        unit="px",
        minimum=4,
        maximum=4096,
        step=4,
    )
    model: str = option(
        "",
        "File of a trained denoiser (.safetensors): shows what it predicts in each patch, and how "
        "far off it is where pixels are hidden.",
        label="Trained model",
        path="file",
    )
    dimensions: int = option(
        2,
        "2: a patch lies in one slice. 3: it goes through several.",
        minimum=2,
        maximum=3,
        more=True,
    )
    patch_depth: int = option(
        16,
        "Depth of a patch in z, where dimensions is 3.",
        unit="slices",
        minimum=1,
        maximum=4096,
        step=4,
        more=True,
    )
    overlap: int = option(
        0,
        "Overlap of neighbouring patches on a grid.",
        unit="px",
        minimum=0,
        maximum=4095,
        step=4,
        more=True,
    )
    weights: str = option(
        "",
        "Mask, image or labels for the sampling weights: a patch is drawn in proportion to its sum "
        "inside the patch.",
        auxiliary=("labels", "image"),
        more=True,
    )
    weights_are_labels: bool = option(
        False,
        "Take whole numbers in the weights for labels, of which any counts as 1, and not for "
        "values, which count as much as they are. In napari a labels layer always holds labels.",
        label="Weights are labels",
        more=True,
    )
    points: str = option(
        "",
        "Points about which patches lie, for the sampling points.",
        auxiliary=("points",),
        more=True,
    )
    masked_share: float = option(
        0.08,
        "Share of the pixels of a patch that are masked, as in the training.",
        label="Share of masked pixels",
        minimum=0.0005,
        maximum=0.2,
        step=0.005,
        more=True,
    )
    group_size: int = option(
        1,
        "Patches in a group of neighbours, its centre among them; 1: no groups.",
        minimum=1,
        maximum=64,
        more=True,
    )
    n_groups: int = option(
        8,
        "How many groups to draw.",
        label="Number of groups",
        minimum=1,
        maximum=100_000,
        more=True,
    )
    n_neighbours: int = option(
        7,
        "Nearest patches that a group is drawn from, its centre among them.",
        label="Nearest neighbours",
        minimum=1,
        maximum=1024,
        more=True,
    )
    seed: int = option(
        0,
        "Seed of the random numbers.",
        label="Random seed",
        minimum=0,
        maximum=2**63 - 1,  # PyTorch's generators take no more
        more=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        needs = {"weights": "a mask, labels or an image", "points": "points"}
        if self.sampler in needs and not getattr(self, self.sampler):
            raise InputError(
                f"sampler={self.sampler!r} needs {needs[self.sampler]}. Set {self.sampler} to "
                "what it shall take."
            )
        if self.sampler == "grid" and self.overlap >= self.patch_size:
            raise InputError(
                f"overlap must be less than patch_size; got {self.overlap} of {self.patch_size}."
            )

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return what the fraction of masked pixels comes to."""
        return {"masked_share": explain_share(self.masked_share, self.size)}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings change nothing; ``weights_hold_labels``: the weights are known to."""
        reasons = {}
        for name in ("weights", "points"):
            if self.sampler != name:
                reasons[name] = f"Not used: for the sampling {name} (Sampling)."
        if "weights" in reasons:
            reasons["weights_are_labels"] = reasons["weights"]
        elif known.get("weights_hold_labels"):
            reasons["weights_are_labels"] = "Not used: the layer of the weights holds labels."
        if self.sampler != "grid":
            reasons["overlap"] = "Not used: for patches on a grid (Sampling)."
        if self.sampler in ("grid", "points"):
            which = "the grid" if self.sampler == "grid" else "the points"
            reasons["n_patches"] = f"Not used: {which} say how many there are."
        if self.dimensions == 2:
            reasons["patch_depth"] = "Not used: patches lie in one slice (Dimensions)."
        if self.group_size == 1:
            text = "Not used: there are no groups (Group size)."
            reasons |= dict.fromkeys(("n_groups", "n_neighbours"), text)
        return reasons

    @property
    def size(self) -> tuple[int, ...]:
        """Shape of a patch along the axes that it has: (y, x) or (z, y, x)."""
        plane = (self.patch_size, self.patch_size)
        return plane if self.dimensions == 2 else (self.patch_depth, *plane)


def masked_pixels(share: float, size: Sequence[int]) -> int:
    """Return how many pixels of a patch are masked: one in each cell of a grid."""
    return math.prod(max(1, round(edge * share ** (1 / len(size)))) for edge in size)


def explain_share(share: float, size: Sequence[int]) -> str:
    """Say how many pixels of a patch are masked, and whether that is few.

    Examples
    --------
    >>> explain_share(0.08, (64, 64))
    'Masks 324 of the 4,096 pixels of a patch (8 %); from 3 to 20 % it hardly matters how many.'
    """
    pixels = f"{masked_pixels(share, size):,} of the {math.prod(size):,} pixels of a patch"
    text = f"Masks {pixels} ({readable_percent(share)})"
    if share < FEW:
        return f"{text}: a step learns from few, and training takes longer."
    return f"{text}; from 3 to 20 % it hardly matters how many."
