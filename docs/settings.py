"""Write docs/settings.md from the settings classes: python docs/settings.py."""

from __future__ import annotations

from pathlib import Path

from hushpore.base.preferences import Preferences
from hushpore.jobs import JOBS
from hushpore.viewer.docks import DOCKS, OF_JOB

HEAD = """# Settings

*Which settings does each job have, with which defaults?*

A setting has the same name as a keyword argument (`hushpore.denoise(scan, time_budget=120)`), as a
flag (`hushpore denoise --time-budget 120`), in settings files, and in the record of every result;
napari shows a label on the page named below each title, at first or under *More* in the named
group.
`docs/settings.py` writes this page from the settings classes.
"""

PREFERENCES = "Preferences ([defaults of this computer](howto/preferences.md))"


def settings_page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    of_jobs = [
        (f"{kind.title} (`{job}`)", _place(job), kind.settings) for job, kind in JOBS.items()
    ]
    for title, place, settings in [
        *of_jobs,
        (PREFERENCES, "*File > IO Utilities > Preferences*", Preferences),
    ]:
        parts.append(f"\n## {title}\n\nIn napari: {place}.\n")
        parts.append("| setting | in napari | default | accepted | effect |")
        parts.append("|---|---|---|---|---|")
        for option in settings.options():
            accepted = option.expected + (f", {option.unit}" if option.unit else "")
            label = f"{option.more} > {option.label}" if option.more else option.label
            row = (f"`{option.name}`", label, f"`{option.default}`", accepted, option.help)
            parts.append("| " + " | ".join(row) + " |")
    return "\n".join(parts) + "\n"


def _place(job: str) -> str:
    """Return dock and page of a job in napari."""
    page = OF_JOB.get(job)
    if page is None:
        return "a dock of its own"
    dock = next(name for name, pages in DOCKS.items() if page in pages)
    return f"*{dock}*" if dock == page else f"*{dock}*, page *{page}*"


if __name__ == "__main__":
    Path(__file__).with_name("settings.md").write_text(settings_page(), encoding="utf-8")
