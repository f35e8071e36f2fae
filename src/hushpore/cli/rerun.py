"""The command that makes a result again from its record."""

from __future__ import annotations

import json
import sys

import click

from hushpore.cli.progress_bar import drive


@click.command("rerun", short_help="Make a result again, and say whether it is the same.")
@click.argument("result", metavar="RESULT")
@click.option("-o", "--output", required=True, metavar="OUT", help="Where the new result goes.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="DEVICE",
    help="Where to run: auto, cpu, cuda, or cuda:1 and so on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON, no bar.")
@click.option("--overwrite", is_flag=True, help="Replace an existing result in OUT.")
def rerun_command(result: str, output: str, device: str, as_json: bool, overwrite: bool) -> None:
    """Make a result again, from the result.json in the folder RESULT, and compare.

    Reads the same scan, after a look at its fingerprint, and runs the same jobs with the same
    settings. Says whether the result is identical to the bit, or what differs; ends with status 2
    where it does.
    """
    from hushpore.runs.rerun import rerun

    done = drive(rerun(result, output, device, overwrite), "Rerun", quiet=as_json)
    if as_json:
        found = {"identical": done.identical, "differences": done.differences}
        click.echo(json.dumps({"written": str(done.written), **found}, indent=2))
    else:
        click.echo(f"{done.summary}\nWritten: {done.written}")
    if not done.identical:
        sys.exit(2)
