"""Switches of the optimisations (`auto`, `on` or `off`), and the decisions of a job with reasons.

The plain way always exists. The decisions of a job are in its timing record.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hushpore.base.errors import InputError
from hushpore.base.preferences import STATES, parse_switches

#: Effect of `auto` for each switch, as shown before a job.
_AUTOMATIC = {
    "pinned": "on, for arrays of 64 MB and more",
    "graphs": "on, after the first steps or tiles",
}


@dataclass(frozen=True)
class Switches:
    """The user's switches of the optimisations; `Choices.outlook` describes the effect of `auto`.

    >>> Switches.parse("graphs=off, pinned=on").graphs
    'off'
    """

    pinned: str = "auto"  # copy to and from the GPU in chunks, through pinned memory
    graphs: str = "auto"  # capture training steps and tiles as CUDA graphs, and replay them

    def __post_init__(self) -> None:
        for name, state in dataclasses.asdict(self).items():
            if state not in STATES:
                raise InputError(f"The switch {name} must be auto, on or off; got {state!r}.")

    @classmethod
    def parse(cls, text: str) -> Switches:
        """Parse ``"graphs=off, pinned=on"``; all other switches are `auto`.

        Raises InputError if a switch or its state is unknown.
        """
        return cls(**parse_switches(text))


class Choices:
    """The decisions of a job on each optimisation, with the reasons.

    `without`: the reason why optimisations of a GPU have no effect.

    >>> choices = Choices(Switches(), without="no CUDA device")
    >>> choices.lines()["graphs"]
    'off, no CUDA device'
    """

    def __init__(self, switches: Switches, without: str = "") -> None:
        self.switches = switches
        self._without = without
        self._lines = dict.fromkeys(dataclasses.asdict(switches), f"off, {without or 'not needed'}")

    def record(self, name: str, is_on: bool, reason: str) -> bool:
        """Record a decision, and return it.

        `name`: of a switch, of one of several uses of it (``"graphs of tiles"``), or of another
        decision.
        """
        # decisions on single uses replace the general one
        if name not in self._lines:
            self._lines.pop(name.partition(" ")[0], None)
        self._lines[name] = f"{'on' if is_on else 'off'}, {reason}"
        return is_on

    def asked(self, switch: str) -> bool | None:
        """Return whether the user switched an optimisation on or off; None for `auto`."""
        state = getattr(self.switches, switch)
        return None if state == "auto" else state == "on"

    def outlook(self) -> list[str]:
        """Return lines on the effect of the switches in a job."""
        if self._without:
            return [f"{', '.join(_AUTOMATIC)}: no effect, {self._without}"]
        lines = []
        for name, automatic in _AUTOMATIC.items():
            asked = self.asked(name)
            effect = automatic if asked is None else f"{'on' if asked else 'off'}, as requested"
            lines.append(f"{name}: {effect}")
        return lines

    def lines(self) -> dict[str, str]:
        """Return the decisions so far: ``{"graphs of tiles": "on, by default"}``."""
        return dict(self._lines)
