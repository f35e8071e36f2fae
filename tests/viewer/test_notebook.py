"""The page on notebooks does what it says."""

import re
from pathlib import Path

import napari
import numpy as np
import pytest
from magicgui.widgets import Container

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "notebook.md"
_CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("small_network")
def test_every_cell_of_the_notebook_runs(make_napari_viewer, monkeypatch, capsys):
    monkeypatch.setattr(napari, "Viewer", make_napari_viewer)
    said: dict = {}
    cells = _CODE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(cells) > 5
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number} of {PAGE.name}", "exec"), said)
    out = capsys.readouterr().out
    viewer, found = said["viewer"], said["found"]
    for name in ("denoise", "pores", "patches"):
        assert isinstance(said[name], Container)
    # what the widgets did is what the library does, and lies in the window
    assert said["denoised"].provenance["settings"]["steps"] == 20
    assert found.provenance["settings"]["threshold"] == "li"
    assert len(found.pores) == np.unique(found.labels).size - 1
    assert {"foam", "foam · denoised", "foam · pores"} <= {each.name for each in viewer.layers}
    assert list(said["porosities"]) == ["otsu", "li", -300.0]
    assert said["porosities"]["li"] == found.porosity
    assert "DenoiseWidget (layer: " in out
    assert "threshold must be 'auto', 'otsu', 'li'" in out
    assert re.search(r"^closed .*porosity", out, re.MULTILINE | re.IGNORECASE)
