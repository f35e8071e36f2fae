"""The command that aligns two scans of one sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hushpore.cli.flags import in_flags, reading_flags, reading_from
from hushpore.cli.terminal import drive, echo


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
