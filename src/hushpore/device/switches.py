"""Switches of the optimisations (`auto`, `on` or `off`), and the decisions of a job with reasons.

Each optimisation makes some machines faster and others slower. The plain way always exists; an
optimisation is used if it was measured to be faster by a factor of `WINS`, or if the user switches
it on. The decisions of a job are in its timing record.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hushpore.base.errors import InputError
from hushpore.base.preferences import STATES, parse_switches

#: Minimum speed-up for an optimisation to be used.
WINS = 1.1

_NO_USE = "not needed"

#: Effect of `auto` for each switch, as shown before a job.
_AUTOMATIC = {
    "pinned": "on, for arrays of 64 MB and more",
    "stream": "on, if uploads take at least a tenth of the time",
    "graphs": "on, after the first steps or tiles",
    "read_ahead": "on, for data read from disk",
    "void": "on, for 16-bit or float32 grey values in GPU memory",
}

#: Switches that have an effect on the CPU too.
_ON_HOST = ("read_ahead",)


@dataclass(frozen=True)
class Switches:
    """The user's switches of the optimisations; `Choices.outlook` describes the effect of `auto`.

    >>> Switches.parse("graphs=off, pinned=on").graphs
    'off'
    """

    pinned: str = "auto"  # copy to and from the GPU in chunks, through pinned memory
    stream: str = "auto"  # upload the next piece while the current one is computed
    graphs: str = "auto"  # capture training steps and tiles as CUDA graphs, and replay them
    read_ahead: str = "auto"  # read the next piece from disk while the current one is computed
    void: str = "auto"  # upload grey values and apply the threshold on the GPU

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
        self._lines = dict.fromkeys(dataclasses.asdict(switches), f"off, {without or _NO_USE}")
        # reading ahead works on the CPU too
        self._lines["read_ahead"] = f"off, {_NO_USE}"

    def record(self, name: str, is_on: bool, reason: str) -> bool:
        """Record a decision, and return it.

        `name`: of a switch, or of one of several uses of it: ``"graphs of tiles"``.
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
        """Return a line for each switch with its effect in a job; unused ones share a line."""
        unused = [name for name in _AUTOMATIC if self._without and name not in _ON_HOST]
        lines = []
        for name in (each for each in _AUTOMATIC if each not in unused):
            asked = self.asked(name)
            effect = (
                _AUTOMATIC[name] if asked is None else f"{'on' if asked else 'off'}, as requested"
            )
            lines.append(f"{name}: {effect}")
        return [*lines, f"{', '.join(unused)}: no effect, {self._without}"] if unused else lines

    def lines(self) -> dict[str, str]:
        """Return the decisions so far: ``{"graphs of tiles": "on, by default"}``."""
        return dict(self._lines)
