"""What a pore result holds on disk, whoever made it: command line, batch, demonstration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.provenance import fingerprint
from hushpore.io.report import report_figure
from hushpore.io.results import write_results
from hushpore.runs.page import report_page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from hushpore.base.volume import Volume
    from hushpore.n2v2.result import Denoised
    from hushpore.pores.result import Pores


def write_pores(
    folder: Path,
    before: Volume,
    denoised: Denoised | None,
    found: Pores,
    overwrite: bool = False,
    extra: dict[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
) -> Path:
    """Write a result folder.

    It holds ``pores.csv``, ``throats.csv``, ``profile.csv``, ``labels.tif``, ``result.json``,
    ``report.png``, ``report.html``, and ``denoised.tif`` where there is one.

    Parameters
    ----------
    folder : pathlib.Path
        Where to; it appears when everything is complete.
    before : Volume
        What was read.
    denoised : Denoised or None
        The denoised volume, where there is one.
    found : Pores
        The pores.
    overwrite : bool, optional
        Replace an earlier result.
    extra : dict, optional
        Further entries of ``result.json``.
    source : mapping, optional
        How `before` was read, so that it can be read again: `Source.to_dict`, as it was then.

    Returns
    -------
    pathlib.Path
        The folder.
    """
    images = {"labels": found.labels_volume}
    jobs = [found.provenance]
    if denoised is not None:
        images = {"denoised": denoised.volume, **images}
        jobs = [denoised.provenance, *jobs]
    provenance = {
        "summary": found.summary,
        "source": dict(source or {}),
        "jobs": jobs,
        "fingerprints": {name: fingerprint(image.data) for name, image in images.items()},
        **(extra or {}),
    }
    tables = {"pores": found.pores, "throats": found.throats, "profile": _profile(found)}
    picture = report_figure(
        before,
        None if denoised is None else denoised.volume,
        found.labels_volume,
        found.pores["equivalent_diameter"].to_numpy(),
        title=found.summary,
    )
    return write_results(
        folder,
        images=images,
        tables=tables,
        provenance=provenance,
        figures={"report": picture},
        pages={"report": report_page(before.name, provenance, tables, picture)},
        overwrite=overwrite,
    )


def _profile(found: Pores) -> pd.DataFrame:
    """Porosity of each slice (in 2D of each row), and where the slice lies."""
    import numpy as np
    import pandas as pd

    volume, profile = found.volume, found.porosity_profile
    place = volume.origin[0] + volume.spacing[0] * np.arange(profile.size)
    return pd.DataFrame({"slice": np.arange(profile.size), "position": place, "porosity": profile})
