"""The command that sends many scans through the same settings."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from hushpore.cli.flags import JobCommand, reading_flags, settings_flags, settings_from
from hushpore.cli.progress_bar import drive
from hushpore.cli.settings import settings_sources
from hushpore.jobs import JOBS

DENOISE, PORES = (JOBS[job].settings for job in ("denoise", "pores"))


@click.command(
    "batch", cls=JobCommand, short_help="Send many scans through the same settings, resumable."
)
@click.argument("scans", nargs=-1, required=True)
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder for all results.")
@click.option(
    "--denoise/--no-denoise",
    "denoise_first",
    default=True,
    show_default=True,
    help="Denoise each scan before its pores are segmented.",
)
@click.option(
    "--jobs",
    default=1,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    help="How many scans at once, in processes of their own, as far as memory allows.",
)
@settings_flags(DENOISE, PORES)
@settings_sources("denoise", "pores")
@reading_flags
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="Where to run: auto, cpu, cuda, or cuda:1 and so on.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Make results again that are of other settings or of a scan that has changed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON, no bar.")
def batch_command(
    scans: tuple[str, ...],
    output: str,
    denoise_first: bool,
    jobs: int,
    device: str,
    series: str,
    resample: bool,
    at: tuple[str, ...],
    voxel_size: str,
    overwrite: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Send all SCANS (files, folders, wildcards in quotes) through the same settings.

    Writes a result folder a scan, and summary.csv across them. A scan that fails does not stop the
    others. Started again, it skips what is done. Ends with status 1 if a scan failed.
    """
    from hushpore.runs.batch import run_batch

    work = run_batch(
        scans,
        output,
        denoise=settings_from(flags, DENOISE) if denoise_first else None,
        pores=settings_from(flags, PORES),
        series=series,
        resample=resample,
        at=at,
        voxel_size=voxel_size,
        device=device,
        jobs=jobs,
        overwrite=overwrite,
    )
    done = drive(work, "Batch", quiet=as_json)
    if as_json:
        rows = json.loads(done.table.to_json(orient="records"))
        click.echo(json.dumps({"written": str(done.folder), "scans": rows}, indent=2))
    else:
        for state in done.states:
            if state.state == "failed":
                click.echo(f"Failed: {state.name}: {state.message}", err=True)
        click.echo(f"{done.summary}.\nWritten: {done.folder / 'summary.csv'}")
    if done.count("done", "skipped") < len(done.states):
        sys.exit(1)
