"""Names of length units as files spell them, reduced to a few."""

from __future__ import annotations

# metres in one unit; the names are those that a Volume uses
METRES = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "nm": 1e-9}

#: Their names in full, as NGFF writes them.
FULL = {"m": "meter", "cm": "centimeter", "mm": "millimeter", "um": "micrometer", "nm": "nanometer"}
_NAMES = {
    **{unit: unit for unit in METRES},
    **{spelling: unit for unit, full in FULL.items()
       for spelling in (full, f"{full}s", full[:-2] + "re", full[:-2] + "res")},
    **dict.fromkeys(("µm", "μm", "micron", "microns", "\\u00b5m", "\\u03bcm"), "um"),
    **dict.fromkeys(("", "pixel", "pixels", "px", "voxel", "voxels"), "pixel"),
}  # fmt: skip
# units that are converted, because nobody measures pores in them
_CONVERTED = {
    "inch": ("mm", 25.4), "in": ("mm", 25.4), '"': ("mm", 25.4), "inches": ("mm", 25.4),
    "a": ("nm", 0.1), "å": ("nm", 0.1), "angstrom": ("nm", 0.1), "pm": ("nm", 1e-3),
}  # fmt: skip


def unit_of(text: str) -> tuple[str, float] | None:
    """Return the name of a unit and the factor that converts to it, or None if it is unknown.

    >>> unit_of("micron"), unit_of("inch"), unit_of("furlong")
    (('um', 1.0), ('mm', 25.4), None)
    """
    key = text.strip().lower()
    if key in _NAMES:
        return _NAMES[key], 1.0
    return _CONVERTED.get(key)
