"""CAREamics' N2V2 by its defaults, as more than one benchmark trains and applies it.

Needs ``pip install careamics``, best in an environment of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    Image = npt.NDArray[np.float32]


def trained(images: Image, folder: str | Path, watch: Any) -> Any:
    """Train on images (n, y, x) until a callback stops it; return CAREamics' trainer.

    `folder`: for what it writes. `watch`: a callback of Lightning.
    """
    import careamics
    from careamics.config import create_advanced_n2v_config

    config = create_advanced_n2v_config(
        "n2v2", "array", "SYX", (64, 64), 16, num_epochs=1000, use_n2v2=True, num_workers=0,
    )  # fmt: skip
    rival = careamics.CAREamist(
        config, work_dir=folder, callbacks=[watch], enable_progress_bar=False
    )
    rival.train(train_data=images)
    return rival


def grey_scale(rival: Any) -> tuple[float, float]:
    """Return mean and deviation that it divides by: of patches it trains on, not of the whole."""
    known = rival.config.data_config.normalization
    return float(known.input_means[0]), float(known.input_stds[0])


@torch.inference_mode()
def predicted(network: Any, image: Image, scale: tuple[float, float]) -> Image:
    """Denoise one image (y, x)."""
    mean, deviation = scale
    values = torch.from_numpy((image - mean) / deviation).float()[None, None]
    found: Image = network.eval()(values)[0, 0].numpy() * deviation + mean
    return found
