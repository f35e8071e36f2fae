"""Settings of the denoiser."""

from __future__ import annotations

from dataclasses import dataclass

from hushpore.base.errors import InputError
from hushpore.base.settings import Settings, option


@dataclass(frozen=True)
class DenoiseSettings(Settings):
    """How to denoise."""

    dimensions: int = option(
        2,
        "2: slice by slice, fast. 3: uses the neighbouring slices too, slower.",
        minimum=2,
        maximum=3,
    )
    steps: int = option(
        1000,
        "Training steps; more give a cleaner image, with less and less to gain.",
        minimum=1,
        step=100,
    )
    time_budget: float | None = option(
        None,
        "Stop training after this time even if not all steps are done; None: no limit.",
        unit="s",
        minimum=1,
        step=10,
    )
    seed: int = option(
        0,
        "Start of the random numbers: the same seed gives the same result.",
        minimum=0,
    )
    correlated_along: str = option(
        "none",
        "Axis along which neighbouring noise is alike (lines, rings, streaks): hides a whole piece "
        "of that line from the network.",
        label="Noise runs along",
        choices=("none", "x", "y", "z"),
        more=True,
    )
    correlated_reach: int = option(
        4,
        "How far noise is alike along that axis, to either side.",
        unit="px",
        minimum=1,
        maximum=32,
        more=True,
    )
    symmetries: bool = option(
        False,
        "Average the result over mirrored and turned copies: a little cleaner, and 8 times as long "
        "once the training is over.",
        label="Average copies",
        more=True,
    )
    model: str = option(
        "",
        "File of a trained model (.safetensors) to apply; nothing is trained then.",
        label="Trained model",
        more=True,
    )
    patch_size: int = option(
        64,
        "Edge of a training patch in y and x; a multiple of 4.",
        unit="px",
        minimum=16,
        maximum=512,
        step=4,
        more=True,
    )
    patch_depth: int = option(
        16,
        "Depth of a training patch in z, where dimensions is 3; a multiple of 4.",
        unit="slices",
        minimum=4,
        maximum=128,
        step=4,
        more=True,
    )
    batch_size: int | None = option(
        None,
        "Patches in one training step; None: 16 in 2D and 4 in 3D.",
        minimum=1,
        maximum=1024,
        more=True,
    )
    masked_share: float = option(
        0.03,
        "Share of the pixels of a patch that are hidden from the network.",
        minimum=0.0005,
        maximum=0.2,
        step=0.005,
        more=True,
    )
    learning_rate: float = option(
        2e-3,
        "Highest learning rate of the one-cycle schedule.",
        minimum=1e-6,
        maximum=1.0,
        step=1e-4,
        more=True,
    )
    precision: str = option(
        "auto",
        "Arithmetic of the network; auto takes bfloat16 where the device is fast at it.",
        choices=("auto", "float32", "bfloat16"),
        more=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("patch_size", "patch_depth"):
            if getattr(self, name) % 4:
                raise InputError(f"{name} must be a multiple of 4; got {getattr(self, name)}.")
