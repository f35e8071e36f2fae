"""How Sphinx builds the documentation: make site."""

from __future__ import annotations

from importlib import metadata

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
# one page has one title; links go to headings by their text
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "dollarmath"]
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_show_class_members = False
# the sources say what they mean in plain words too: these are not all names of things
default_role = "code"
nitpicky = False

html_theme = "furo"
html_title = f"hushpore {version}"
html_copy_source = False
html_show_sourcelink = False
copyright = "The hushpore developers, BSD-3-Clause"
