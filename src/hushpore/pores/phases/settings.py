"""Settings of the phase measurement."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.formatting import listed, readable_number
from hushpore.base.settings import Settings, option
from hushpore.pores.settings import PoreSettings, shared, unused_of_transport

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Maximum number of phases.
MOST = 8


@dataclass(frozen=True)
class PhaseSettings(Settings):
    """How to separate and measure material phases.

    ``thresholds`` and ``names`` may be sequences, which are stored as text.
    """

    phases: int = option(
        3,
        "Number of phases (materials), including the pores, into which multi-Otsu divides the "
        "grey values.",
        label="Number of phases",
        minimum=2,
        maximum=MOST,
    )
    thresholds: str = option(
        "",
        "Grey values between the phases, ascending and separated by commas, as in '80, 150'; a "
        "voxel at a threshold belongs to the darker phase. Empty: found by multi-Otsu.",
        label="Thresholds",
        more="Threshold",
        grey_value=True,
    )
    names: str = option(
        "",
        "Names of the phases, darkest first, separated by commas, as in 'pores, quartz, clay'. "
        "Phases without a name are numbered.",
        label="Phase names",
    )
    are_labels: bool = option(
        False,
        "Read the values of the volume as labels: each value above 0 is a phase, and 0 is outside "
        "the sample.",
        label="Values are labels",
        more="Sample",
    )
    strokes: str = option(
        "",
        "Labels painted on a few voxels of each phase, 1, 2, ..., and 0 elsewhere: a classifier "
        "learns from them and finds the phases of all voxels, also where grey values overlap. "
        "Paint many short strokes, in several slices, also along borders and on thin parts.",
        label="Strokes",
        auxiliary=("labels",),
    )
    classifier: str = option(
        "",
        "Classifier of an earlier result with strokes (its folder, or classifier.npz), for another "
        "scan with the same grey values and voxel size.",
        label="Classifier",
        path="file",
        more="Strokes",
    )
    texture: str = option(
        "",
        "Model file of this scan's own denoiser (.safetensors; Denoise makes and saves it, slice "
        "by slice). What it has learned about the scan helps where phases differ in their texture "
        "or direction, and takes longer. The classifier keeps it for the next scan.",
        label="Texture",
        path="file",
        more="Strokes",
    )
    by_slice: bool = option(
        False,
        "Find the features of voxels slice by slice instead of in 3D: faster, and for slices that "
        "do not match.",
        label="Features by slice",
        more="Strokes",
    )
    probabilities: bool = option(
        False,
        "Also keep the probability of each phase, in percent, and a map of doubt (their entropy; "
        "100: all phases are equally likely), which shows where to paint next.",
        label="Probabilities",
        more="Strokes",
    )
    exterior: str = option(
        "auto",
        "Air around the sample, and padding of one grey value around a scan. auto: excluded where "
        "a quick check of the volume finds any; keep: counted as the darkest phase; remove: always "
        "excluded, so that volume fractions refer to the sample; remove-slicewise: excluded slice "
        "by slice, for a sample that extends from the first slice to the last.",
        label="Exterior air",
        choices=("auto", "keep", "remove", "remove-slicewise"),
        choice_labels=(
            "Exclude if found",
            "Count as darkest phase",
            "Always exclude",
            "Exclude by slice",
        ),
        more="Sample",
    )
    ball_radius: float = option(
        10.0,
        "Radius of the ball (slice by slice: the disc) that is rolled over the sample to find the "
        "air around it: openings wider than about twice the radius count as air. Raised "
        "automatically if the ball would enter the pores, as in a foam.",
        label="Rolling-ball radius",
        unit="voxels",
        minimum=1,
        step=1,
        more="Sample",
    )
    sample_mask: str = option(
        "",
        "Labels or a mask, above 0 inside the sample: voxels outside it belong to no phase, and "
        "volume fractions refer to the sample. Replaces the search for the air around the sample.",
        label="Sample mask",
        auxiliary=("labels",),
        more="Sample",
    )
    thickness: bool = option(
        False,
        "Local thickness of each phase: for each voxel, the diameter of the largest inscribed ball "
        "that contains it. Takes much longer than all other measurements.",
        label="Local thickness",
        more="Measures",
    )

    regions: bool = option(
        False,
        "Split each phase into regions (pores, grains) by the watershed, and measure the regions "
        "and their contacts, for a network of all phases.",
        label="Split into regions",
        more="Splitting",
    )
    merge_height: str | float = option(
        "auto",
        "Merge height h: neighbouring regions of a phase are merged if the radius of the neck "
        "between them is less than this below the radius of the smaller region. Higher: fewer, "
        "larger regions. auto: 0.1 to 0.5 voxels, chosen for each phase from the region size.",
        label="Merge height",
        choices=("auto",),
        choice_labels=("Auto",),
        unit="voxels",
        minimum=0,
        step=0.1,
        more="Splitting",
    )
    merge_overlapping: bool = option(
        True,
        "Also merge neighbouring regions whose centres are closer to each other than to the other "
        "phases, so that their maximal balls overlap, whatever the merge height.",
        label="Merge overlapping regions",
        more="Splitting",
    )

    transport: str = shared("transport")
    conductivities: str = option(
        "",
        "Conductivity of each phase for diffusion in voxels, separated by commas, in the order of "
        "the phases, as in '1, 0.05, 0'; 0 does not conduct. Values are relative to a conductivity "
        "of 1. Flow is through the phase of the highest. Empty: 1 for the first phase, 0 for all "
        "others.",
        label="Conductivities",
        more="Measures",
    )
    periodic_sides: bool = shared("periodic_sides")
    memory_budget: float | None = shared("memory_budget")

    def __post_init__(self) -> None:
        """Check thresholds and names, after the checks of each setting."""
        for name in ("thresholds", "names", "conductivities"):
            given = getattr(self, name)
            if isinstance(given, (list, tuple)):
                text = ", ".join(each if isinstance(each, str) else f"{each!r}" for each in given)
                object.__setattr__(self, name, text)
        super().__post_init__()
        values = self.grey_values
        if any(low >= high for low, high in pairwise(values)):
            raise InputError(
                f"thresholds must be ascending; got {self.thresholds!r}. Sort them and remove "
                "duplicates."
            )
        if len(values) >= MOST:
            raise InputError(
                f"thresholds must number at most {MOST - 1}, for {MOST} phases; got {len(values)}: "
                f"{self.thresholds!r}."
            )
        self.conductivity_of(MOST)
        words = [word for word in self._words() if word]
        if len(set(words)) < len(words):
            raise InputError(f"names must be unique; got {self.names!r}.")

    @property
    def grey_values(self) -> tuple[float, ...]:
        """The given thresholds; empty if multi-Otsu is to find them.

        Raises InputError if one is not a number.
        """
        if re.fullmatch(r"[-+]?0,\d+", self.thresholds.strip()):
            raise InputError(
                f"The thresholds {self.thresholds!r} may be one grey value or two. Write one with "
                "a point, 0.5, and two with a semicolon, '0; 5'."
            )
        found = []
        for word in listed(self.thresholds) if self.thresholds.strip() else []:
            try:
                value = float(word)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise InputError(
                    "thresholds must be grey values separated by commas, such as '80, 150'; "
                    f"got {self.thresholds!r}."
                )
            found.append(value)
        return tuple(found)

    @property
    def is_classified(self) -> bool:
        """Whether a classifier separates the phases."""
        return bool(self.strokes or self.classifier)

    @property
    def count(self) -> int:
        """Number of phases into which grey values are divided."""
        values = self.grey_values
        return len(values) + 1 if values else self.phases

    def named(self, count: int) -> tuple[str, ...]:
        """Return names for `count` phases, with numbers for those without a name.

        Raises InputError if there are more names than phases.
        """
        words = self._words()
        if len(words) > count:
            raise InputError(
                f"There are {len(words)} names for {count} phases: {self.names!r}. Remove "
                "names, or increase the number of phases."
            )
        words += [""] * (count - len(words))
        return tuple(word or f"phase {number}" for number, word in enumerate(words, 1))

    def conductivity_of(self, count: int) -> tuple[float, ...]:
        """Return the conductivity of each of `count` phases.

        Raises InputError unless they are numbers of at least 0, one of them above 0, or if there
        are more than phases.
        """
        words = self.conductivities.split(",") if self.conductivities.strip() else ["1"]
        try:
            values = tuple(float(word) for word in words)
        except ValueError:
            values = (math.nan,)
        is_valid = all(math.isfinite(value) and value >= 0 for value in values) and any(values)
        if not is_valid or len(values) > count:
            raise InputError(
                f"conductivities must be up to {count} numbers of at least 0, one of them above 0, "
                f"separated by commas, such as '1, 0.05'; got {self.conductivities!r}."
            )
        return values + (0.0,) * (count - len(values))

    def _words(self) -> list[str]:
        return [word.strip() for word in self.names.split(",")] if self.names.strip() else []

    def of_pores(self, darkest: float) -> PoreSettings:
        """Return settings of a pore segmentation whose void is the darkest phase."""
        return PoreSettings(
            threshold=darkest,
            pores_are="dark",
            exterior=self.exterior,
            ball_radius=self.ball_radius,
        )

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return hints on values; ``thresholds`` are those that multi-Otsu found."""
        found = known.get("thresholds")
        is_grey = not self.are_labels and not known.get("holds_labels")
        if self.grey_values or not is_grey or not found:
            return {}
        values = ", ".join(readable_number(value, 4) for value in found)
        return {"thresholds": f"Multi-Otsu: {values}"}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings have no effect, by name; ``holds_labels``: the layer holds labels."""
        reasons: dict[str, str] = {}
        if self.is_classified:
            why = "Not used: phases are found from strokes."
            replaced = ("phases", "thresholds", "are_labels", "exterior", "ball_radius")
            reasons |= dict.fromkeys(replaced, why)
            if self.strokes and self.classifier:
                reasons["classifier"] = "Not used: strokes are given."
            elif self.classifier:
                stored = "Not used: stored with the classifier."
                reasons |= dict.fromkeys(("by_slice", "texture"), stored)
        else:
            why = "Only used with Strokes or a Classifier."
            reasons |= dict.fromkeys(("texture", "by_slice", "probabilities"), why)
        if self.sample_mask:
            why = "Not used: a sample mask is given."
            reasons |= dict.fromkeys(("exterior", "ball_radius"), why)
        elif self.exterior == "keep":
            reasons["ball_radius"] = "Not used: surrounding air is kept."
        if not self.regions:
            why = "Only used with Split into regions."
            reasons |= dict.fromkeys(("merge_height", "merge_overlapping"), why)
        reasons |= unused_of_transport(self)
        if self.transport == "none":
            reasons["conductivities"] = "Only used with Transport in voxels."
        if self.grey_values:
            reasons["phases"] = "Not used: the number follows from the thresholds."
        if (self.are_labels and not self.is_classified) or known.get("holds_labels"):
            why = "Not used: the values are labels (Values are labels)."
            given = ("phases", "thresholds", "exterior", "ball_radius")
            reasons |= dict.fromkeys(given, why)
        if known.get("holds_labels"):
            reasons["are_labels"] = "Not used: the layer holds labels."
        return reasons
