"""How good N2V2 is after a given time of training on noisy photographs alone.

Trained by the job itself, as anybody would, on the noisy Train400; tested on Set12. The time is
that of the training; "symmetries" and "detail" are the job's ``test_time_augmentation`` and
``restore_detail``. The curve is that of the longer training: its checkpoints, which are models too,
each tested by itself.

What was trained is kept in a temporary folder and taken from there the next time, so that
trainings can have a machine to themselves: ``python -c "from benchmarks.denoise_quality import
trained; trained(180)"``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hushpore
from benchmarks._photos import N2V2, psnr, test_photos, training_photos
from hushpore.denoising.trained_model import load_model, read_tensors
from hushpore.denoising.training import loop

if TYPE_CHECKING:
    from hushpore.denoising.result import Denoised

#: Seconds of training.
BUDGETS = (30, 180)

#: Seconds between two points of the curve.
APART = 15.0

#: What can be added to the plain prediction.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"test_time_augmentation": False},
    "symmetries": {"test_time_augmentation": True},
    "symmetries and detail": {"test_time_augmentation": True, "restore_detail": True},
}


def measure() -> dict[str, object]:
    """PSNR on Set12 by training time."""
    noisy = [psnr(noisy, clean) for clean, noisy in test_photos()]
    figures: dict[str, object] = {"noisy": round(float(np.mean(noisy)), 2)}
    for budget in BUDGETS:
        folder = trained(budget)
        provenance = json.loads((folder / "record.json").read_text(encoding="utf-8"))
        figures[f"{budget} s"] = _figures(folder / "model.safetensors", provenance)
        figures[f"curve of {budget} s"] = dict(
            _point(path) for path in sorted(folder.glob("checkpoint-*.safetensors"))
        )
    return figures


def trained(budget: int) -> Path:
    """Return the folder of a training of so many seconds; trains where there is none."""
    folder = Path(tempfile.gettempdir()) / "hushpore-quality" / f"{budget} s"
    if (folder / "record.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    path = folder / "now.safetensors"
    loop.SAVE_INTERVAL = APART
    settings = {"time_budget": budget, "steps": 10**5, "checkpoint": str(path), **N2V2}
    job = hushpore.start("denoise", training_photos(), settings)
    written: list[float] = []
    while True:
        try:
            next(job)
        except StopIteration as end:
            result: Denoised = end.value
            break
        if path.exists() and path.stat().st_mtime not in written:
            shutil.copy(path, folder / f"checkpoint-{len(written):03d}.safetensors")
            written.append(path.stat().st_mtime)
    result.model.save(folder / "model.safetensors")
    (folder / "record.json").write_text(json.dumps(result.provenance), encoding="utf-8")
    return folder


def _figures(path: Path, provenance: dict[str, Any]) -> dict[str, object]:
    pairs, settings = test_photos(), provenance["settings"]
    values = {
        name: [
            psnr(hushpore.denoise(noisy, model=str(path), **more).volume.data, clean)
            for clean, noisy in pairs
        ]
        for name, more in VARIANTS.items()
    }
    return {
        "steps": provenance["result"]["steps"],
        "seconds": round(provenance["result"]["training_seconds"], 1),
        "masked_share": settings["masked_share"],
        "learning_rate": settings["learning_rate"],
        "precision": provenance["result"]["precision"],
        "psnr": {name: round(float(np.mean(each)), 2) for name, each in values.items()},
        "images": {name: [round(v, 2) for v in each] for name, each in values.items()},
    }


def _point(path: Path) -> tuple[str, dict[str, float]]:
    model, (facts, _) = load_model(path), read_tensors(path, "training")
    value = np.mean(
        [
            psnr(model.predict(noisy, test_time_augmentation=False).data, clean)
            for clean, noisy in test_photos()
        ]
    )
    return f"{facts['spent']:.0f} s", {"steps": facts["step"], "psnr": round(float(value), 2)}
