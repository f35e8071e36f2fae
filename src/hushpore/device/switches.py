"""Which optimisations are used: `auto`, `on` or `off` for each, and what was decided, and why.

Each of them makes something faster on some machines and slower on others, or nowhere. The plain way
is always there; an optimisation is used where it was measured to win by `WINS`, or where the user
says so. What a job decided stands in its timing record.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hushpore.base.errors import InputError
from hushpore.base.preferences import STATES, parse_switches

#: How many times faster an optimisation has to be to be used.
WINS = 1.1

_NO_USE = "nothing to use it for"

#: What each comes to where it is left at `auto`, as it is told before a job.
_LEFT = {
    "pinned": "on, from 64 MB on",
    "stream": "used where copying up takes a tenth of the time",
    "graphs": "on, after the first steps or tiles",
    "read_ahead": "on, for what is read from disk",
    "void": "used for grey values of 16 bits or float32 that the GPU holds",
}

#: Those that have an effect on the CPU too.
_ON_HOST = ("read_ahead",)


@dataclass(frozen=True)
class Switches:
    """What the user says of each optimisation; what `auto` comes to, `Choices.outlook` tells.

    >>> Switches.parse("graphs=off, pinned=on").graphs
    'off'
    """

    pinned: str = "auto"  # copies to and from a GPU in chunks, through memory that it reads itself
    stream: str = "auto"  # copying the next piece to a GPU while the present one is computed
    graphs: str = "auto"  # training steps and tiles captured once as CUDA graphs, and replayed
    read_ahead: str = "auto"  # what lies on disk is read while the piece before is worked on
    # grey values cross to a GPU as they are, and pores are parted from solid there
    void: str = "auto"

    def __post_init__(self) -> None:
        for name, state in dataclasses.asdict(self).items():
            if state not in STATES:
                raise InputError(f"The switch {name} can be auto, on or off; got {state!r}.")

    @classmethod
    def parse(cls, text: str) -> Switches:
        """Read ``"graphs=off, pinned=on"``; what is not named is at `auto`.

        Raises InputError if there is no such switch, or it cannot be set so.
        """
        return cls(**parse_switches(text))


class Choices:
    """What was decided about each optimisation in a job, and why.

    `without`: why there is nothing that those of a GPU could be used for.

    >>> choices = Choices(Switches(), without="no CUDA device")
    >>> choices.lines()["graphs"]
    'off, no CUDA device'
    """

    def __init__(self, switches: Switches, without: str = "") -> None:
        self.switches = switches
        self._without = without
        self._lines = dict.fromkeys(dataclasses.asdict(switches), f"off, {without or _NO_USE}")
        # the host reads ahead for itself, too
        self._lines["read_ahead"] = f"off, {_NO_USE}"

    def say(self, name: str, is_on: bool, reason: str) -> bool:
        """Keep what was decided, and return it.

        `name`: of a switch, or of one of several uses of it: ``"graphs of tiles"``.
        """
        # where its uses are told one by one, nothing is left to say of all of them
        if name not in self._lines:
            self._lines.pop(name.partition(" ")[0], None)
        self._lines[name] = f"{'on' if is_on else 'off'}, {reason}"
        return is_on

    def asked(self, switch: str) -> bool | None:
        """Return whether the user wants an optimisation; None: measure it."""
        state = getattr(self.switches, switch)
        return None if state == "auto" else state == "on"

    def outlook(self) -> list[str]:
        """Say what each will do in a job, a line each; in one those that there is no use for."""
        idle = [name for name in _LEFT if self._without and name not in _ON_HOST]
        lines = []
        for name in (each for each in _LEFT if each not in idle):
            asked = self.asked(name)
            what = _LEFT[name] if asked is None else f"{'on' if asked else 'off'}, as asked"
            lines.append(f"{name}: {what}")
        return [*lines, f"{', '.join(idle)}: without effect, {self._without}"] if idle else lines

    def lines(self) -> dict[str, str]:
        """Return what is known by now: ``{"pinned": "on, 21 GB/s where plain copies do 8"}``."""
        return dict(self._lines)
