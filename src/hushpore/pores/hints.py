"""What the settings of a segmentation come to for a volume, in sentences for a form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.volume import readable_unit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.base.volume import Volume
    from hushpore.pores.preview import GreySurvey
    from hushpore.pores.settings import PoreSettings

#: Methods whose threshold differs from voxel to voxel, as `hushpore.pores.local_threshold` has
#: them: a form must not wait for numba, which is behind that.
_LOCAL = ("sauvola", "niblack")

#: Merge height up to which the steps of voxels in a surface part pores: of a ball on a grid the
#: distance map has side peaks of up to half a voxel.
_STEPS = 0.5


def find_hints(settings: PoreSettings, known: Mapping[str, Any]) -> dict[str, str]:
    """Return sentences by the name of the setting; see `Settings.explained`.

    Parameters
    ----------
    settings : PoreSettings
        Of the segmentation.
    known : dict
        ``volume``: Volume, and ``greys``: GreySurvey, as far as they are known.
    """
    greys, volume = known.get("greys"), known.get("volume")
    said = {"h": _merging(settings, volume)}
    if settings.threshold in _LOCAL:
        said["threshold"] = (
            f"Each voxel has its own threshold, from the {settings.window} voxels around it "
            "(Local window)."
        )
    elif greys is not None:
        said |= _threshold(settings, greys)
    return {name: text for name, text in said.items() if text}


def find_unused(settings: PoreSettings, known: Mapping[str, Any]) -> dict[str, str]:
    """Return why settings change nothing, by their names; see `Settings.unused`.

    Parameters
    ----------
    settings : PoreSettings
        Of the segmentation.
    known : dict
        ``is_void``: whether the volume is the void itself.
    """
    reasons: dict[str, str] = {}

    def unless(is_used: bool, names: str, why: str) -> None:
        if not is_used:
            reasons.update(dict.fromkeys(names.split(), f"Not used: {why}."))

    is_local = settings.threshold in _LOCAL
    unless(is_local, "window window_in_slice local_k", "for the thresholds sauvola and niblack")
    # what is refused can be set back
    unless(settings.threshold == "otsu" or settings.phases > 2, "phases", "for the method otsu")
    unless(not is_local or settings.hysteresis is not None, "hysteresis", "the threshold is local")
    unless(settings.outside != "keep", "outside_radius", "the air outside is kept")
    unless(not settings.sample_mask, "outside outside_radius", "a mask says what the sample is")
    unless(settings.merging == "height", "h", "pores are parted by the peaks of SNOW (Merging)")
    unless(not settings.markers, "h merging", "pores are parted by markers")
    if known.get("is_void"):
        greys = "threshold phases hysteresis window window_in_slice local_k pores_are"
        unless(False, greys, "the layer is the void itself, without grey values")
    return reasons


def _threshold(settings: PoreSettings, greys: GreySurvey) -> dict[str, str]:
    """Explain the threshold, and the stricter one."""
    found = greys.known(settings)
    if found is None:
        return {}
    if isinstance(found, InputError):
        return {"threshold": str(found)}
    unit, bright = f" {greys.unit}".rstrip(), settings.pores_are == "bright"
    low, high = greys.range.low, greys.range.high
    of = "voxels" if greys.share == 1 else "voxels of a sample"
    method = f"{settings.threshold.capitalize()}: " if isinstance(settings.threshold, str) else ""
    share = 1 - greys.share_up_to(found) if bright else greys.share_up_to(found)
    way = "brighter" if bright else "darker"
    if low <= found < high:
        which = f"{_percent(share)} of the {of} are {way}."
    else:
        none = (found < low) != bright
        which = (
            f"{'no' if none else 'all'} {of} are {way}: "
            f"grey values go from {_number(low)} to {_number(high)}{unit}."
        )
    text = f"{method}{_number(found)}{unit}; {which}" if method else which[0].upper() + which[1:]
    strict = settings.hysteresis
    if strict is None:
        return {"threshold": text}
    if (strict < found) == bright:
        side = "above" if bright else "below"
        line = f"Must be {side} the threshold, {_number(found)}{unit}."
    else:
        part = 1 - greys.share_up_to(strict) if bright else greys.share_up_to(strict)
        line = f"{_percent(part)} of the {of} are {way}; other void counts where it touches these."
    return {"threshold": text, "hysteresis": line}


def _merging(settings: PoreSettings, volume: Volume | None) -> str:
    h = settings.h
    if settings.markers or settings.merging != "height":
        return ""
    if h < _STEPS:
        return f"Below {_STEPS:g}, steps of single voxels in the surface split pores."
    if h > _STEPS:
        size = f"{2 * h:g} voxels"
        if volume is not None and volume.unit != "pixel":
            size = f"{2 * h * min(volume.spacing):.3g} {readable_unit(volume.unit)}"
        return f"Only necks at least {size} narrower, in diameter, than the smaller pore part two."
    return f"{h:g} evens out steps of voxels; more, and pores with wider necks are one."


def _number(value: Any) -> str:
    """Write a grey value with what digits it needs."""
    value = float(value)
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if 0.1 <= share <= 0.99 else f"{100 * share:.2g} %"
