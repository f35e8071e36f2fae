"""How good CAREamics' N2V2 is after a given time of the training that `denoise_quality` has.

Needs ``pip install careamics``, best in an environment of its own. Its defaults for N2V2, the same
photographs, patch, batch and network size; time in which weights are copied does not count. The
weights are kept in a temporary folder and taken from there the next time, as in `denoise_quality`.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._careamics import grey_scale, predicted, trained
from benchmarks._missing import require_package
from benchmarks._photos import psnr, test_photos, training_photos

#: Seconds of training, and between two points of the curve.
BUDGET, APART = 180.0, 15.0


def measure() -> dict[str, object]:
    """PSNR on Set12 by training time."""
    require_package("careamics")
    folder = kept_training()
    network = torch.load(folder / "network.pt", weights_only=False)
    scale = torch.load(folder / "scale.pt")
    points = {}
    for path in sorted(folder.glob("weights-*.pt")):
        kept = torch.load(path)
        network.load_state_dict(kept["weights"])
        values = [psnr(predicted(network, noisy, scale), clean) for clean, noisy in test_photos()]
        points[f"{kept['seconds']:.0f} s"] = {
            "steps": kept["steps"],
            "psnr": round(float(np.mean(values)), 2),
        }
    return {"careamics": metadata.version("careamics"), "curve": points}


def kept_training() -> Path:
    """Return the folder of a training; trains where there is none."""
    folder = Path(tempfile.gettempdir()) / "hushpore-quality" / "careamics"
    if (folder / "scale.pt").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    from lightning.pytorch.callbacks import Callback

    class Watch(Callback):  # type: ignore[misc]
        spent, count, since = 0.0, 0, 0.0

        def on_train_start(self, *args: Any) -> None:
            self.since = time.perf_counter()

        def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
            seconds = self.spent + time.perf_counter() - self.since
            if seconds >= (self.count + 1) * APART or seconds >= BUDGET:
                kept = {
                    "weights": module.model.state_dict(),
                    "seconds": seconds,
                    "steps": trainer.global_step,
                }
                torch.save(kept, folder / f"weights-{self.count:03d}.pt")
                self.count += 1
                self.spent, self.since = seconds, time.perf_counter()
            trainer.should_stop = seconds >= BUDGET

        def on_train_end(self, trainer: Any, module: Any) -> None:
            torch.save(module.model, folder / "network.pt")

    rival = trained(training_photos(), tempfile.mkdtemp(), Watch())
    torch.save(grey_scale(rival), folder / "scale.pt")
    return folder
