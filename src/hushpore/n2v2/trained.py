"""A trained denoiser: applied to other volumes, and kept in a file that runs no code when read."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from hushpore._version import __version__
from hushpore.base.errors import InputError, OutputError
from hushpore.base.volume import Volume, VolumeLike, as_volume, require_values
from hushpore.device.backend import choose_backend
from hushpore.n2v2.model import UNet
from hushpore.n2v2.prediction import predict

if TYPE_CHECKING:
    import numpy.typing as npt

#: Name of the entry in the file's header that says what the weights are.
_HEADER = "hushpore"


@dataclass(frozen=True, eq=False)
class Model:
    """A trained denoiser.

    Attributes
    ----------
    network : UNet
        Averaged weights, in evaluation mode, on the CPU.
    mean, std : tuple of float
        Of the values trained on, one pair for each channel: what normalised them.
    """

    network: UNet
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def predict(self, volume: VolumeLike, device: str = "auto") -> Volume:
        """Denoise another volume of the same kind.

        Parameters
        ----------
        volume : Volume or array_like
            As many channels as the model was trained on.
        device : str, optional
            As for `hushpore.denoise`.

        Returns
        -------
        Volume
            float32, same geometry.
        """
        noisy = as_volume(volume)
        backend = choose_backend(device)
        dimensions = self.network.dimensions
        require_dimensions(noisy, dimensions)
        scale = Scale(noisy, self.mean, self.std)
        images = scale.normalise(backend.put(require_values(noisy)), dimensions)
        network = self.network.to(backend.device)
        result = backend.get(predict(network, images))
        self.network.to("cpu")
        return noisy.replace(scale.restore(result), name=f"{noisy.name} denoised")

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write the model to a ``.safetensors`` file, with its facts as JSON in the header.

        Parameters
        ----------
        path : str or path-like
            File to write; it appears when it is complete.
        overwrite : bool, optional
            Replace an existing file.

        Raises
        ------
        OutputError
            If the file is there already, or cannot be written.
        """
        from safetensors.torch import save

        target = check_model_target(path, overwrite)
        facts = {
            "version": __version__,
            "dimensions": self.network.dimensions,
            "mean": self.mean,
            "std": self.std,
        }
        weights = {name: value.contiguous() for name, value in self.network.state_dict().items()}
        part = target.with_name(f".{target.name}.part")
        try:
            part.write_bytes(save(weights, {_HEADER: json.dumps(facts)}))
            os.replace(part, target)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise OutputError(f"Cannot write {target}: {error.strerror or error}.") from error
        return target


def check_model_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that a model can be written to a place, before hours of work go into it.

    Parameters
    ----------
    path : str or path-like
        Where `Model.save` will be asked to write.
    overwrite : bool, optional
        Whether an existing file may be replaced.

    Raises
    ------
    OutputError
        If it cannot be written there, or something is there already.
    """
    target = Path(path).expanduser()
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {target}: there is no folder {target.parent}.")
    if target.is_dir() or (target.exists() and not overwrite):
        raise OutputError(f"{target} is there already; choose another name, or overwrite it.")
    return target


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a model that `Model.save` wrote.

    Parameters
    ----------
    path : str or path-like
        A ``.safetensors`` file. Pickled models (``.pt``, ``.pth``, ``.ckpt``) are refused: to read
        one is to run whatever code it holds.

    Raises
    ------
    InputError
        If there is no such file, or it is not a whole model of hushpore.
    """
    from safetensors import SafetensorError, safe_open

    source = Path(path).expanduser()
    if not source.is_file():
        raise InputError(f"There is no model file {source}.")
    with source.open("rb") as file:
        start = file.read(2)
    if start == b"PK" or start[:1] == b"\x80":
        raise InputError(
            f"{source.name} is a pickled PyTorch file, which can run code when it is read. "
            "Expected a .safetensors file written by hushpore."
        )
    try:
        with safe_open(source, framework="pt") as file:
            facts = json.loads((file.metadata() or {})[_HEADER])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        network = UNet(facts["dimensions"])
        network.load_state_dict(weights)
        mean, std = tuple(map(float, facts["mean"])), tuple(map(float, facts["std"]))
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"{source.name} is not a whole model of hushpore ({type(error).__name__}). "
            "Save it again with Model.save, or train a new one."
        ) from error
    return Model(network.eval(), mean, std)


class Scale:
    """Between the values of a volume and those of the network: zero mean, unit deviation.

    Each channel has its own mean and deviation, since channels measure different things.

    Parameters
    ----------
    volume : Volume
        Gives shape and axes.
    mean, std : sequence of float
        One a channel.
    """

    def __init__(self, volume: Volume, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        if len(mean) != channel_count(volume):
            raise InputError(
                f"The model was trained on {len(mean)} channels; "
                f"{volume.name} has {channel_count(volume)}."
            )
        self.mean, self.std = mean, std
        self._shape = volume.shape
        self._per_channel = [
            length if axis == "c" else 1
            for axis, length in zip(volume.axes, volume.shape, strict=True)
        ]

    def normalise(self, values: torch.Tensor, dimensions: int) -> torch.Tensor:
        """Return float32 images (n, y, x) or (n, z, y, x) for the network, on the same device."""
        mean, std = (
            torch.tensor(per_channel, device=values.device).view(self._per_channel)
            for per_channel in (self.mean, self.std)
        )
        images = (values.float() - mean) / std
        return images.reshape(-1, *self._shape[-dimensions:])

    def restore(self, images: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return the network's output as values of the volume, in its shape."""
        mean, std = (
            np.array(per_channel, np.float32).reshape(self._per_channel)
            for per_channel in (self.mean, self.std)
        )
        values: npt.NDArray[np.float32] = images.reshape(self._shape)
        values *= std
        values += mean
        return values


def require_dimensions(volume: Volume, dimensions: int) -> None:
    """Check that a volume has the axes that the network works on.

    Raises
    ------
    InputError
        If a 2D image is to be denoised in 3D.
    """
    if volume.n_spatial < dimensions:
        raise InputError(
            f"{volume.name} is a 2D image ({volume.facts}); denoise it with dimensions=2."
        )


def channel_count(volume: Volume) -> int:
    """Number of channels of a volume."""
    return volume.shape[volume.axes.index("c")] if "c" in volume.axes else 1
