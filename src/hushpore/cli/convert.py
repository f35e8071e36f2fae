"""The command that turns a scan of any format into OME-Zarr."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import click

from hushpore.cli.flags import reading_flags
from hushpore.cli.progress_bar import drive
from hushpore.cli.timings import Measured


@click.command("convert", short_help="Write a stack as OME-Zarr, whatever its size.")
@click.argument("path")
@click.argument("output")
@reading_flags
@click.option(
    "--memory-budget",
    type=float,
    metavar="GB",
    help="Memory that reading and writing may take; by default a quarter of what is free.",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing OME-Zarr folder.")
@click.option("--timings", is_flag=True, help="Print where the time went, stage by stage.")
@click.option(
    "--trace", metavar="FILE", help="Write a time line that https://ui.perfetto.dev opens."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON, no bar.")
def convert_command(
    path: str,
    output: str,
    memory_budget: float | None,
    overwrite: bool,
    timings: bool,
    trace: str | None,
    as_json: bool,
    **reading: Any,
) -> None:
    """Write the stack in PATH as OME-Zarr, for what is larger than memory or goes to a cluster.

    OUTPUT is a folder, usually named .ome.zarr. Slices are read some at a time; levels of lower
    resolution are added for viewing. Killed and started again, it goes on from what was written.
    """
    from hushpore.runs.convert import converting

    measured = Measured(timings, trace, overwrite)
    work = converting(path, output, **reading, memory_budget=memory_budget, overwrite=overwrite)
    listen = functools.partial(measured.listen, "Convert")
    done = drive(work, "Convert", quiet=as_json, listen=listen)
    measured.show()
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(done), "path": str(done.path)}, indent=2))
    else:
        click.echo(f"{done.summary}\nWritten: {done.path}")
