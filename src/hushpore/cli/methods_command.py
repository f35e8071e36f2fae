"""The command that writes the methods paragraph of a result."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from hushpore.cli.terminal import echo


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
