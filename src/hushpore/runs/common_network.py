"""One denoising network for several scans: a model file with its record beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hushpore.base.atomic import new_file
from hushpore.base.errors import HushporeError, InputError, OutputError
from hushpore.base.events import Driver, Note, Progress
from hushpore.base.formatting import read_text
from hushpore.io.results import write_json

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from hushpore.base.events import Job
    from hushpore.base.settings import Settings
    from hushpore.runs.scan_recipe import ScanRecipe

#: Name of the network of a batch.
NETWORK = "network.safetensors"


def train_network(
    sources: Sequence[ScanRecipe],
    settings: Settings,
    target: Path,
    *,
    device: str = "auto",
    overwrite: bool = False,
) -> Job:
    """Train one denoising network on several scans, and save it with its record (.json).

    Yields: as `hushpore.denoising.job.denoise`.
    Returns: `Denoised`, with the scans in the record under ``trained_on`` and, as they are read,
    ``sources``.
    Raises InputError, OutputError, MemoryLimitError: as `hushpore.train_together`, or if the files
    cannot be written.
    """
    # imported late: with the denoiser
    from hushpore.denoising.trained_model import check_file_target
    from hushpore.jobs.functions import start_together

    model = check_file_target(target, overwrite)
    record = check_file_target(model.with_suffix(".json"), overwrite)
    scans = [source.describe() for source in sources]
    origins = [source.to_dict() for source in sources]
    result = yield from start_together(scans, settings.to_dict(), device)
    result.provenance["sources"] = origins
    result.model.save(model, overwrite=overwrite)
    with new_file(record, overwrite) as part:
        write_json(part, result.provenance)
    return result


def network_of_batch(
    folder: Path,
    sources: Sequence[ScanRecipe],
    settings: Settings,
    *,
    device: str = "auto",
    overwrite: bool = False,
) -> Generator[Progress | Note, None, str]:
    """Train the network of a batch, unless its folder has one for these scans and settings.

    Scans that cannot be read are left out. Ended early, nothing is kept.

    `folder`: of the batch. `sources`: its scans. `settings`: of denoising, without a model.
    Returns: the path of the network.
    Raises InputError if the scans cannot be joined, or settings name a model or a paired scan;
    OutputError if the network in the folder was trained otherwise and may not be replaced.
    """
    for name, what in (("model", "a trained model"), ("pair", "a paired scan")):
        if getattr(settings, name):
            raise InputError(
                f"One network for all scans cannot be trained with {what} ({name}). Choose one of "
                "the two."
            )
    target = folder / NETWORK
    if target.exists():
        if _is_of(target.with_suffix(".json"), sources, settings):
            return str(target)
        if not overwrite:
            raise OutputError(
                f"{target} was trained on other scans, or with other settings. Choose another "
                "folder, or allow overwriting to replace it."
            )
    readable = [source for source in sources if _is_readable(source)]
    job = train_network(readable, settings, target, device=device, overwrite=overwrite)
    with Driver(job) as driver:
        for event in driver:
            # the batch does not end early here, so that no half-trained network is kept
            if isinstance(event, Progress | Note):
                yield event
    yield Note(f"One network was trained on {len(readable)} scans: {driver.result.headline}.")
    return str(target)


def _is_of(record: Path, sources: Sequence[ScanRecipe], settings: Settings) -> bool:
    """Return whether a record is of a network trained with settings on some of the scans."""
    try:
        known = json.loads(read_text(record))
        trained_on, used = known["sources"], known["settings"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    now = [source.to_dict() for source in sources]
    return used == settings.to_dict() and all(each in now for each in trained_on)


def _is_readable(source: ScanRecipe) -> bool:
    try:
        source.describe()
    except (HushporeError, OSError):
        # the reason is given when its turn comes
        return False
    return True
