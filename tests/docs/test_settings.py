from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_settings_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "settings.py"))["settings_page"]()
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == page, "run docs/settings.py"
