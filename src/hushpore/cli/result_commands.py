"""The commands on results: make one again, compare two, write one for another program."""

from __future__ import annotations

import json
import sys
from math import isfinite
from pathlib import Path

import click

from hushpore.base.safe_text import as_csv
from hushpore.cli.flags import device_flag, trust_flag
from hushpore.cli.terminal import drive, echo
from hushpore.io.registry import exporters_of
from hushpore.runs.pore_result import export

FORMATS = exporters_of("pores")
EXPORT_HELP = (
    "Write the pore result, or the regions of phases, in the folder RESULT for another program.\n\n"
) + " ".join(
    f"{name}: {each.content} ({', '.join(each.endings)})." for name, each in FORMATS.items()
)


@click.command("rerun", short_help="Make a result again, and say whether it is the same.")
@click.argument("result", metavar="RESULT")
@click.option("-o", "--output", required=True, metavar="OUT", help="Where the new result goes.")
@device_flag
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON, no bar.")
@click.option("--overwrite", is_flag=True, help="Replace an existing result in OUT.")
@trust_flag
def rerun_command(
    result: str, output: str, device: str, as_json: bool, overwrite: bool, trust: bool
) -> None:
    """Make RESULT, a folder or a denoised image, again from the record of it, and compare.

    Reads the same scan, after a look at its fingerprint, and runs the same jobs with the same
    settings. Says whether the result is identical (images to the bit, tables to nine digits), or
    what differs; ends with status 2 where it does.
    """
    from hushpore.runs.rerun import rerun

    done = drive(rerun(result, output, device, overwrite, trust), "Rerun", quiet=as_json)
    if as_json:
        found = {"identical": done.identical, "differences": done.differences}
        echo(json.dumps({"written": str(done.written), **found}, indent=2))
    else:
        echo(f"{done.summary}\nWritten: {done.written}")
    if not done.identical:
        sys.exit(2)


@click.command("compare", short_help="Say how two results of pores or phases differ.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("-o", "--output", metavar="FILE", help="Picture of both (.png).")
@click.option("--csv", metavar="FILE", help="Write the table as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def compare_command(
    a: str, b: str, output: str | None, csv: str | None, as_json: bool, overwrite: bool
) -> None:
    """Say how the results in the folders A and B differ: two of pores, or two of phases.

    Totals and medians side by side, and of the distributions the distance (ks, Kolmogorov-Smirnov,
    0: alike, 1: no overlap), the test of Mann and Whitney (p), and a 95 % interval of the
    difference of medians (low, high). Pores of one scan are not independent samples: tests and
    intervals look surer than they are.

    Phases are compared by their names: share, surface, thickness and regions of each, and the areas
    at which they touch.
    """
    from hushpore.base.atomic import new_file
    from hushpore.io.output_target import check_target, require_apart
    from hushpore.runs.compare import compare, comparison_figure, unit_in_words
    from hushpore.runs.two_samples import NOT_INDEPENDENT

    files = {
        suffix: check_target(path, overwrite, suffixes=(suffix,))
        for suffix, path in ((".png", output), (".csv", csv))
        if path is not None
    }
    require_apart(files.values(), [a, b], "compared")
    table = compare(a, b)
    for suffix, file in files.items():
        with new_file(file, overwrite) as part:
            if suffix == ".csv":
                as_csv(table, part)
            else:
                part.write_bytes(comparison_figure(a, b))
    if as_json:
        echo(table.to_json(orient="records", indent=2))
        return
    shown = table.rename(columns={"a": Path(a).name, "b": Path(b).name})
    shown["unit"] = [unit_in_words(unit) for unit in table["unit"]]
    shown["relative"] = [
        f"{100 * share:+.1f} %" if isfinite(share) else "" for share in table["relative"]
    ]
    echo(shown.to_string(index=False, na_rep="", float_format="%.4g"))
    if table["p"].notna().any():
        echo(NOT_INDEPENDENT, err=True)
    for file in files.values():
        echo(f"Written: {file}", err=True)


@click.command("export", short_help="Write a pore result for another program.", help=EXPORT_HELP)
@click.argument("result", metavar="RESULT")
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")
@click.option(
    "--to",
    type=click.Choice(list(FORMATS)),
    default=None,
    help="Format; by default what the name of FILE says.",
)
@click.option(
    "--label",
    "labels",
    type=int,
    multiple=True,
    metavar="N",
    help="For a surface: this pore only; may be given several times.",
)
@click.option("--apart", is_flag=True, help="For a surface: close each pore by itself.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def export_command(
    result: str, output: str, to: str | None, labels: tuple[int, ...], apart: bool, overwrite: bool
) -> None:
    """Write a pore result for another program."""
    for file in export(
        result, output, to or "", labels=labels or None, apart=apart, overwrite=overwrite
    ):
        echo(f"Written: {file}")
