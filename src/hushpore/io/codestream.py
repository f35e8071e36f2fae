"""What a JPEG, JPEG-LS or JPEG 2000 image states of itself."""

from __future__ import annotations

_SIZE_2000 = b"\xff\x4f\xff\x51"  # start of a JPEG 2000 codestream, and of its size segment


def stated_size(frame: bytes) -> tuple[int, int] | None:
    """Return the rows and columns that a compressed image states, or None where it does not.

    Decoders take memory for what it states, so that it must be compared with the header before.

    `frame`: its beginning at least, in JPEG, JPEG-LS or JPEG 2000.
    """
    if frame[:2] == b"\xff\xd8":
        return _jpeg_size(frame)
    start = frame.find(_SIZE_2000, 0, 4096)
    if start >= 0:
        right, bottom, left, top = (
            int.from_bytes(frame[at : at + 4], "big") for at in range(start + 8, start + 24, 4)
        )
        return bottom - top, right - left
    return None


def _jpeg_size(frame: bytes) -> tuple[int, int] | None:
    """Walk the segments of a JPEG or JPEG-LS frame up to the one that states the size."""
    at = 2
    while at + 9 <= len(frame) and frame[at] == 0xFF:
        marker = frame[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)) or marker == 0xF7:
            return (
                int.from_bytes(frame[at + 5 : at + 7], "big"),
                int.from_bytes(frame[at + 7 : at + 9], "big"),
            )
        at += 2 + int.from_bytes(frame[at + 2 : at + 4], "big")
    return None
