"""CAREamics' N2V2 on the scans that `denoise_correlated` compares other ways on.

Needs ``pip install careamics``, best in an environment of its own. Its defaults, trained on the
slices of the scan for as long as 90 s of two cores are. With noise that is correlated it gets worse
as it learns; of the networks along the way the best one counts, chosen with the truth, as the
parameters of the classical filters are. Some of the scans, by a part of their name, are put beside
those that the same commit has done already::

    python -m benchmarks denoise_correlated_careamics --only small-pores
"""

from __future__ import annotations

import copy
import tempfile
import time
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks._careamics import grey_scale, predicted, trained
from benchmarks._missing import require_package
from benchmarks._scans import cases, made
from benchmarks.denoise_correlated import best, compared

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from benchmarks._scans import Scan

    Image = npt.NDArray[np.float32]

#: Seconds of processor time of a training, and between two networks that are kept.
BUDGET, APART = 180.0, 30.0


def measure(only: str = "", kept: dict[str, Any] | None = None) -> Iterator[dict[str, object]]:
    """N2V2 on every scan.

    `only`: part of the names of the scans that are done. `kept`: figures that there are already.
    """
    require_package("careamics")
    figures: dict[str, object] = {**(kept or {}), "careamics": metadata.version("careamics")}
    for case in cases("held out"):
        if only in case.name:
            scan = made(case)
            steps: list[int] = []
            found = compared(case, scan, {"N2V2": partial(denoised, scan, steps)})
            figures[case.name] = {**found, "steps": steps[-1]}
            yield figures


def denoised(scan: Scan, steps: list[int]) -> Image:
    """Train, and return what the best of the networks makes; appends how many steps it took."""
    networks, rival = networks_of(scan.scan)
    steps.append(int(rival.trainer.global_step))
    scale = grey_scale(rival)
    images = (np.stack([predicted(each, one, scale) for one in scan.scan]) for each in networks)
    return best((image.astype(np.float32) for image in images), scan)


def networks_of(values: Image) -> tuple[list[Any], Any]:
    """Return the networks along a training, and what has trained them."""
    from lightning.pytorch.callbacks import Callback

    networks: list[Any] = []

    class Watch(Callback):  # type: ignore[misc]
        since = 0.0

        def on_train_start(self, *args: Any) -> None:
            self.since = time.process_time()

        def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
            seconds = time.process_time() - self.since
            if seconds >= (len(networks) + 1) * APART:
                networks.append(copy.deepcopy(module.model))
            trainer.should_stop = seconds >= BUDGET

    with tempfile.TemporaryDirectory() as folder:
        return networks, trained(values, folder, Watch())
