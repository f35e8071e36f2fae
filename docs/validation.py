"""Write the tables of docs/validation.md from the figures: python docs/validation.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_suffix(".md")
FIGURES = PAGE.parents[1] / "benchmarks" / "results" / "validation.json"

#: Why a porosity differs from the published one, or what makes it uncertain.
CAUSES = {
    "carbon fibre preform": "the authors chose the threshold 89, Otsu's is 108: many voxels are at "
    "the edges of thin fibres",
    "soil": "noise joins pores and solid in the histogram",
    "soil, larger piece": "as above; nobody published a number for this piece",
    "woven composite": "pores open to the faces were taken for surrounding air (a remark says so); "
    "without that (`--exterior keep`) 29.8 %",
    "bone": "air around the piece is excluded; with it 52.8 %",
    "cement": "pores of a few voxels",
    "fibres": "noise joins pores and solid in the histogram",
}


def porosity(figures: dict[str, Any]) -> list[list[str]]:
    """Return the rows of grey scans."""
    rows = [["scan", "published", "hushpore", "90 % interval", "Otsu", "cause of the difference"]]
    for name, scan in figures["porosity"].items():
        low, high = scan["interval"]
        published = scan["published"]
        rows.append([
            name,
            "–" if published is None else f"{100 * published:.1f} %",
            f"{100 * scan['hushpore']:.1f} %",
            f"{100 * low:.1f} to {100 * high:.1f} %",
            f"{100 * scan['Otsu']:.1f} %",
            CAUSES[name],
        ])  # fmt: skip
    return rows


def counts(figures: dict[str, Any]) -> list[list[str]]:
    """Return the rows of Leopard sandstone."""
    found = figures["pores and throats of Leopard sandstone"]
    rows = [[name, str(each["pores"]), str(each["throats"])] for name, each in found.items()]
    return [["Leopard sandstone", "pores", "throats"], *rows]


def topology(figures: dict[str, Any]) -> list[list[str]]:
    """Return the rows of volume, surface and Euler number."""
    rows = [["void of", "by", "volume", "surface", "Euler number"]]
    for rock, programs in figures["volume, surface and Euler number"].items():
        for name, each in programs.items():
            volume, surface = (f"{each[of]:,.0f}" for of in ("volume", "surface"))
            rows.append([rock, name, volume, surface, f"{each['Euler number']:g}"])
    return rows


def diffusion(figures: dict[str, Any]) -> list[list[str]]:
    """Return the rows of diffusion, and of its networks."""
    rows = [["scan", "figure", "published", "hushpore", "network"]]
    for scan, found in figures["diffusion"].items():
        for figure, published in found["published"].items():
            network = found["network"].get(figure)
            name = f"tortuosity factor along {figure}" if len(figure) == 1 else figure
            own = [f"{found['hushpore'][figure]:.4g}", f"{network:.4g}" if network else "–"]
            rows.append([scan, name, f"{published:.5g}", *own])
    return rows


def rocks(figures: dict[str, Any]) -> list[list[str]]:
    """Return the rows of permeability and formation factor."""
    rows = [["", "rock", "median", "range", "figures"]]
    for rock, found in figures["rocks"].items():
        for what, each in found.items():
            low, high = each["range"]
            name = {"beadpack": "packed beads", "berea": "Berea sandstone"}[rock]
            values = f"{each['median']:.2f}", f"{low:.2f} to {high:.2f}", str(each["figures"])
            rows.append([what, name, *values])
    return [rows[0], *sorted(rows[1:], key=lambda row: row[0], reverse=True)]


def thickness(figures: dict[str, Any]) -> list[list[str]]:
    """Return the rows of local thickness."""
    found = figures["mean local thickness"].items()
    rows = [[name, *(f"{value:.1f}" for value in each.values())] for name, each in found]
    programs = "hushpore", "covering balls", "localthickness"
    return [["mean local thickness, voxels", *programs], *rows]


def noise(figures: dict[str, Any]) -> list[list[str]]:
    """Return the rows of denoised slices."""
    found = figures["error of denoised slices"].items()
    rows = [
        [f"{int(dose)} %", *(f"{value:.1f}" for value in each.values())] for dose, each in found
    ]
    return [["dose", "reconstruction", "trained by the authors", "hushpore, 400 steps"], *rows]


TABLES = (porosity, counts, topology, diffusion, rocks, thickness, noise)


def validation_page() -> str:
    """Return the page with its tables renewed."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))["figures"]
    text = PAGE.read_text(encoding="utf-8")
    for table in TABLES:
        head, *rows = (f"| {' | '.join(row)} |" for row in table(figures))
        ruled = [head, "|" + "---|" * (head.count("|") - 1), *rows]
        mark = f"<!-- {table.__name__}: made by docs/validation.py -->\n"
        before, _, rest = text.partition(mark)
        _, end, after = rest.partition("<!-- end -->\n")
        assert end, f"the page has no marks for the table {table.__name__}"
        text = f"{before}{mark}\n" + "\n".join(ruled) + f"\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(validation_page(), encoding="utf-8")
