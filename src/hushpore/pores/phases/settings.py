"""Settings of the measurement of phases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.formatting import readable_number
from hushpore.base.settings import Settings, option
from hushpore.pores.settings import PoreSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Phases that are told apart at most.
MOST = 8


@dataclass(frozen=True)
class PhaseSettings(Settings):
    """Which phases there are, and what is measured of them.

    ``thresholds`` and ``names`` may be sequences; they are kept as text.
    """

    phases: int = option(
        3,
        "How many materials there are, pores among them, which multi-Otsu tells apart by their "
        "grey values.",
        label="Number of phases",
        minimum=2,
        maximum=MOST,
    )
    thresholds: str = option(
        "",
        "Grey values between the phases, rising, with commas between them, as in '80, 150'; a "
        "voxel at a threshold is of the darker phase. Empty: multi-Otsu finds them.",
        label="Thresholds",
        grey_value=True,
    )
    names: str = option(
        "",
        "What the phases are called, the darkest first, with commas between them, as in 'pores, "
        "quartz, clay'. What has no name is called by its number.",
        label="Names of phases",
    )
    are_labels: bool = option(
        False,
        "Take the values of the volume for labels: each that is above 0 is a phase, and 0 is not "
        "of the sample.",
        label="Values are labels",
    )
    exterior: str = option(
        "auto",
        "The air around the sample, and what is filled in around a scan with one value. auto: "
        "where a quick look at the volume finds some it is left out; keep: it counts as the "
        "darkest phase; remove: it is of no phase, and shares are of the sample; "
        "remove-slicewise: the same slice by slice, for a sample that runs through from the first "
        "slice to the last.",
        label="Air around sample",
        choices=("auto", "keep", "remove", "remove-slicewise"),
        choice_labels=(
            "Leave out",
            "Count as darkest phase",
            "Always leave out",
            "Slice by slice",
        ),
    )
    ball_radius: float = option(
        10.0,
        "Radius of the ball (slice by slice: the disc) that finds the air outside, rolled over the "
        "sample: openings about twice as wide count as outside. Where the air is looked for first, "
        "it is made larger if it would get into the pores of a foam.",
        label="Rolling ball radius",
        unit="voxels",
        minimum=1,
        step=1,
        more=True,
    )
    sample_mask: str = option(
        "",
        "Labels or a mask, above 0 in the sample: what lies elsewhere is of no phase, and shares "
        "are of the sample. Takes the place of looking for the air outside.",
        label="Sample mask",
        auxiliary=("labels",),
        more=True,
    )
    thickness: bool = option(
        False,
        "Local thickness of each phase, for every voxel the diameter of the largest ball that fits "
        "and covers it. It takes far longer than all else.",
        label="Local thickness",
    )

    regions: bool = option(
        False,
        "Split each phase into regions (pores, grains) by the watershed, as pores are, and measure "
        "these and where they touch: for a network of all phases.",
        label="Regions of each phase",
    )
    merge_height: str | float = option(
        "auto",
        "Neighbouring regions of a phase merge where the neck between them is less than this much "
        "narrower, in radius, than the smaller of the two; auto: by their size, for each phase.",
        label="Watershed merge height",
        choices=("auto",),
        choice_labels=("Auto",),
        unit="voxels",
        minimum=0,
        step=0.1,
        more=True,
    )
    merge_overlapping: bool = option(
        True,
        "Neighbouring regions whose widest places are no farther from each other than from the "
        "other phases are one, whatever the merge height; see `pores`.",
        label="Join near peaks",
        more=True,
    )

    def __post_init__(self) -> None:
        """Check thresholds and names, too."""
        for name in ("thresholds", "names"):
            given = getattr(self, name)
            if isinstance(given, (list, tuple)):
                text = ", ".join(each if isinstance(each, str) else f"{each!r}" for each in given)
                object.__setattr__(self, name, text)
        super().__post_init__()
        values = self.grey_values
        if any(low >= high for low, high in pairwise(values)):
            raise InputError(
                f"thresholds must rise, each above the one before; got {self.thresholds!r}."
            )
        if len(values) >= MOST:
            raise InputError(
                f"{len(values)} thresholds make {len(values) + 1} phases, and there are {MOST} at "
                f"most; got {self.thresholds!r}."
            )
        words = [word for word in self._words() if word]
        if len(set(words)) < len(words):
            raise InputError(f"names must differ from each other; got {self.names!r}.")

    @property
    def grey_values(self) -> tuple[float, ...]:
        """The thresholds that are given; none where multi-Otsu finds them.

        Raises InputError if one is no number.
        """
        found = []
        for word in self.thresholds.split(",") if self.thresholds.strip() else []:
            try:
                value = float(word)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise InputError(
                    "thresholds must be grey values with commas between them, such as '80, 150'; "
                    f"got {self.thresholds!r}."
                )
            found.append(value)
        return tuple(found)

    @property
    def count(self) -> int:
        """How many phases grey values part."""
        values = self.grey_values
        return len(values) + 1 if values else self.phases

    def named(self, count: int) -> tuple[str, ...]:
        """Return the names of so many phases.

        Raises InputError if there are more names than phases.
        """
        words = self._words()
        if len(words) > count:
            raise InputError(
                f"There are {count} phases, and {len(words)} names for them: {self.names!r}. Leave "
                "some out, or set more phases."
            )
        words += [""] * (count - len(words))
        return tuple(word or f"phase {number}" for number, word in enumerate(words, 1))

    def _words(self) -> list[str]:
        return [word.strip() for word in self.names.split(",")] if self.names.strip() else []

    def of_pores(self, darkest: float) -> PoreSettings:
        """Return settings of the pore segmentation whose void is the darkest phase."""
        return PoreSettings(threshold=darkest, exterior=self.exterior, ball_radius=self.ball_radius)

    def hints(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return what values come to; ``thresholds`` are those that were found."""
        found = known.get("thresholds")
        is_grey = not self.are_labels and not known.get("holds_labels")
        if self.grey_values or not is_grey or not found:
            return {}
        values = ", ".join(readable_number(value, 4) for value in found)
        return {"thresholds": f"Multi-Otsu: {values}"}

    def unused(self, known: Mapping[str, Any]) -> dict[str, str]:
        """Return why settings change nothing; ``holds_labels`` says that all values are labels."""
        reasons: dict[str, str] = {}
        if self.sample_mask:
            why = "Not used: a mask says what the sample is."
            reasons |= dict.fromkeys(("exterior", "ball_radius"), why)
        elif self.exterior == "keep":
            reasons["ball_radius"] = "Not used: the air outside is kept."
        if not self.regions:
            why = "Not used: phases are not split into regions."
            reasons |= dict.fromkeys(("merge_height", "merge_overlapping"), why)
        if self.grey_values:
            reasons["phases"] = "Not used: the thresholds say how many there are."
        if self.are_labels or known.get("holds_labels"):
            why = "Not used: the values are labels."
            given = ("phases", "thresholds", "exterior", "ball_radius")
            reasons |= dict.fromkeys(given, why)
        if known.get("holds_labels"):
            reasons["are_labels"] = "Not used: the layer holds labels."
        return reasons
