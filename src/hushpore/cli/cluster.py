"""``--cluster``: the same commands on the workers of dask.distributed."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hushpore.base.errors import InputError
from hushpore.cli.flags import settings_from
from hushpore.cli.progress_bar import drive
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hushpore.base.events import Job
    from hushpore.base.volume import Volume
    from hushpore.cli.timings import Measured
    from hushpore.n2v2.result import Denoised
    from hushpore.runs.scan import Written


def cluster_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags that say on which machines a command runs."""
    for decorator in (
        click.option(
            "--cluster-memory", type=float, metavar="GB",
            help="What each process of local:N may take; by default its share of what is free.",
        ),
        click.option(
            "--cluster", metavar="PLACE",
            help="Run on the workers of dask.distributed: local:N (processes of this machine), "
            "tcp://HOST:PORT or tls://HOST:PORT (a scheduler), or a scheduler file.",
        ),
    ):  # fmt: skip
        command = decorator(command)
    return command


def denoise_there(
    scan: str | Volume, output: str | Path, flags: Mapping[str, Any], measured: Measured
) -> Denoised:
    """Denoise on the cluster that the flags name."""
    from hushpore.cluster.denoising import denoise_on

    work = denoise_on(
        flags["cluster"], scan, output, settings_from(flags, JOBS["denoise"].settings),  # type: ignore[arg-type]
        device=flags["device"], series=_series(scan, flags), memory=flags["cluster_memory"],
        overwrite=flags["overwrite"],
    )  # fmt: skip
    result: Denoised = _drive(work, "denoise", flags, measured)
    return result


def segment_there(
    scan: str | Volume, output: str | Path, flags: Mapping[str, Any], measured: Measured
) -> Written:
    """Segment pores on the cluster that the flags name."""
    from hushpore.cluster.segmenting import segment_pores

    work = segment_pores(
        scan, output, settings_from(flags, JOBS["pores"].settings),  # type: ignore[arg-type]
        where=flags["cluster"], memory=flags["cluster_memory"], series=_series(scan, flags),
        overwrite=flags["overwrite"],
    )  # fmt: skip
    written: Written = _drive(work, "pores", flags, measured)
    return written


def denoised_beside(output: str) -> Path:
    """Return where the denoised scan goes that belongs to a result folder."""
    folder = Path(output)
    return folder.with_name(f"{folder.name}_denoised.ome.zarr")


def refuse_with_cluster(**named: object) -> None:
    """Refuse flags that need the whole scan in the memory of this machine.

    Raises
    ------
    InputError
        If one is given.
    """
    given = [f"--{name.replace('_', '-')}" for name, value in named.items() if value]
    if given:
        raise InputError(
            f"{given[0]} needs the whole scan in memory, and cannot go with --cluster. Keep the "
            "model with --save-model, and use that on a part of the scan."
        )


def _series(scan: str | Volume, flags: Mapping[str, Any]) -> str | None:
    series: str | None = (flags["series"] or None) if isinstance(scan, str) else None
    return series


def _drive(work: Job, job: str, flags: Mapping[str, Any], measured: Measured) -> Any:
    title = JOBS[job].title
    listen = functools.partial(measured.listen, title)
    return drive(work, title, quiet=flags["as_json"], listen=listen)
