"""What the denoising job returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.n2v2.trained import Model


@dataclass(frozen=True, eq=False)
class Denoised:
    """Result of the denoising job.

    Attributes
    ----------
    volume : Volume
        The denoised volume: float32, in the geometry of the input. Where it does not fit into
        memory, its values lie in a temporary file, which goes when they are no longer used.
    model : Model
        What was trained, to be used on other volumes.
    losses, validation : numpy.ndarray
        float32, shape (n, 2): step, and mean loss of the steps up to it; and step, and loss of the
        averaged network on the same patches each time, to look at and not to choose by.
    timings : dict of str to float
        Seconds by stage.
    provenance : dict
        The record of the job.
    """

    volume: Volume
    model: Model
    losses: npt.NDArray[np.float32]
    validation: npt.NDArray[np.float32]
    timings: dict[str, float]
    provenance: dict[str, Any]

    @property
    def summary(self) -> str:
        """The result in one sentence."""
        result = self.provenance["result"]
        removed = f"Denoised: {result['noise_removed']:.3g} of noise removed (standard deviation)"
        if not result["steps"]:
            return f"{removed}, with the model {self.provenance['settings']['model']}"
        return f"{removed}, {result['steps']} training steps in {result['training_seconds']:.0f} s"
