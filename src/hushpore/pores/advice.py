"""Advice on a segmentation: what may be wrong with it, and the settings that answer that.

One pass after the result. `advise` looks at the volume; what `remarks_of` says follows from the
totals alone, so that it changes when pores are merged again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hushpore.base.events import Note, Remedy
from hushpore.base.formatting import (
    percent_digits,
    readable_grey,
    readable_number,
    readable_percent,
    readable_unit,
)
from hushpore.pores.forms.limits import remark_on
from hushpore.pores.tables.totals import RELIABLE, detection_in_words, intervals_in_words
from hushpore.scan.exterior import outside_of_thumbnail
from hushpore.scan.histogram import Groups
from hushpore.scan.sample import kind_of_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hushpore.base.arrays import Array
    from hushpore.base.volume import Volume
    from hushpore.pores.settings import PoreSettings
    from hushpore.scan.exterior import Exterior, Thumbnail


#: Fraction of the expected air; if less was excluded, a warning says so.
_FAR_OFF = 0.8


def advise(
    volume: Volume,
    given: PoreSettings,
    decided: PoreSettings,
    exterior: Exterior,
    small: Thumbnail,
    share: float,
    totals: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Note]]:
    """Look at a finished segmentation; returns further totals of the record, and warnings.

    `given`: settings of the user. `decided`: those that the job ran with. `small`: thumbnail of the
    volume. `share`: fraction of the volume that was excluded. `totals`: of the void, see
    `hushpore.pores.numbering`.
    """
    examined = examine_sample(volume, decided, exterior, small, totals)
    return examined.totals(), warnings_of(volume, given, exterior, share)


def warnings_of(
    volume: Volume, settings: PoreSettings, exterior: Exterior, share: float
) -> list[Note]:
    """Return warnings about unused settings, uneven grey values and the exterior.

    `settings`: as given by the user. `share`: fraction of the volume that was excluded.
    """
    unused = settings.unused_of_void() if volume.dtype == np.bool_ else {}
    found = [*_warnings_of_values(volume, settings)]
    if unused:
        text = (
            f"{volume.name} is a boolean mask, so "
            f"{', '.join(f'{name}={value!r}' for name, value in unused.items())} had no effect."
        )
        found.append(_warning(text))
    elif (
        volume.dtype != np.bool_
        and settings.is_local
        and settings.odd_window != settings.local_window
    ):
        text = (
            f"The window of the local threshold was changed from {settings.local_window} to "
            f"{settings.odd_window} voxels, since it must be odd."
        )
        found.append(_warning(text))
    if exterior.drift:
        text = (
            "The grey value of the solid drifts across the sample by "
            f"{100 * exterior.drift:.0f} % of the contrast between solid and pores (beam "
            "hardening, for example), so a single threshold finds too few pores in some places and "
            "too many in others. Flatten the scan, or use a local threshold."
        )
        found.append(_warning(text, "Use a local threshold", threshold="sauvola"))
    if exterior.groups is not None:
        first, second = exterior.groups
        text = (
            f"The pore voxels form two groups of grey values, about {first:.4g} and "
            f"{second:.4g}, so a third material may be counted as pore. If only the "
            f"{exterior.pores_are}er group is pore, use a threshold between the two; exclude a "
            "sample holder with a sample mask (sample_mask)."
        )
        found.append(_warning(text, "Use three Otsu classes", otsu_classes=3))
    return found + _warnings_of_air(settings, exterior, share)


def _warnings_of_values(volume: Volume, settings: PoreSettings) -> list[Note]:
    """Warn that values which look like labels or probabilities were segmented as grey values."""
    kind = "" if volume.dtype == np.bool_ else kind_of_values(volume)
    if kind == "labels":
        text = (
            f"The values of {volume.name} look like labels of another program (whole numbers in "
            "regions of one value), but were segmented as grey values, which is usually wrong."
        )
        return [_warning(text, "Measure these labels", "measure")]
    if kind == "probability" and settings.pores_are != "bright":
        text = (
            f"The values of {volume.name} look like probabilities (0 to 1), and low values were "
            "segmented as pore. If they are probabilities of pores, high values are pores."
        )
        return [_warning(text, "Segment high values", pores_are="bright", threshold=0.5)]
    return []


def _warnings_of_air(settings: PoreSettings, exterior: Exterior, share: float) -> list[Note]:
    if settings.exterior != "auto" or exterior.treatment == "keep":
        return []
    found = []
    if exterior.radius != settings.ball_radius:
        text = (
            f"The rolling-ball radius (ball_radius) was raised from {settings.ball_radius:g} to "
            f"{exterior.radius:g} voxels so that the ball stays out of the pores."
        )
        found.append(_warning(text))
    if share < _FAR_OFF * exterior.share:
        toward_solid = "lower" if settings.pores_are == "bright" else "higher"
        text = (
            f"About {100 * exterior.share:.0f} % of the volume looks like surrounding air, but "
            f"only {100 * share:.1f} % could be excluded, because noise in the air passes for "
            f"solid. Denoise the scan first, or use a {toward_solid} threshold."
        )
        found.append(_warning(text))
    if exterior.widest:
        text = (
            "Pores open to the surface of the sample are counted only where the rolling ball "
            f"(radius {exterior.radius:g} voxels) cannot enter. With a radius of "
            f"{exterior.widest:.0f} voxels their volume would be about {exterior.gain:.2f} times "
            "as large, and larger still in a round sample; a sample mask (sample_mask) defines "
            "the sample exactly."
        )
        label = f"Use a radius of {exterior.widest:.0f} voxels"
        found.append(_warning(text, label, ball_radius=round(exterior.widest)))
    return found


def _warning(text: str, label: str = "", job: str = "", **settings: Any) -> Note:
    """Return a warning about the result, with the settings or the job that answer it."""
    return Note(text, True, "result", Remedy(label, settings, job) if label else None)


#: Edge length of the cube whose solid is looked at, in voxels.
_EDGE = 96

#: Share of void from which the solid may be the pores.
_MOSTLY_VOID = 0.5

#: Share of the solid that must be separate, and smallest solid piece, in voxels.
_LOOSE, _PIECE = 0.4, 27

#: Thresholds that are plausible: from this part of the way between pores and solid to that.
PLAUSIBLE = (0.4, 0.6)


class Plausibility(NamedTuple):
    """Findings in a part of a volume."""

    loose: float = 0.0  # share of the solid outside its largest component; 0 if it is small
    ends: tuple[float, float] | None = None  # plausible thresholds
    porosities: tuple[float, float] | None = None  # porosity at these

    def totals(self) -> dict[str, Any]:
        """Return the entries of a record."""
        return {
            "loose_solid": self.loose,
            "plausible_thresholds": self.ends and list(self.ends),
            "plausible_porosities": self.porosities and list(self.porosities),
        }


def examine_sample(
    volume: Volume,
    settings: PoreSettings,
    exterior: Exterior,
    small: Thumbnail,
    totals: Mapping[str, Any],
) -> Plausibility:
    """Find whether the solid is in one piece, and the porosity at plausible thresholds.

    `settings`: as decided. `small`: thumbnail of the volume. `totals`: of the void, see
    `hushpore.pores.numbering`.
    """
    threshold = totals.get("threshold")
    porosity = totals["open_porosity"] + totals["closed_porosity"]
    if threshold is None or not 0 < porosity < 1:
        return Plausibility()
    bright = settings.pores_are == "bright"
    loose = 0.0
    if porosity > _MOSTLY_VOID or exterior.share > _MOSTLY_VOID:
        loose = _loose_share(volume, threshold, bright)
    record = totals.get("threshold_groups")
    is_all_void = settings.pore_type == "all" and settings.hysteresis is None
    if not record or not record["second"] or exterior.only_values or not is_all_void:
        return Plausibility(loose)
    groups = Groups(**record)
    inside = ~(outside_of_thumbnail(small, settings, exterior) | small.padded)
    values = small.values[inside]
    if not values.size:
        return Plausibility(loose)
    ends = sorted(groups.between(share) for share in PLAUSIBLE)
    ends = [min(ends[0], threshold), max(ends[1], threshold)]

    def void_up_to(limit: float) -> float:
        return float(np.mean(values > limit if bright else values <= limit))

    own = void_up_to(threshold)
    if not own:
        return Plausibility(loose)
    low, high = sorted(min(porosity * void_up_to(end) / own, 1.0) for end in ends)
    return Plausibility(loose, (ends[0], ends[1]), (low, high))


def _loose_share(volume: Volume, threshold: float, bright: bool) -> float:
    """Return the share of the solid, in a cube, outside its largest connected component."""
    from scipy import ndimage

    if volume.n_spatial != 3 or volume.dtype == np.bool_:
        return 0.0
    cut = tuple(
        slice(max(0, (n - _EDGE) // 2), max(0, (n - _EDGE) // 2) + _EDGE) for n in volume.shape
    )
    part: Array = np.asarray(volume.data[cut])
    # against noise, whose specks in the void are separate, too
    smooth = ndimage.uniform_filter(part.astype(np.float32), 3, mode="nearest")
    pieces, count = ndimage.label(
        smooth <= threshold if bright else smooth > threshold, np.ones((3, 3, 3))
    )
    sizes = np.bincount(pieces.ravel(), minlength=count + 1)[1:]
    sizes = sizes[sizes >= _PIECE]
    if not sizes.size:
        return 0.0
    share = 1 - float(sizes.max() / sizes.sum())
    # the grey values of labels say nothing about solid; another warning is on them
    return share if share >= _LOOSE and kind_of_values(volume) != "labels" else 0.0


#: Part of the pore volume that noise may place on the wrong side without a warning.
_UNCERTAIN = 0.08

#: Difference of the void by Otsu's threshold, as a share of it, from which both are stated.
_DISAGREE = 0.08

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
    swap = Remedy("Swap pores and solid", {"pores_are": opposite_phase(result, settings)})
    # a mask has no threshold, and names the remedy where its values are told
    is_mask = result.get("threshold") is None and not settings.is_local
    yield from _on_extremes(result, None if is_mask else swap)
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
            f"threshold {value}, beyond the noise, was used instead.{_by_otsu(groups)}"
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
    elif groups.method == "mixture":
        fitted, otsu = (percent_digits(share or 0.0) for share in (groups.void, groups.otsu_void))
        text = (
            f"Two groups of grey values with blurred edges, fitted to the histogram, have {fitted} "
            f"% void, and Otsu's threshold would give {otsu} %. The threshold {value} with the "
            f"share of the fit, between pores ({pore}) and solid ({solid}), was used instead."
            f"{_dependence(result)}"
        )
        yield Note(text, subject="result", remedy=_USE_OTSU)
    elif groups.method != "otsu":
        text = (
            f"Otsu's threshold would divide the noise of the larger group of grey values, so the "
            f"threshold {value}, between pores ({pore}) and solid ({solid}), was used instead."
            f"{_by_otsu(groups)}{_dependence(result)}"
        )
        yield Note(text, subject="result", remedy=_USE_OTSU)
    elif settings.threshold == "auto":
        text = (
            f"Threshold {value} (Otsu): pores ({pore}) and solid ({solid}) are two groups of grey "
            f"values.{_dependence(result)}"
        )
        yield Note(text, subject="result", remedy=swap if result["porosity"] > 0.5 else None)


def _by_otsu(groups: Groups | None) -> str:
    """Return the void by Otsu's threshold too, as a further sentence where it differs much."""
    if groups is None or groups.void is None or groups.otsu_void is None:
        return ""
    own, otsu = groups.void, groups.otsu_void
    if groups.method == "otsu" or abs(own - otsu) <= _DISAGREE * min(own, otsu):
        return ""
    return (
        f" Otsu's threshold would give {percent_digits(otsu)} % void, this one "
        f"{percent_digits(own)} %."
    )


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


def _on_extremes(result: Mapping[str, Any], swap: Remedy | None) -> Iterator[Note]:
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
        remedy = (
            "Check that the mask or labels are of the pores, and not of the solid."
            if swap is None
            else "If the pores are the other phase, swap pores and solid; if grains of metal or "
            "salt were taken for the solid, set the threshold."
        )
        text = f"The porosity of {percent_digits(porosity)} % is unusually high. {remedy}"
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
            f"{_by_otsu(groups)}"
        )
        yield Note(text, True, "result", _DENOISE)
    elif is_wrong:
        text = (
            f"The grey values of pores and solid overlap: {volume}. Check the threshold against "
            f"the histogram.{_by_otsu(groups)}"
        )
        yield Note(text, True, "result")


#: Fewer small pores than this are no sign of noise, however few others there are.
_FEW = 10

#: Share of the void in excluded small pores from which their exclusion is a warning.
_MUCH = 0.05


def remarks_of(result: Mapping[str, Any], settings: PoreSettings) -> list[Note]:
    """Return the remarks on the totals of a record.

    They change when pores are merged again; those of the run (`hushpore.pores.advice`) do not.
    """
    found = [
        *remarks_on_threshold(result, settings),
        _of_phases(result, settings),
        *remarks_on_exterior(result, bool(settings.sample_mask)),
        _of_excluded_pores(result) if settings.minimum_voxels is None else None,
        _of_small_pores(result),
        _of_cut_pores(result, settings),
        _of_subvoxel(result),
        _of_intervals(result),
        _of_detection(result) if "detection_limit" in result else None,
        remark_on(result) if "limits" in result else None,
    ]
    return [note for note in found if note is not None]


def remarks_on_exterior(
    result: Mapping[str, Any], has_mask: bool = False, counted_as: str = "pore"
) -> list[Note]:
    """Return the remarks on air and padding around the sample, which were excluded or counted.

    `has_mask`: whether a mask defines the sample, in which case what it excludes needs no remark.
    `counted_as`: what air counts as that is not excluded.
    """
    share, padding = result.get("exterior_share", 0.0), result.get("padding_value")
    of_volume = f"{readable_percent(share)} of the volume"
    remarks = []
    if kept := result.get("air_kept_share"):
        text = f"Surrounding air ({readable_percent(kept)} of the volume) was counted as "
        exclude = Remedy("Exclude it", {"exterior": "auto"})
        remarks.append(Note(f"{text}{counted_as}.", subject="result", remedy=exclude))
    excludes_air = bool(share) and not has_mask and result["exterior"] != "keep"
    if share and padding is not None:
        value = f"value {padding:g}"
        if excludes_air:
            text = f"Surrounding air and padding ({value}), {of_volume}, were excluded."
        else:
            what = value if has_mask else f"{value}, {of_volume}"
            text = f"Padding around the scan ({what}) was excluded."
        remarks.append(Note(text, subject="result"))
    elif excludes_air:
        include = Remedy("Include it", {"exterior": "keep"})
        text = f"Surrounding air ({of_volume}) was excluded."
        remarks.append(Note(text, subject="result", remedy=include))
    return remarks


def opposite_phase(result: Mapping[str, Any], settings: PoreSettings) -> str:
    """Return which grey values are those of pores after swapping pores and solid."""
    phase = result.get("pores_are", settings.pores_are)
    return "dark" if phase == "bright" else "bright"


def _of_excluded_pores(result: Mapping[str, Any]) -> Note | None:
    """Remark how many pores an automatic minimum pore size excluded."""
    small = result.get("small_pores", 0)
    if not small:
        return None
    share = result["small_pore_share"]
    is_one = small == 1
    are_noise = "smallest_pore" in result or _are_most(small, result["count"] + small)
    why = "probably noise" if are_noise else "too small for shape measures"
    text = (
        f"{small:,} {'pore' if is_one else 'pores'} smaller than {result['minimum_voxels']} voxels "
        f"{'is' if is_one else 'are'} left out ({readable_percent(share)} of the void): {why}."
    )
    count = Remedy(f"Count {'it' if is_one else 'them'}", {"minimum_voxels": 1})
    return Note(text, share >= _MUCH, "result", count)


def _are_most(small: int, count: int) -> bool:
    """Return whether so many of `count` pores are small that noise explains them."""
    return small >= _FEW and 2 * small > count


def _of_small_pores(result: Mapping[str, Any]) -> Note | None:
    """Remark that pores are too small for their shape or, if most of them are, for their number."""
    small, count = result.get("tiny_pores", 0), result["count"]
    if not small:
        return None
    least = result.get("smallest_pore", RELIABLE)
    exclude = Remedy(f"Exclude {'it' if small == 1 else 'them'}", {"minimum_voxels": least})
    are_most = _are_most(small, count)
    text = (
        f"{small:,} of {count:,} pores {'is' if small == 1 else 'are'} smaller than {least} "
        f"voxels, {'probably noise' if are_most else 'too small for shape measures'}."
    )
    without = result.get("median_diameter_large")
    if are_most and without is not None:
        unit = readable_unit(result["unit"])
        text += f" Without them, D50 is {readable_number(without)} {unit} by number."
    return Note(text, are_most, "result", exclude)


def _of_cut_pores(result: Mapping[str, Any], settings: PoreSettings) -> Note | None:
    """Remark how many pores are cut by faces of the volume, and whether their sizes count."""
    cut, count = result.get("cut_pores", 0), result["count"]
    if not cut:
        return None
    text = f"{cut:,} of {count:,} pores {'is' if cut == 1 else 'are'} cut by the faces"
    if settings.edge_pores == "sizes":
        include = Remedy("Count all sizes", {"edge_pores": "keep"})
        return Note(f"{text} and excluded from the sizes.", subject="result", remedy=include)
    exclude = Remedy("Exclude from sizes", {"edge_pores": "sizes"})
    text += ", so their sizes are too small."
    return Note(text, subject="result", remedy=exclude)


def _of_phases(result: Mapping[str, Any], settings: PoreSettings) -> Note | None:
    """Remark which of only two values was segmented as pore."""
    values = result.get("only_values")
    if not values:
        return None
    swapped = opposite_phase(result, settings)
    pore, solid = reversed(values) if swapped == "dark" else values
    text = f"The image has only two values: {pore:g} was segmented as pore and {solid:g} as solid."
    swap = Remedy("Swap pores and solid", {"pores_are": swapped})
    return Note(text, subject="result", remedy=swap)


def _of_subvoxel(result: Mapping[str, Any]) -> Note | None:
    porosity = result.get("subvoxel_porosity")
    if porosity is None:
        return None
    greys = (f"{readable_grey(result[f'{phase}_grey'])} ({phase})" for phase in ("void", "solid"))
    void = result["open_porosity"] + result["closed_porosity"]
    text = (
        f"The sub-voxel porosity is {percent_digits(porosity)} %, from the grey values "
        f"{' and '.join(greys)}; by the threshold {percent_digits(void)} % are void."
    )
    return Note(text, subject="result")


def _of_detection(result: Mapping[str, Any]) -> Note:
    return Note(f"{detection_in_words(result)}.", subject="result")


def _of_intervals(result: Mapping[str, Any]) -> Note | None:
    text = intervals_in_words(result)
    return Note(f"{text}.", subject="result") if text else None
