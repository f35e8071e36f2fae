"""The command that writes a result for other programs."""

from __future__ import annotations

import click

from hushpore.runs.export import FORMATS, export


@click.command("export", short_help="Write a pore result for another program.")
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
    """Write the pore result in the folder RESULT for another program.

    openpnm: the network (.csv, .npz). vtk: labels (.vti) and network (.vtp) for ParaView. stl, ply:
    the surface of the pores. parquet: the tables.
    """
    for file in export(
        result, output, to or "", labels=labels or None, apart=apart, overwrite=overwrite
    ):
        click.echo(f"Written: {file}")
