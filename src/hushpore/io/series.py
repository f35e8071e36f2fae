"""Which of several image stacks is meant: the one that a user names, or a sensible few."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hushpore.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hushpore.base.volume import Volume

#: Stacks that are preselected at most; a study of thirty would fill the screen with layers.
MOST = 6


def choose(volumes: Sequence[Volume], series: int | str = "") -> Volume:
    """Return the image stack that a user means.

    `volumes`: all that a file or folder holds. `series`: its number as `hushpore info` lists it,
    from 1; or its name, or a part that only its name has, in upper or lower case; empty for the one
    with most voxels.
    Returns: one of them.
    Raises InputError if none, or more than one, fits; lists them all.

    >>> import numpy as np
    >>> from hushpore.base.volume import Volume
    >>> head, chest = (Volume(np.zeros((2, 3)), name=name) for name in ("head", "chest"))
    >>> choose([head, chest], 2).name, choose([head, chest], "HEA").name
    ('chest', 'head')
    """
    text = str(series).strip()
    if not text:
        # labels, which are no larger, come after their image
        return max(volumes, key=lambda volume: math.prod(volume.shape))
    if text.isdecimal() and 1 <= int(text) <= len(volumes):
        return volumes[int(text) - 1]
    folded = text.casefold()
    exact = [volume for volume in volumes if volume.name.casefold() == folded]
    found = exact or [volume for volume in volumes if folded in volume.name.casefold()]
    if len(found) == 1:
        return found[0]
    listed = "; ".join(f"{number} {volume.name}" for number, volume in enumerate(volumes, start=1))
    what = f"{len(found)} series fit" if found else "no series fits"
    raise InputError(f"{what} {text!r}. Give a number or a name that only one has: {listed}.")


def with_own_names(volumes: Sequence[Volume]) -> list[Volume]:
    """Return the image stacks of a file or folder, numbered where they would have the same name."""
    names = [volume.name for volume in volumes]
    return [
        volume
        if names.count(volume.name) == 1
        else volume.replace(
            volume.data, name=f"{volume.name} [{names[: index + 1].count(volume.name)}]"
        )
        for index, volume in enumerate(volumes)
    ]


def preselected(volumes: Sequence[Volume], room: float) -> list[int]:
    """Return the image stacks that a user is likely to want, as their places in the sequence.

    The largest, and of the others as many as memory has room for, largest first, up to `MOST`.

    `volumes`: all that a file or folder holds; at least one. `room`: bytes that they may take
    together.
    """
    order = sorted(range(len(volumes)), key=lambda i: math.prod(volumes[i].shape), reverse=True)
    kept = order[:1]
    for index in order[1:MOST]:
        if sum(volumes[i].nbytes for i in [*kept, index]) > room:
            break
        kept.append(index)
    return sorted(kept)


def split_notes(notes: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Part notes into those that all image stacks have, and those of each alone.

    >>> split_notes([["a", "b"], ["a"]])
    (['a'], [['b'], []])
    """
    if len(notes) < 2:
        return [], [list(each) for each in notes]
    shared = [note for note in notes[0] if all(note in other for other in notes)]
    return shared, [[note for note in each if note not in shared] for each in notes]
