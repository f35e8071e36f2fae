"""Remarks on the threshold: which one was used and why, and whether its result can be right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.events import Note, Remedy
from hushpore.base.formatting import percent_digits, readable_grey, readable_percent
from hushpore.scan.histogram import Groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hushpore.pores.settings import PoreSettings

#: Part of the pore volume that noise may place on the wrong side without a warning.
_UNCERTAIN = 0.08

#: Porosity and air above which pores and solid may be swapped.
_ALMOST_ALL = 0.95

#: Share of the volume below which a sample is hardly one.
_HARDLY_ANY = 0.01

#: Noise, as a share of the contrast, from which it explains that grey values overlap, and from
#: which most small pores are noise: at a threshold half-way, 6 voxels of solid in 1,000 are void.
_NOISY, _SPECKLED = 0.1, 0.2

_DENOISE = Remedy("Denoise first", {}, "denoise")

_USE_OTSU = Remedy("Use Otsu's threshold", {"threshold": "otsu"})


def remarks_on_threshold(result: Mapping[str, Any], settings: PoreSettings) -> Iterator[Note]:
    """Yield the remarks on the threshold of a record, the most important first."""
    swap = Remedy(
        "Swap pores and solid",
        {"pores_are": "dark" if settings.pores_are == "bright" else "bright"},
    )
    yield from _on_extremes(result, swap)
    if result.get("only_values"):
        return
    record = result.get("threshold_groups")
    groups = Groups(**record) if record else None
    yield from _on_noise(result, groups)
    if groups is None:
        return
    value = readable_grey(groups.threshold)
    pore, solid = readable_grey(groups.pore), readable_grey(groups.solid)
    if not groups.second:
        if groups.method == "otsu":
            text = (
                f"The threshold {value} separates no second group of grey values from the main one."
                " Check it against the histogram."
            )
            yield Note(text, True, "result", swap if result["porosity"] > 0.5 else None)
            return
        text = (
            f"The grey values form only one group of voxels, around {solid} (noise SD "
            f"{readable_grey(groups.noise)}), so Otsu's threshold would divide its noise. The "
            f"threshold {value}, beyond the noise, was used instead."
        )
        if groups.grains:
            text += (
                f" {readable_percent(groups.grains)} of the voxels are on the other side of the "
                "main group: grains, or the pores."
            )
        yield Note(text, True, "result", swap if groups.grains else _USE_OTSU)
    elif groups.grains:
        text = (
            f"Grains of another material ({readable_percent(groups.grains)} of the voxels, metal "
            "or salt) would be separated from all else by Otsu's threshold. The threshold "
            f"{value}, between pores ({pore}) and solid ({solid}), was used instead."
            f"{_dependence(result)}"
        )
        yield Note(text, True, "result", _USE_OTSU)
    elif groups.method != "otsu":
        text = (
            f"Otsu's threshold would divide the noise of the larger group of grey values, so the "
            f"threshold {value}, between pores ({pore}) and solid ({solid}), was used instead."
            f"{_dependence(result)}"
        )
        yield Note(text, subject="result", remedy=_USE_OTSU)
    elif settings.threshold == "auto":
        text = (
            f"Threshold {value} (Otsu): pores ({pore}) and solid ({solid}) are two groups of grey "
            f"values.{_dependence(result)}"
        )
        yield Note(text, subject="result", remedy=swap if result["porosity"] > 0.5 else None)


def _dependence(result: Mapping[str, Any]) -> str:
    """Return how the porosity depends on the threshold, as a further sentence if known."""
    ends, porosities = result.get("plausible_thresholds"), result.get("plausible_porosities")
    if not ends or not porosities:
        return ""
    low, high = (percent_digits(each) for each in porosities)
    first, last = (readable_grey(end) for end in ends)
    if first == last:
        return ""
    # they are shares of grey values, whatever the minimum pore size excluded
    small = ", small pores included" if result.get("small_pores") else ""
    if low == high:
        return f" Any threshold from {first} to {last} gives this porosity ({low} %{small})."
    return f" Thresholds from {first} to {last} give a porosity of {low} to {high} %{small}."


def _on_extremes(result: Mapping[str, Any], swap: Remedy) -> Iterator[Note]:
    """Warn of a porosity, surrounding air or sample that can hardly be right."""
    share, porosity = result.get("exterior_share", 0.0), result["porosity"]
    is_air = bool(share) and result.get("exterior") != "keep"
    if is_air and share > _ALMOST_ALL:
        size = readable_percent(1 - share)
        what = "hardly a sample" if share > 1 - _HARDLY_ANY else "a small sample"
        text = (
            f"Surrounding air is {readable_percent(share)} of the volume, and the remaining {size} "
            f"are {what}. Crop the scan to the sample; if the solid was taken for air, "
            "swap pores and solid or set the threshold."
        )
        yield Note(text, True, "result", swap)
    elif porosity > _ALMOST_ALL:
        text = (
            f"The porosity of {percent_digits(porosity)} % is unusually high. If the pores are the "
            "other phase, swap pores and solid; if grains of metal or salt were taken for the "
            "solid, set the threshold."
        )
        yield Note(text, True, "result", swap)
    if result.get("loose_solid"):
        text = (
            f"The solid is not in one piece ({readable_percent(result['loose_solid'])} of it is "
            "outside the largest), so pores and solid are probably swapped."
        )
        yield Note(text, True, "result", swap)


def _on_noise(result: Mapping[str, Any], groups: Groups | None) -> Iterator[Note]:
    """Warn if noise makes many small pores, or places much of the pore volume on the wrong side."""
    porosity, wrong = result["porosity"], 0.0
    if groups is not None and groups.second and porosity:
        wrong = (groups.false_void * (1 - porosity) + groups.false_solid * porosity) / porosity
    is_wrong, share = wrong >= _UNCERTAIN, result.get("noise_share", 0.0)
    volume = f"about {readable_percent(min(wrong, 1.0))} of the pore volume may be wrong"
    if porosity and share >= (_NOISY if is_wrong else _SPECKLED):
        text = (
            f"The noise SD is {readable_percent(share)} of the contrast between pores and solid: "
            f"most small pores will be noise{f', and {volume}' if is_wrong else ''}."
        )
        yield Note(text, True, "result", _DENOISE)
    elif is_wrong:
        text = (
            f"The grey values of pores and solid overlap: {volume}. Check the threshold against "
            "the histogram."
        )
        yield Note(text, True, "result")
