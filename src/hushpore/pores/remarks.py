"""Remarks on a segmentation that follow from its totals, with the settings that answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.events import Note, Remedy
from hushpore.base.formatting import (
    percent_digits,
    readable_grey,
    readable_number,
    readable_percent,
    readable_unit,
)
from hushpore.pores.tables.totals import RELIABLE, intervals_in_words
from hushpore.pores.threshold_remarks import remarks_on_threshold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.pores.settings import PoreSettings

#: Fewer small pores than this are no sign of noise, however few others there are.
_FEW = 10

#: Share of the void in excluded small pores from which their exclusion is a warning.
_MUCH = 0.05


def remarks_of(result: Mapping[str, Any], settings: PoreSettings) -> list[Note]:
    """Return the remarks on the totals of a record.

    They change when pores are merged again; those of the run (`hushpore.pores.notes`) do not.
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


def opposite_phase(settings: PoreSettings) -> str:
    """Return which grey values are those of pores after swapping pores and solid."""
    return "dark" if settings.pores_are == "bright" else "bright"


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
    pore, solid = reversed(values) if settings.pores_are == "bright" else values
    text = f"The image has only two values: {pore:g} was segmented as pore and {solid:g} as solid."
    swap = Remedy("Swap pores and solid", {"pores_are": opposite_phase(settings)})
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


def _of_intervals(result: Mapping[str, Any]) -> Note | None:
    text = intervals_in_words(result)
    return Note(f"{text}.", subject="result") if text else None
