"""Logs of SkyScan (Bruker) and NRecon: the voxel size and the settings of the scan."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from hushpore.io.scanners.header_text import first_value, read_sections, settings_of, sizes_of

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.volume import Volume
    from hushpore.io.scanners.header_text import Sections
    from hushpore.io.slice_stacks import SliceStack


_NO_SIZE = re.compile("voxel size is (not known|unknown)")


def is_log(path: Path) -> bool:
    """Return whether a file is a log of SkyScan or NRecon."""
    return bool(_scan_of(read_sections(path)))


def with_log(volume: Volume, stack: SliceStack) -> Volume:
    """Return a stack of slices with the voxel size and settings of the log beside it.

    Parameters
    ----------
    volume : Volume
        The stack; a voxel size that its files state is kept.
    stack : SliceStack
        Its files. The log is ``PREFIX.log`` with the prefix of their names, or the only ``.log``
        file of a folder that has the sections of SkyScan.

    Returns
    -------
    Volume
        The same volume if there is no such log.
    """
    for log in _logs(stack):
        sections = read_sections(log)
        scan = _scan_of(sections)
        if not scan:
            continue
        # prefer the voxel size of the reconstruction, which is also correct for resized slices
        text = scan.get("pixel size (um)") or scan.get("image pixel size (um)", "")
        size = sizes_of([text])
        settings = settings_of(
            scanner=first_value(sections, "scanner"),
            voltage_kv=first_value(sections, "source voltage (kv)", "source voltage  (kv)"),
            current_ua=first_value(sections, "source current (ua)", "source current  (ua)"),
            filter=first_value(sections, "filter"),
            exposure_ms=first_value(sections, "exposure (ms)"),
            rotation_step_deg=first_value(sections, "rotation step (deg)"),
        )
        metadata = {**settings, **volume.metadata}
        if size is None or volume.unit != "pixel":
            return dataclasses.replace(volume, metadata=metadata)
        said = f"The voxel size, {size[0]:g} µm, is taken from {log.name}."
        # drop the note on the missing voxel size: picture headers only have a print size
        notes = [note for note in volume.notes if not _NO_SIZE.search(note)]
        return dataclasses.replace(
            volume, spacing=size * volume.n_spatial, unit="um", notes=[*notes, said],
            metadata=metadata,
        )  # fmt: skip
    return volume


def _scan_of(sections: Sections) -> dict[str, str]:
    """Return the settings of acquisition and reconstruction; empty in other programs' logs."""
    return {**sections.get("acquisition", {}), **sections.get("reconstruction", {})}


def _logs(stack: SliceStack) -> list[Path]:
    """Return the logs beside a stack: the one with its prefix, else the only one."""
    folder = stack.files[0].parent
    logs = sorted(path for path in folder.glob("*.[lL][oO][gG]") if path.is_file())
    prefix = stack.name.lower()
    own = [log for log in logs if prefix and log.stem.lower().rstrip("_-. ") == prefix]
    # the log of the projections is named like the scan, without _rec
    shared = [log for log in logs if prefix.startswith(log.stem.lower().rstrip("_-. "))]
    return own or shared or (logs if len(logs) == 1 else [])
