"""Whatever the command: what it reads is still there afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hushpore import Volume
from hushpore.cli.commands import hushpore
from hushpore.io.results import write_image

COMMANDS = {
    "the scan itself": "denoise r/denoised.tif -o r/denoised.tif",
    "the record's place": "denoise r/denoised.json.tif -o r/denoised.json.tif",
    "a folder around the scan": "pores r/denoised.tif -o r",
    "a folder within the scan": "pores stack -o stack/r",
    "run": "run r/denoised.tif -o r",
    "patches": "patches r/denoised.tif -o r",
    "all that there is": "pores / -o r",
    "a mask": "pores scan.tif -o r --sample-mask r/denoised.tif",
    "convert": "convert stack.zarr stack.zarr",
    "batch": "batch stack -o stack/results",
    "the picture": "denoise scan.tif -o d.tif --picture scan.tif",
    "the model": "denoise scan.tif -o d.tif --model m.safetensors --save-model m.safetensors",
    "two to one place": "denoise scan.tif -o d.tif --picture d.tif",
    "the time line": "pores scan.tif -o new --trace scan.tif",
    "the time line and the result": "denoise scan.tif -o d.tif --trace d.tif",
    "the time line and the record": "denoise scan.tif -o d.tif --trace d.json",
    "the time line within the result": "pores scan.tif -o r --trace r/result.json",
    "the time line within the scan": "run stack -o new --trace stack/line.json",
    "the time line and a record": "denoise scan.tif -o d.tif --repeat r.json --trace r.json",
    "the time line of a conversion": "convert stack new.zarr --trace stack/line.json",
    "export": "export r -o r/pores.csv",
    "compare": "compare r r2 --csv r/pores.csv",
    "demo": "demo r/denoised.tif -o r",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Scans in several places, one of them in a result folder."""
    monkeypatch.chdir(tmp_path)
    volume = Volume(np.arange(192, dtype=np.uint16).reshape(3, 8, 8))
    for name in ("r", "r2", "stack"):
        Path(name).mkdir()
        Path(name, "pores.csv").write_text("label\n1\n")
    for name in ("scan.tif", "r/denoised.tif", "r/denoised.json.tif", "stack/a.tif", "stack.zarr"):
        write_image(name, volume)
    Path("m.safetensors").write_text("weights")
    Path("r.json").write_text("{}")
    listed = ["denoised.tif", "denoised.json.tif", "pores.csv", "result.json"]
    for name in ("r", "r2"):
        record = {"jobs": [{"job": "pores"}], "files": listed}
        Path(name, "result.json").write_text(json.dumps(record))
    return tmp_path


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_never_writes_to_what_it_reads(folder: Path, what: str) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = CliRunner().invoke(hushpore, [*COMMANDS[what].split(), "--overwrite"])
    assert done.exit_code == 1
    assert "Cannot write" in done.output or "would be written to the same place" in done.output
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
