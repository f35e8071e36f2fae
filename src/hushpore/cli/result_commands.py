"""Commands for results (reproduce, compare, export, describe), and one that aligns two scans."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import click

from hushpore.cli.flags import device_flag, in_flags, preference_flags, reading_flags, reading_from
from hushpore.cli.terminal import drive, echo
from hushpore.figures.drawing import COLUMNS
from hushpore.figures.drawing import FORMATS as FIGURE_FORMATS
from hushpore.io.registry import exporters_of
from hushpore.io.results import as_csv
from hushpore.runs.pore_result import export

FORMATS = exporters_of("pores")
EXPORT_HELP = (
    "Export the pores, or the regions of phases, in the folder RESULT to another program.\n\n"
) + " ".join(
    f"{name}: {each.content} ({', '.join(each.endings)})." for name, each in FORMATS.items()
)


@click.command("rerun", short_help="Reproduce a result and check that it is identical.")
@click.argument("result", metavar="RESULT")
@click.option(
    "-o", "--output", required=True, metavar="OUT", help="New result: a folder, or an image file."
)
@device_flag
@preference_flags("csv_decimal", "workbook")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the outcome as JSON, without a progress bar."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing result in OUT.")
@reading_flags("trust")
def rerun_command(
    result: str, output: str, device: str, as_json: bool, overwrite: bool, trust: bool
) -> None:
    """Reproduce RESULT, a folder or a denoised image, from its record, and compare the two.

    Checks the fingerprint of the scan, then runs the same jobs with the same settings. Reports
    whether the results are identical (images bit by bit, tables to nine digits) or what differs;
    the exit status is 2 if they differ.
    """
    from hushpore.runs.rerun import rerun

    done = drive(rerun(result, output, device, overwrite, trust), "Rerun", quiet=as_json)
    if as_json:
        found = {"identical": done.identical, "differences": done.differences}
        echo(json.dumps({"written": str(done.written), **found}, indent=2))
    else:
        echo(f"{in_flags(done.summary)}\nWritten: {done.written}")
    if not done.identical:
        sys.exit(2)


@click.command("compare", short_help="Compare two pore results or two phase results.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("-o", "--output", metavar="FILE", help="Figure that shows both results (.png).")
@click.option("--csv", metavar="FILE", help="CSV file for the table.")
@preference_flags("csv_decimal")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def compare_command(
    a: str, b: str, output: str | None, csv: str | None, as_json: bool, overwrite: bool
) -> None:
    """Compare the results in the folders A and B: two pore results, or two phase results.

    The table lists totals and medians side by side. For each distribution it gives the
    Kolmogorov-Smirnov distance (ks; 0: identical, 1: no overlap), the p value of the Mann-Whitney
    test (p), and a 95 % confidence interval for the difference of the medians (low, high). Pores of
    one scan are not independent samples, so p values and intervals are too optimistic.

    Phases are matched by name: the table lists volume fraction, surface, thickness and regions of
    each phase, and the contact areas between phases.
    """
    from hushpore.base.atomic import new_file
    from hushpore.io.output_target import check_target, require_apart
    from hushpore.runs.compare import (
        NOT_INDEPENDENT,
        compare,
        comparison_figure,
        comparison_headline,
        unit_in_words,
    )

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
    echo(comparison_headline(table))
    if table["p"].notna().any():
        echo(f"  - {NOT_INDEPENDENT}")
    echo(f"\n{shown.to_string(index=False, na_rep='', float_format='%.4g')}")
    for file in files.values():
        echo(f"Written: {file}", err=True)


@click.command("export", short_help="Export a pore result to another program.", help=EXPORT_HELP)
@click.argument("result", metavar="RESULT")
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write.")
@click.option(
    "--to",
    type=click.Choice(list(FORMATS)),
    default=None,
    help="File format.  [default: from the extension of FILE]",
)
@click.option(
    "--label",
    "labels",
    type=int,
    multiple=True,
    metavar="N",
    help="For a surface: export this pore only; repeat for more pores.",
)
@click.option("--apart", is_flag=True, help="For a surface: give each pore its own closed surface.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def export_command(
    result: str, output: str, to: str | None, labels: tuple[int, ...], apart: bool, overwrite: bool
) -> None:
    """Export a pore result to another program."""
    for file in export(
        result, output, to or "", labels=labels or None, apart=apart, overwrite=overwrite
    ):
        echo(f"Written: {file}")


@click.command("plots", short_help="Write the plots of a pore result for a publication.")
@click.argument("result", metavar="RESULT")
@click.option("-o", "--output", required=True, metavar="OUT", help="Folder for the plots.")
@click.option(
    "--column",
    default="equivalent_diameter",
    show_default=True,
    metavar="NAME",
    help="Size of the distributions: a column of pores.csv.",
)
@click.option(
    "--bins",
    type=click.IntRange(1, 1000),
    default=None,
    help="Bins of the distributions.  [default: from the number of pores]",
)
@click.option("--log", is_flag=True, help="Logarithmic size axis.")
@click.option("--no-fit", is_flag=True, help="Leave out the log-normal fits.")
@click.option(
    "--width",
    type=click.Choice(list(COLUMNS)),
    default="single",
    show_default=True,
    help="One column of 90 mm, or two of 190 mm.",
)
@click.option(
    "--format",
    "formats",
    type=click.Choice(FIGURE_FORMATS),
    multiple=True,
    help="File format; repeat for more.  [default: all]",
)
@preference_flags("csv_decimal")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def plots_command(
    result: str,
    output: str,
    column: str,
    bins: int | None,
    log: bool,
    no_fit: bool,
    width: str,
    formats: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Write the plots of the pore result in the folder RESULT for a publication.

    Size distributions by number and by volume, differential and cumulative, with D10, D50, D90 and
    a log-normal fit; porosity profile; and as far as measured, local thickness, REV and drainage.
    Each plot is written in every format (PNG has 300 dpi), and its data as CSV.
    """
    from hushpore.runs.plots import export_plots

    for file in export_plots(
        result,
        output,
        column=column,
        bins=bins,
        log=log,
        fitted=not no_fit,
        width=width,
        formats=formats or FIGURE_FORMATS,
        overwrite=overwrite,
    ):
        echo(f"Written: {file}")


@click.command("align", short_help="Align a scan with another scan of the same sample.")
@click.argument("moving", metavar="MOVING")
@click.argument("fixed", metavar="FIXED")
@click.option(
    "-o", "--output", required=True, metavar="OUT", help="New OME-Zarr folder (.ome.zarr)."
)
@reading_flags()
@click.option("--overwrite", is_flag=True, help="Replace an existing OME-Zarr folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the motion as JSON.")
def align_command(
    moving: str, fixed: str, output: str, overwrite: bool, as_json: bool, **reading: Any
) -> None:
    """Shift and rotate the scan MOVING onto the grid of FIXED, a scan of the same sample.

    For repeat scans (denoise --pair) and scans before and after a treatment. The motion is rigid,
    up to about 10 degrees and half of the scan. The grey values of the two may differ by a gain and
    an offset. Prints how much of FIXED is covered. The flags for reading apply to both scans.
    """
    from hushpore.io.align import aligned
    from hushpore.io.output_target import check_target, require_apart
    from hushpore.runs.convert import converting
    from hushpore.runs.scan_recipe import ScanRecipe

    target = check_target(output, overwrite, suffixes=(".zarr",))
    require_apart([target], [moving, fixed])
    how = reading_from(reading)
    scans = [ScanRecipe.read_as(path, how).describe() for path in (moving, fixed)]
    volume, found = aligned(*scans)
    done = drive(converting(volume, Path(target), overwrite=overwrite), "Align", quiet=as_json)
    if as_json:
        words = {
            "written": str(done.path),
            "shift": found.shift.tolist(),
            "unit": volume.unit,
            "degrees": found.angles,
            "rotation": found.rotation.tolist(),
            "overlap": found.overlap,
            "correlation": found.correlation,
        }
        echo(json.dumps(words, indent=2))
    else:
        echo(f"{in_flags(volume.notes[-1])}\nWritten: {done.path}")


@click.command("methods", short_help="Write the methods paragraph of a pore result.")
@click.argument("result", metavar="RESULT")
@click.option("--json", "as_json", is_flag=True, help="Print paragraph, DOIs and gaps as JSON.")
def methods_command(result: str, as_json: bool) -> None:
    """Write a methods paragraph for the pore result in the folder RESULT, ready to paste.

    It names voxel size, denoising, threshold, splitting of pores, number of pores, uncertainty and
    software, with the DOIs of the methods, and lists what reviewers ask for that the record does
    not hold.
    """
    from hushpore.runs.methods_text import methods_text
    from hushpore.runs.pore_result import open_result
    from hushpore.runs.result_folder import read_provenance

    touches = open_result(Path(result)).pores["touches_border"].to_numpy(bool)
    text = methods_text(read_provenance(result), touches)
    echo(json.dumps(asdict(text), indent=2, ensure_ascii=False) if as_json else str(text))
