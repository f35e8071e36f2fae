"""Values packed for the folder that tasks share: phases, basins and tables come to a tenth.

LZ4 with bytes sorted by their place in a value (Blosc) packs and unpacks faster than disks and
networks move what it saves, and leaves alone what it cannot make smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_PIECE = 1 << 26  # bytes that are packed at once: Blosc takes no more than 2 GiB
# of the header of a packed piece: where it says how long it is, unpacked and packed
_UNPACKED, _PACKED = slice(4, 8), slice(12, 16)


def pack(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array, packed: (n,), uint8."""
    # first when it is needed: one machine works without it
    from numcodecs import Blosc

    codec = Blosc("lz4")
    packed = [codec.encode(piece) for piece in _pieces(np.ascontiguousarray(values))]
    return np.frombuffer(b"".join(packed), np.uint8)


def unpack(packed: npt.NDArray[np.uint8], out: npt.NDArray[Any]) -> None:
    """Fill an array, C-contiguous, with what `pack` made of one of its shape and type.

    Raises ValueError if these are other bytes.
    """
    from numcodecs import Blosc

    codec, content = Blosc("lz4"), memoryview(packed.data)
    for piece in _pieces(out):
        unpacked, size = (int.from_bytes(content[at], "little") for at in (_UNPACKED, _PACKED))
        # of fewer bytes the rest of the array would be what memory held before
        if unpacked != piece.nbytes or size > len(content):
            raise ValueError("What was packed is of another length.")
        try:
            codec.decode(content[:size], piece)
        except RuntimeError as error:
            raise ValueError("What was packed is damaged.") from error
        content = content[size:]


def _pieces(values: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield an array in pieces of whole values; of none nothing."""
    flat, step = values.reshape(-1), _PIECE // values.itemsize
    for start in range(0, flat.size, step):
        yield flat[start : start + step]
