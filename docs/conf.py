"""How Sphinx builds the documentation: make site."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "hushpore"
author = "The hushpore developers"
release = metadata.version("hushpore")
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "*.py"]
# links to headings by their text
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "dollarmath"]
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_show_class_members = False
# single backticks in docstrings are code, not references
default_role = "code"
nitpicky = False

html_theme = "furo"
html_title = f"hushpore {version}"
html_copy_source = False
html_show_sourcelink = False
copyright = "The hushpore developers, BSD-3-Clause"


def setup(app: Any) -> None:
    """Write the page of all figures before the pages are read."""
    app.connect("builder-inited", write_figures)


def write_figures(app: Any) -> None:
    """Write figures.md, which is not under version control."""
    from figures import figures_page

    page, target = figures_page(), HERE / "figures.md"
    # unchanged files are not built again
    if not target.exists() or target.read_text(encoding="utf-8") != page:
        target.write_text(page, encoding="utf-8")
