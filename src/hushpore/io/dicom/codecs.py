"""Decoders of compressed DICOM frames: those of imagecodecs, which work without Python's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Decode: TypeAlias = Callable[[bytes, tuple[int, int], np.dtype[Any]], npt.NDArray[Any]]

_RLE = "1.2.840.10008.1.2.5"
_JPEG = "1.2.840.10008.1.2.4."
# transfer syntax: names of the decoders in imagecodecs, the first that is there is taken
_NAMES = {
    f"{_JPEG}50": ("jpeg8",),
    f"{_JPEG}51": ("jpeg8",),
    f"{_JPEG}57": ("ljpeg", "jpegsof3"),
    f"{_JPEG}70": ("ljpeg", "jpegsof3"),
    f"{_JPEG}80": ("jpegls",),
    f"{_JPEG}81": ("jpegls",),
    f"{_JPEG}90": ("jpeg2k",),
    f"{_JPEG}91": ("jpeg2k",),
    f"{_JPEG}201": ("jpeg2k",),
    f"{_JPEG}202": ("jpeg2k",),
    f"{_JPEG}203": ("jpeg2k",),
    _RLE: ("dicomrle",),
}
_END_OF_IMAGE = b"\xff\xd9"  # of JPEG, JPEG-LS and JPEG 2000 alike


def decoder_of(syntax: str) -> Decode | None:
    """Return the decoder for a transfer syntax, or None where imagecodecs has none.

    Returns: ``decode(frame, shape, dtype)`` returns the values of one frame. `dtype` is that of the
    header, native; codecs that know their own return that.
    """
    try:
        import imagecodecs
    except ImportError:
        return None
    for name in _NAMES.get(syntax, ()):
        if getattr(imagecodecs, name.upper()).available:
            decode = getattr(imagecodecs, f"{name}_decode")
            return _run_lengths(decode) if syntax == _RLE else _self_describing(decode)
    return None


def _self_describing(decode: Callable[..., Any]) -> Decode:
    def run(frame: bytes, shape: tuple[int, int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        # without the mark at its end a frame that was cut keeps CharLS busy for seconds
        ended = frame[-16:].rstrip(b"\0").endswith(_END_OF_IMAGE)
        values: npt.NDArray[Any] = decode(frame if ended else frame + _END_OF_IMAGE)
        return values

    return run


def _run_lengths(decode: Callable[..., Any]) -> Decode:
    def run(frame: bytes, shape: tuple[int, int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        values = np.empty(shape, dtype)
        filled = decode(frame, dtype, out=values.reshape(-1).view(np.uint8))
        if len(filled) != values.nbytes:
            raise EOFError("the runs end before the frame does")
        return values

    return run
