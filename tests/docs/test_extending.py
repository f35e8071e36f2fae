"""The package on the page about extending works once it is installed beside hushpore."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "extend.md"

#: What a user of the package does, in one process: info, the job, and an export of pores.
DRIVE = """
import json
import numpy as np
from click.testing import CliRunner
import hushpore
from hushpore.cli.commands import hushpore as command

open("scan.toy", "wb").write(b"TOY1" + bytes(i % 200 for i in range(512)))
call = lambda *words: CliRunner().invoke(command, list(words))
done = call("invert", "scan.toy", "-o", "out.tif", "--white", "200")
made = hushpore.read("out.tif")
pores = hushpore.segment_pores(np.arange(512.0).reshape(8, 8, 8) % 2, threshold=0.5)
hushpore.export(pores, "count.txt", to="toy-txt")
print(json.dumps({
    "info": call("info", "scan.toy").output, "exit": done.exit_code, "output": done.output,
    "first": int(made.data[0, 0, 0]), "last": int(made.data[0, 0, 7]), "spacing": made.spacing,
    "pores": len(pores.pores), "count": open("count.txt").read(),
}))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of site packages with the page's package in it, as pip would install it."""
    page = PAGE.read_text(encoding="utf-8")
    settings, code = (
        re.findall(rf"^```{kind}\n(.*?)^```$", page, re.M | re.S)[0] for kind in ("toml", "python")
    )
    project = tomllib.loads(settings)["project"]
    module = {
        name.split(":")[0] for each in project["entry-points"].values() for name in each.values()
    }
    (tmp_path / f"{module.pop()}.py").write_text(code, encoding="utf-8")
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in each.items())
        for group, each in project["entry-points"].items()
    )
    folder = tmp_path / "hushpore_toy-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n"
    )
    (folder / "entry_points.txt").write_text(points)
    return tmp_path


def run(code: str, site: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=site, env=environment, capture_output=True, text=True,
        check=True,
    )  # fmt: skip


def test_its_format_job_and_export_are_there(installed: Path) -> None:
    found = json.loads(run(DRIVE, installed).stdout)
    assert "8 x 8 x 8" in found["info"]
    assert found["exit"] == 0, found["output"]
    assert (found["first"], found["last"], found["spacing"]) == (200, 193, [2.0, 2.0, 2.0])
    assert found["count"] == str(found["pores"])


def test_a_broken_package_is_left_out_and_the_log_says_why(installed: Path) -> None:
    (installed / "hushpore_toy.py").write_text("raise ValueError('not today')")
    done = run("import hushpore.jobs; print(sorted(hushpore.jobs.JOBS))", installed)
    assert done.stdout.strip() == "['denoise', 'measure', 'patches', 'phases', 'pores']"
    assert "invert (hushpore.jobs) of hushpore-toy was left out: its import failed: not today" in (
        done.stderr
    )


def test_names_in_use_and_objects_of_another_kind_are_left_out(installed: Path) -> None:
    points = installed / "hushpore_toy-1.0.dist-info" / "entry_points.txt"
    points.write_text("[hushpore.jobs]\npores = hushpore_toy:JOB\nodd = hushpore_toy:READER\n")
    done = run("import hushpore.jobs; print(hushpore.jobs.JOBS['pores'].title)", installed)
    assert done.stdout.strip() == "Segment pores"
    assert "pores (hushpore.jobs) of hushpore-toy was left out: hushpore or another" in done.stderr
    assert "it is a Reader instead of a JobDescription" in done.stderr
