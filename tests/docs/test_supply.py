"""What hushpore is made of: actions of CI by their commits, lowest versions, licences."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_action_is_named_by_its_commit_and_its_version() -> None:
    used = [line for each in WORKFLOWS for line in each.read_text("utf-8").splitlines()
            if "uses:" in line]  # fmt: skip
    assert used
    for line in used:
        assert re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$", line), line


def test_the_lowest_versions_are_those_of_the_project() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = known["project"]["optional-dependencies"]
    stated = list(known["project"]["dependencies"])
    # napari comes with many packages of its own, and is tested with the newest
    for extra in ("cluster", "denoise", "formats", "nifti", "parquet", "xlsx", "zarr"):
        stated += extras[extra]
    found = [re.match(r"([A-Za-z0-9._-]+)(?:\[.*\])?>=([0-9.]+)", each) for each in stated]
    lowest = {each[1].lower(): each[2] for each in found if each is not None}
    assert len(lowest) == len({re.split(r"[\[>=<]", each)[0].lower() for each in stated})
    lines = (ROOT / "constraints-minimum.txt").read_text("utf-8").splitlines()[1:]
    assert lines == [f"{name}=={version}" for name, version in sorted(lowest.items())]


def test_every_pin_has_the_sums_of_its_files_but_torch_alone() -> None:
    pinned = set(re.findall(r"(?m)^([\w.-]+==\S+)", (ROOT / "constraints.txt").read_text("utf-8")))
    hashed = (ROOT / "constraints-hashed.txt").read_text("utf-8")
    entries = re.findall(r"(?m)^(\S+==\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", hashed)
    normal = {re.sub(r"[-_.]+", "-", each).lower() for each in pinned}
    found = {re.sub(r"[-_.]+", "-", each).lower() for each, _ in entries}
    # its builds, of CPU and CUDA, share a version, and have indexes of their own
    assert {each for each in normal if not each.startswith("torch==")} == found
    assert len(found) == len(normal) - 1 == len(entries)


def test_licences_are_listed_as_the_installed_packages_state_them() -> None:
    page = runpy.run_path(str(ROOT / "docs" / "licences.py"))
    written = page["written"]()
    assert page["direct"]() <= set(written)
    # a package may change its licence, or how it states it, with a version that is not pinned here
    pinned = dict(
        line.lower().split("==")
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if "==" in line
    )
    for name, words in page["needed"]().items():
        if page["metadata"].version(name) == pinned.get(name):
            assert written[name] == words.replace("|", "/"), "run docs/licences.py"
