"""A trained denoiser: applied to other volumes, saved as a file whose reading runs no code.

Settings that reproduce an earlier denoising, or earlier patches.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore._version import __version__
from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, OutputError
from hushpore.base.events import result_of
from hushpore.base.volume import Volume, VolumeLike, as_volume
from hushpore.denoising.images import arrange
from hushpore.denoising.inference.volumes import FREE_SHARE, VolumePredictor
from hushpore.denoising.model import Architecture, UNet
from hushpore.denoising.plane_reader import PlaneReader, Scale, measure_scale
from hushpore.denoising.settings import DenoiseSettings
from hushpore.device.backend import choose_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hushpore.denoising.images import Arrangement

#: Exceptions that a header with unexpected content may raise.
ODD = (KeyError, ValueError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError)

#: Name of the header entry with the checksum of everything else.
_SUM = "blake2b"


def write_tensors(
    target: Path, tensors: dict[str, torch.Tensor], facts: dict[str, dict[str, Any]]
) -> None:
    """Write tensors and JSON facts to one safetensors file, atomically.

    Raises OutputError if it cannot be written; an older file is then unchanged.
    """
    with new_file(target, overwrite=True) as part:
        part.write_bytes(_packed(tensors, facts))


def _packed(tensors: dict[str, torch.Tensor], facts: dict[str, dict[str, Any]]) -> bytes:
    """Return the content of a file of `write_tensors`."""
    from safetensors.torch import save

    header = {name: json.dumps(each) for name, each in facts.items()}
    content = save(tensors, {**header, _SUM: sum_of_tensors(tensors, facts)})
    # entries come in random order: equal models are made equal files
    values = _values_of(content)
    told = json.loads(content[8 : len(content) - len(values)])
    told["__metadata__"] = dict(sorted(told["__metadata__"].items()))
    text = json.dumps(told).encode()
    text += b" " * (-len(text) % 8)  # values start at a multiple of 8 bytes
    return b"".join([len(text).to_bytes(8, "little"), text, values])


def sum_of_tensors(tensors: dict[str, torch.Tensor], facts: dict[str, dict[str, Any]]) -> str:
    """Return the checksum of tensors and JSON facts, 32 hexadecimal digits."""
    from safetensors.torch import save

    header = {name: json.dumps(each) for name, each in facts.items()}
    return _sum_of(header, _values_of(save(tensors)))


def check_file_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that a file can be written, before hours of computing.

    `overwrite`: whether an existing file may be replaced.
    Raises OutputError if the file cannot be written, or if it exists and may not be replaced.
    """
    target = Path(path).expanduser()
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {target}: there is no folder {target.parent}.")
    if target.is_dir() or (target.exists() and not overwrite):
        raise OutputError(f"{target} already exists. Choose another name, or allow overwriting.")
    return target


def read_tensors(
    path: str | os.PathLike[str], entry: str, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read tensors and the facts of one entry of a safetensors file.

    `entry`: name of the facts in the header. `wanted`: selects the tensors to read by name. Raises
    InputError if there is no such file, if it is a pickle, if it is damaged, or if it lacks these
    facts.
    """
    source = Path(path).expanduser()
    if source.is_dir():
        raise InputError(f"{source.resolve()} is a folder; expected a .safetensors file.")
    if not source.is_file():
        raise InputError(f"The model file {source} does not exist.")
    with source.open("rb") as file:
        start = file.read(9)
    # the length of the header, at the start of a safetensors file, may look like either signature
    if start[8:] != b"{" and (start[:2] == b"PK" or start[:1] == b"\x80"):
        raise InputError(
            f"{source.name} is a pickled PyTorch file, which can run code when it is read. "
            "Expected a .safetensors file written by hushpore."
        )
    # not memory-mapped: if the file were shortened meanwhile, the program would crash
    return _unpacked(source.read_bytes(), source, entry, wanted)


def _unpacked(
    content: bytes, name: str | os.PathLike[str], entry: str, wanted: Callable[[str], bool]
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return tensors and facts of the content of a file, as `read_tensors`; `name`: for errors."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        known = header["__metadata__"]
        facts = json.loads(known[entry])
        if known[_SUM] != _sum_of(known, _values_of(content)):
            raise ValueError("its sum is another")
        tensors = {each: value for each, value in load(content).items() if wanted(each)}
        return dict(facts), tensors
    except (SafetensorError, *ODD) as error:
        raise not_whole(name, error) from error


def _values_of(content: bytes) -> memoryview:
    """Return the tensor data of a safetensors file, which follow the header."""
    return memoryview(content)[8 + int.from_bytes(content[:8], "little") :]


def _sum_of(facts: dict[str, str], values: memoryview) -> str:
    """Return the checksum of facts and tensors."""
    told = json.dumps({name: text for name, text in facts.items() if name != _SUM}, sort_keys=True)
    digest = hashlib.blake2b(told.encode(), digest_size=16)
    digest.update(values)
    return digest.hexdigest()


def not_whole(path: str | os.PathLike[str], error: Exception) -> InputError:
    """Return the error for a damaged file, or a file with unexpected content."""
    return InputError(
        f"{Path(path).name} is not a hushpore model, or it is damaged ({type(error).__name__}). "
        "Copy the original file again, or train a new model."
    )


#: Name of the entry in the file's header that says what the weights are.
HEADER = "hushpore"

# beyond this, grey values cannot be normalised in float32
_LARGEST_VALUE = 1e30

#: Prefix of the names of tensors that only the training needs.
TRAINING = "training."


@dataclass(frozen=True, eq=False)
class Model:
    """A trained denoiser.

    Attributes
    ----------
    network : UNet
        Averaged weights, in evaluation mode, on the CPU.
    mean, std : tuple of float
        Mean and standard deviation of the training grey values, for each channel.
    channels : str
        ``"independent"`` or ``"together"``, as in the settings.
    context : int
        Number of neighbouring slices on either side that the network sees.
    is_turned : bool
        Whether it was also trained on patches rotated by 90 degrees: not with line noise.
    """

    network: UNet
    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: str = "independent"
    context: int = 0
    is_turned: bool = True

    @property
    def scale(self) -> Scale:
        """Conversion between grey values and normalised values."""
        return Scale(self.mean, self.std)

    def arrange(self, volume: Volume) -> Arrangement:
        """Return the planes of each image of the network, for a volume.

        Raises
        ------
        InputError
            If the volume has other axes or channels than the model was trained on.
        """
        dimensions = self.network.dimensions
        require_dimensions(volume, dimensions)
        count = volume.shape[volume.axes.index("c")] if "c" in volume.axes else 1
        if count != len(self.mean):
            raise InputError(
                f"The model was trained on {len(self.mean)} channels; {volume.name} has {count}."
            )
        return arrange(volume, dimensions, self.channels, self.context)

    def augments(self, settings: DenoiseSettings, shape: Sequence[int]) -> bool:
        """Return whether test-time augmentation is used.

        `shape`: of the volume.
        """
        return self.is_turned and settings.orientations(shape) > 1

    def predict(
        self,
        volume: VolumeLike,
        device: str = "auto",
        *,
        out: Any = None,
        test_time_augmentation: bool | None = None,
        memory: float | None = None,
    ) -> Volume:
        """Denoise another volume of the same kind.

        Parameters
        ----------
        volume : Volume or array_like
            With the number of channels of the training data; NumPy, a memory map, dask or Zarr. A
            volume larger than the memory is read piece by piece.
        device : str, optional
            As for `hushpore.denoise`.
        out : array_like, optional
            Array for the result, of the shape of the volume and assignable by slices, such as a
            memory map or a Zarr array. By default a new array in memory.
        test_time_augmentation : bool, optional
            Average over 8 flipped and rotated copies; by default for up to 8 million voxels.
        memory : float, optional
            Maximum memory in addition to the result, in bytes; by default 90 % of the free memory.
            Exceeded if even the smallest tiles need more.

        Returns
        -------
        Volume
            float32 (or of the type of `out`), same geometry.
        """
        noisy = as_volume(volume)
        backend = choose_backend(device)
        arrangement = self.arrange(noisy)
        source = PlaneReader(noisy, self.network.dimensions)
        # raises InputError for NaN and for constant values
        measure_scale(source)
        out = np.empty(noisy.shape, np.float32) if out is None else out
        budget = memory or FREE_SHARE * backend.free_memory()
        settings = DenoiseSettings(test_time_augmentation=test_time_augmentation)
        augment = self.augments(settings, noisy.shape)
        predictor = VolumePredictor(self.network, arrangement, self.scale, budget, augment=augment)
        result_of(predictor.predict(source, out, backend))
        return noisy.as_denoised(out)

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
            If the file already exists, or cannot be written.
        """
        target = check_file_target(path, overwrite)
        write_tensors(target, self._weights, {HEADER: self.facts()})
        return target

    @property
    def content(self) -> bytes:
        """The content of a file of `save`, to be stored with something else."""
        return _packed(self._weights, {HEADER: self.facts()})

    @property
    def fingerprint(self) -> str:
        """Checksum of the weights and facts, which identifies the model in any file."""
        facts = self.facts()
        del facts["version"]  # that of the program which wrote the file
        return sum_of_tensors(self._weights, {HEADER: facts})

    @property
    def _weights(self) -> dict[str, torch.Tensor]:
        return {name: value.contiguous() for name, value in self.network.state_dict().items()}

    def facts(self) -> dict[str, Any]:
        """Return the metadata of the weights as plain JSON values."""
        return {
            "version": __version__,
            "dimensions": self.network.dimensions,
            "architecture": dataclasses.asdict(self.network.architecture),
            "mean": list(self.mean),
            "std": list(self.std),
            "channels": self.channels,
            "context": self.context,
            "is_turned": self.is_turned,
        }


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read a trained model from a file of `Model.save` or from a checkpoint.

    Parameters
    ----------
    path : str or path-like
        A ``.safetensors`` file. Pickled models (``.pt``, ``.pth``, ``.ckpt``) are refused, because
        they can run code when they are read.

    Returns
    -------
    Model
        The model, on the CPU.

    Raises
    ------
    InputError
        If the file does not exist, is damaged, or is not a hushpore model.

    Examples
    --------
    >>> model = load_model("bread.safetensors")    # doctest: +SKIP
    >>> clean = model.predict(scan)    # doctest: +SKIP
    """
    return _model_of(path, *read_tensors(path, HEADER, _is_weight))


def model_of_content(content: bytes, name: str) -> Model:
    """Return the model of `Model.content`; `name`: of what it was stored with, for errors.

    Raises InputError if it is damaged.
    """
    return _model_of(name, *_unpacked(content, name, HEADER, _is_weight))


def _is_weight(name: str) -> bool:
    return not name.startswith(TRAINING)


def _model_of(
    path: str | os.PathLike[str], facts: dict[str, Any], weights: dict[str, torch.Tensor]
) -> Model:
    """Return a model, once its facts and weights are known to be sound; `path`: for errors."""
    try:
        architecture = Architecture(**facts["architecture"])
        # on no device first: a header can ask for a network that no memory holds
        with torch.device("meta"):
            expected = UNet(architecture).state_dict()
        if {name: value.shape for name, value in expected.items()} != {
            name: value.shape for name, value in weights.items()
        }:
            raise ValueError("weights of another network")
        network = UNet(architecture)
        network.load_state_dict(weights)
        mean, std = tuple(map(float, facts["mean"])), tuple(map(float, facts["std"]))
        channels, context = str(facts["channels"]), int(facts["context"])
        is_turned = bool(facts["is_turned"])
        if not np.isfinite([*mean, *std]).all() or len(mean) != len(std) or min(std) <= 0:
            raise ValueError("no scale")
    except (*ODD, RuntimeError) as error:
        raise not_whole(path, error) from error
    _require_sensible(path, weights, mean, std)
    return Model(network.eval(), mean, std, channels, context, is_turned)


def record_model(provenance: dict[str, Any], model: Model) -> None:
    """Identify the model that was applied in the record of a job, if there was one."""
    if file := provenance["settings"]["model"]:
        provenance["auxiliary"]["model"] = {"name": file, "blake2b": model.fingerprint}


def _require_sensible(
    path: str | os.PathLike[str],
    weights: dict[str, torch.Tensor],
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> None:
    """Raise InputError if a weight is not finite, or the grey scale is beyond float32."""
    bad = [
        name
        for name, value in weights.items()
        if not value.isfinite().all() or (name.endswith("running_var") and (value < 0).any())
    ]
    if bad:
        raise InputError(
            f"{Path(path).name} is damaged: {len(bad)} of its weights are not finite numbers "
            f"({bad[0][:60]}). Copy the original file again, or train a new model."
        )
    # a value is divided by std; both it and the result must stay within float32
    if max(map(abs, mean)) > _LARGEST_VALUE or not all(
        1 / _LARGEST_VALUE < each < _LARGEST_VALUE for each in std
    ):
        raise InputError(
            f"{Path(path).name} cannot be used: its training grey values (mean {mean[0]:g}, "
            f"standard deviation {std[0]:g}) are beyond the range of float32. Train a new model."
        )


def require_dimensions(volume: Volume, dimensions: int) -> None:
    """Raise InputError if a 2D image is to be denoised in 3D."""
    if volume.n_spatial < dimensions:
        raise InputError(
            f"{volume.name} is a 2D image ({volume.facts}). Denoise it with dimensions=2."
        )


def repeated_denoising(
    values: Mapping[str, Any], made: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the settings that reproduce an earlier denoising.

    `values`: its settings. `made`: its record. `file`: path of the record.
    Raises InputError if the applied model no longer exists, or has changed.
    """
    require_same_model(values, made)
    # trained anew instead of resumed; a training that reached its time limit is repeated with the
    # number of steps and the learning rates in its provenance
    repeat = str(file) if made.get("training") else ""
    return {**values, "checkpoint": "", "repeat": repeat}


def repeated_patches(
    values: Mapping[str, Any], made: Mapping[str, Any], file: Path
) -> dict[str, Any]:
    """Return the settings that sample the same patches again; see `repeated_denoising`."""
    require_same_model(values, made)
    return dict(values)


def require_same_model(
    values: Mapping[str, Any], made: Mapping[str, Any], setting: str = "model"
) -> None:
    """Check that the model that a setting names exists, and is the one in a record.

    Raises InputError with the remedy if not.
    """
    name = values.get(setting)
    if not name:
        return
    if not os.path.isfile(os.path.expanduser(name)):
        raise InputError(
            f"The trained model of this result is missing: there is no file {name[:200]}. Put it "
            "back and run again."
        )
    if load_model(name).fingerprint != made["auxiliary"][setting]["blake2b"]:
        raise InputError(
            f"{name} is not the model of this result: its fingerprint differs. Put the original "
            "model back and run again. Nothing was run."
        )
