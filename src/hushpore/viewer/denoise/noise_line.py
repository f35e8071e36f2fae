"""What a layer's noise is like, for the line about it; found out beside the window's thread."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from qtpy.QtCore import QObject, Signal

from hushpore.base.scaled import held

if TYPE_CHECKING:
    from hushpore.base.volume import Volume
    from hushpore.n2v2.noise.diagnosis import NoiseDiagnosis


class NoiseLine(QObject):
    """Looks at the noise of layers, once each, in a thread.

    Values that lie on disk in pieces are not looked at: for a line in a form too much would be
    read.
    """

    #: Something more is known.
    found = Signal()

    def __init__(self) -> None:
        super().__init__()
        # by layer: the values that were looked at, and what was found ("" until then)
        self._known: WeakKeyDictionary[Any, tuple[Any, str]] = WeakKeyDictionary()

    def text(self, layer: Any, volume: Volume) -> str:
        """Return what is known by now; where nothing is, have it looked at."""
        values, text = self._known.get(layer, (None, ""))
        if values is volume.data or not isinstance(held(volume.data), np.ndarray):
            return text
        self._known[layer] = (volume.data, "")
        threading.Thread(
            target=self._look, args=(layer, volume), name="hushpore noise", daemon=True
        ).start()
        return ""

    def _look(self, layer: Any, volume: Volume) -> None:
        from hushpore.n2v2.noise.diagnosis import diagnose_noise

        try:
            text = words(diagnose_noise(volume))
        except Exception:
            # what is wrong with the image is said when it is denoised
            return
        self._known[layer] = (volume.data, text)
        with contextlib.suppress(RuntimeError):  # the window was closed meanwhile
            self.found.emit()


def words(noise: NoiseDiagnosis) -> str:
    """Return what was found in a few words, with the setting that helps."""
    if not noise.noise:
        return "no noise found"
    if noise.is_independent:
        return f"{noise.summary} ✓"
    if noise.rings:
        return "noise: alike along circles about the middle, as rings are ⚠"
    axes = noise.correlated_axes
    text = f"noise: alike along {' and '.join(axes)} ⚠"
    return f"{text} (choose 'Correlated noise along' {axes} under More)" if len(axes) == 1 else text
