"""Write docs/settings.md from the settings classes: python docs/settings.py."""

from __future__ import annotations

from pathlib import Path

from hushpore.base.preferences import Preferences
from hushpore.jobs import JOBS

HEAD = """# Settings

*Which settings does each job have, with which defaults?*

A setting has the same name as a keyword argument (`hushpore.denoise(scan, time_budget=120)`), as a
flag (`hushpore denoise --time-budget 120`), in settings files, and in the record of every result;
napari shows a label, at first or under *More* in the named group.
`docs/settings.py` writes this page from the settings classes.
"""

PREFERENCES = "Preferences ([defaults of this computer](howto/preferences.md))"


def settings_page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    classes = {f"{kind.title} (`{job}`)": kind.settings for job, kind in JOBS.items()}
    for title, settings in {**classes, PREFERENCES: Preferences}.items():
        parts.append(f"\n## {title}\n")
        parts.append("| setting | in napari | default | accepted | effect |")
        parts.append("|---|---|---|---|---|")
        for option in settings.options():
            accepted = option.expected + (f", {option.unit}" if option.unit else "")
            label = f"{option.more} > {option.label}" if option.more else option.label
            row = (f"`{option.name}`", label, f"`{option.default}`", accepted, option.help)
            parts.append("| " + " | ".join(row) + " |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings_page(), encoding="utf-8")
