"""Write docs/licences.md from the installed packages: python docs/licences.py.

The page lists hushpore's dependencies with all extras for the CPU, and theirs.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).with_name("licences.md")
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
#: Extras that need other hardware.
LEFT_OUT = ("cuda12", "cuda13")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
HEAD = """# Licences of the dependencies

*Which packages does hushpore need, and under which licences?*

hushpore is under the [BSD 3-Clause licence](https://opensource.org/license/bsd-3-clause). The table
lists its dependencies with the extras `all`, `cluster`, `formats`, `nifti`, `parquet`, `xlsx` and
`zarr`, and theirs, with the licence from their metadata. Direct dependencies are in bold. `all`
includes PyQt6 (GPL): a program that is distributed together with PyQt6 falls under its terms.
hushpore works with any Qt binding. `python docs/licences.py` writes this page.

| package | licence |
|---|---|
"""


def direct() -> set[str]:
    """Return the names of the direct dependencies."""
    known = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = [each for name, each in known["optional-dependencies"].items() if name not in LEFT_OUT]
    named = {name_of(each) for each in itertools.chain(known["dependencies"], *extras)}
    return named - {"hushpore"}  # which all names for the sake of its extras


def name_of(requirement: str) -> str:
    """Return the name in a requirement, in its normalised spelling."""
    found = _NAME.match(requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def needed() -> dict[str, str]:
    """Return the licence of each dependency that is installed and pinned for CI."""
    pinned = {name_of(line) for line in CONSTRAINTS.read_text(encoding="utf-8").splitlines()
              if line and not line.startswith("#")}  # fmt: skip
    todo = [(name, "") for name in direct()]
    todo += [("napari", "all")] if "napari" in direct() else []
    seen: set[tuple[str, str]] = set()
    found: dict[str, str] = {}
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen or name not in pinned:
            continue
        seen.add((name, extra))
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = licence(package.metadata)
        todo += [*_applying(package.requires or [], extra), (name, "")]
    return dict(sorted(found.items()))


def _applying(requirements: Iterable[str], extra: str) -> Iterator[tuple[str, str]]:
    """Yield name and extra of the requirements that apply to this Python and system."""
    from packaging.requirements import Requirement

    for text in requirements:
        each = Requirement(text)
        if each.marker is not None and not each.marker.evaluate({"extra": extra}):
            continue
        if extra and (each.marker is None or "extra" not in str(each.marker)):
            continue
        for wanted in each.extras or {""}:
            yield name_of(each.name), wanted


def licence(known: metadata.PackageMetadata) -> str:
    """Return the short name of the licence in the metadata of a package."""
    stated = known.get("License-Expression")
    if stated:
        return str(stated)
    classes = [each.rpartition(" :: ")[2] for each in known.get_all("Classifier") or []
               if each.startswith("License :: ")]  # fmt: skip
    words = str(known.get("License") or "").strip()
    if words and len(words) < 60 and "\n" not in words:
        return words
    return "; ".join(classes) or (words.splitlines()[0].strip() if words else "not stated")


def written() -> dict[str, str]:
    """Return the licences on the page."""
    if not PAGE.is_file():
        return {}
    row = re.compile(r"^\| \**([a-z0-9-]+)\** \| (.+) \|$", re.MULTILINE)
    rows = row.findall(PAGE.read_text(encoding="utf-8"))
    return {name: words for name, words in rows if name != "package"}


def licences_page() -> str:
    """Return the page renewed; rows of packages that are not installed here are kept."""
    own = direct()
    kept = {name: words for name, words in written().items() if name in own}
    rows = (
        f"| {f'**{name}**' if name in own else name} | {words.replace('|', '/')} |"
        for name, words in sorted({**kept, **needed()}.items())
    )
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(licences_page(), encoding="utf-8")
