"""Writes docs/settings.md from the settings classes: python docs/settings.py."""

from __future__ import annotations

from pathlib import Path

from hushpore.base.preferences import Preferences
from hushpore.jobs import JOBS

HEAD = """# Settings

Made from the settings classes by `docs/settings.py`. The same names serve as keyword arguments
(`hushpore.denoise(scan, time_budget=120)`), as flags (`hushpore denoise --time-budget 120`), in the
napari forms and in the record of every result.
"""

PREFERENCES = "Preferences ([what holds where nothing is asked for](howto/preferences.md))"


def settings_page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    classes = {f"{kind.title} (`{job}`)": kind.settings for job, kind in JOBS.items()}
    for title, settings in {**classes, PREFERENCES: Preferences}.items():
        parts.append(f"\n## {title}\n")
        parts.append("| setting | default | accepted | what it does |")
        parts.append("|---|---|---|---|")
        for option in settings.options():
            accepted = option.expected + (f", {option.unit}" if option.unit else "")
            row = (f"`{option.name}`", f"`{option.default}`", accepted, option.help)
            parts.append("| " + " | ".join(row) + " |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings_page(), encoding="utf-8")
