"""What is published has the requirements, version and links of the project."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import yaml

from hushpore import __version__

ROOT = Path(__file__).parents[2]

#: Names of packages on conda-forge where they differ from those on PyPI.
CONDA = {"matplotlib": "matplotlib-base", "torch": "pytorch"}


def test_versions_and_requirements_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text("utf-8"))
    assert recipe["context"]["version"] == __version__
    assert f">={recipe['context']['python_min']}" == project["requires-python"]
    # conda has no extras, and its PyTorch for the CPU is small
    needed = [*project["dependencies"], *project["optional-dependencies"]["denoise"]]
    stated = dict(re.match(r"([\w.-]+)(.*)", each).groups() for each in needed)  # type: ignore[union-attr]
    expected = {f"{CONDA.get(name, name)} {version}" for name, version in stated.items()}
    assert set(recipe["requirements"]["run"]) == expected | {"python >=${{ python_min }}"}
    assert recipe["about"]["license"] == project["license"]
    scripts = [f"{name} = {where}" for name, where in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_the_version_to_cite_is_the_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert cited["version"] == __version__
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert heading is not None
    assert heading[1] in ("Unreleased", __version__)


def test_links_of_the_published_readme_lead_to_files_of_the_release() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "readme_for_pypi.py"))
    text = (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)]+)\)", script["with_absolute_links"](text, "v1.2.3"))
    own = [link for link in links if link.startswith(script["REPOSITORY"])]
    assert len(own) > 20
    assert all(link.startswith("https://") for link in links)
    for link in own:
        kind, path = link.removeprefix(script["REPOSITORY"] + "/").split("/v1.2.3/")
        assert (ROOT / path).is_file()
        assert kind == ("raw" if path.endswith(".gif") else "blob")
