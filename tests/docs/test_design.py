"""The map of the house in docs/design.md: every folder, every file, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hushpore"


def house() -> dict[str, set[str]]:
    """The files of each folder below the package, by its path; without ``__init__``."""
    folders = {path.parent for path in SOURCE.rglob("*.py")} - {SOURCE}
    return {
        folder.relative_to(SOURCE).as_posix(): {
            path.stem for path in folder.glob("*.py") if path.stem != "__init__"
        }
        for folder in folders
    }


def drawn() -> dict[str, set[str]]:
    """The same, as the page draws it."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    lines = page.split("    src/hushpore/\n")[1].split("\n\n")[0].splitlines()
    found: dict[str, set[str]] = {}
    part = folder = ""
    for line in lines:
        if top := re.match(r" {6}(\w+) ", line):
            part = folder = top[1]
            found[folder] = set()
        elif room := re.match(r" {8}(\w+)/ *(.*)", line):
            folder = f"{part}/{room[1]}"
            found[folder] = set(room[2].split())
        else:
            found[folder] |= set(line.split())
    return found


def test_the_map_of_the_house_is_complete() -> None:
    is_there, on_the_map = house(), drawn()
    assert all((SOURCE / folder / "__init__.py").is_file() for folder in is_there)
    assert set(on_the_map) == set(is_there)
    for folder, files in is_there.items():
        assert on_the_map[folder] == files, folder
