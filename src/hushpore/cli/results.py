"""What a pore result holds on disk, the same for `pores`, `run` and `demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.io.report import report_figure
from hushpore.io.results import write_results

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.volume import Volume
    from hushpore.n2v2.job import Denoised
    from hushpore.pores.result import Pores


def write_pores(
    folder: Path,
    before: Volume,
    denoised: Denoised | None,
    found: Pores,
    overwrite: bool = False,
    extra: dict[str, Any] | None = None,
) -> Path:
    """Write ``pores.csv``, ``labels.tif``, ``result.json``, ``report.png``, ``denoised.tif``.

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
    figure = report_figure(
        before,
        None if denoised is None else denoised.volume,
        found.labels_volume,
        found.pores["equivalent_diameter"].to_numpy(),
        title=found.summary,
    )
    return write_results(
        folder,
        images=images,
        tables={"pores": found.pores},
        record={"summary": found.summary, "jobs": jobs, **(extra or {})},
        figures={"report": figure},
        overwrite=overwrite,
    )
