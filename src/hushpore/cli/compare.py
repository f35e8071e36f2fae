"""The command that lays two results side by side."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import click


@click.command("compare", short_help="Say how two pore results differ.")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("-o", "--output", metavar="FILE", help="Picture of both distributions (.png).")
@click.option("--csv", metavar="FILE", help="Write the table as CSV.")
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
def compare_command(
    a: str, b: str, output: str | None, csv: str | None, as_json: bool, overwrite: bool
) -> None:
    """Say how the pore results in the folders A and B differ.

    Totals and medians side by side, and the distance of the distributions (Kolmogorov-Smirnov, 0:
    alike, 1: no overlap).
    """
    from hushpore.io.target import check_target, new_file
    from hushpore.runs.compare import compare, comparison_figure

    files = {
        suffix: check_target(path, overwrite, directory=False, suffixes=(suffix,))
        for suffix, path in ((".png", output), (".csv", csv))
        if path is not None
    }
    table = compare(a, b)
    for suffix, file in files.items():
        with new_file(file, overwrite) as part:
            if suffix == ".csv":
                table.to_csv(part, index=False, lineterminator="\n", encoding="utf-8")
            else:
                part.write_bytes(comparison_figure(a, b))
    if as_json:
        click.echo(table.to_json(orient="records", indent=2))
        return
    shown = table.rename(columns={"a": Path(a).name, "b": Path(b).name})
    shown["relative"] = [f"{share:+.1%}" if isfinite(share) else "" for share in table["relative"]]
    click.echo(shown.to_string(index=False, na_rep="", float_format="%.4g"))
    for file in files.values():
        click.echo(f"Written: {file}", err=True)
