"""A trained denoiser as a package of the BioImage Model Zoo, which other programs can apply.

The package is made and tested by the zoo's own library, `bioimageio.core` (MIT). The weights go in
as TorchScript, which brings its network with it; hushpore itself never reads such a file.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from hushpore._version import __version__
from hushpore.base.errors import InputError, MissingPackageError
from hushpore.base.volume import VolumeLike, as_volume
from hushpore.n2v2.source import Source
from hushpore.n2v2.tensor_file import check_file_target

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from hushpore.base.volume import Volume
    from hushpore.n2v2.images import Arrangement
    from hushpore.n2v2.model import UNet

#: Edge of the test image, in pixels, where the sample has so many.
_EDGE = 96

_CITE = (
    ("Hoeck et al. 2022, N2V2", "10.1007/978-3-031-25069-9_33"),
    ("Krull et al. 2019, Noise2Void", "10.1109/CVPR.2019.00223"),
)


class TrainedNetwork(Protocol):
    """What is exported of a `hushpore.n2v2.trained.Model`, which can export itself."""

    @property
    def network(self) -> UNet:
        """Averaged weights, in evaluation mode."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Of the values trained on, one a channel."""

    @property
    def std(self) -> tuple[float, ...]:
        """Of the same."""

    @property
    def context(self) -> int:
        """Neighbouring slices to either side that it sees with each."""

    def arrange(self, volume: Volume) -> Arrangement:
        """Say how the planes of a volume make up images."""


def export_model(
    model: TrainedNetwork,
    path: str | os.PathLike[str],
    sample: VolumeLike,
    *,
    name: str = "",
    authors: tuple[str, ...] = ("unknown",),
    license: str = "CC-BY-4.0",
    overwrite: bool = False,
) -> Path:
    """Write a model as a package of the BioImage Model Zoo, and have its library test it.

    Parameters
    ----------
    model : TrainedNetwork
        What to export.
    path : str or path-like
        The package, ending in ``.zip``.
    sample : Volume or array_like
        An image like those that it was trained on; a part of it goes into the package as its test.
    name : str, optional
        Of the model; by default that of the sample with "denoiser".
    authors : tuple of str, optional
        Who trained it.
    license : str, optional
        SPDX identifier of the terms under which the weights are passed on.
    overwrite : bool, optional
        Replace an existing file.

    Returns
    -------
    Path
        The package.

    Raises
    ------
    MissingPackageError
        If `bioimageio.core` is not installed.
    InputError
        If the model cannot be described so, or the zoo's test does not pass.
    OutputError
        If the package cannot be written.
    """
    target = check_file_target(path, overwrite)
    if target.suffix != ".zip":
        raise InputError(f"A package of the BioImage Model Zoo ends in .zip; got {target.name}.")
    if model.context or len(model.mean) != model.network.architecture.outputs:
        raise InputError(
            "A model that sees neighbouring slices, or several channels each by itself, cannot be "
            "described to the BioImage Model Zoo. Train it with context=0 on one channel, or with "
            "channels='together'."
        )
    core, spec = _import()
    volume = as_volume(sample)
    part = target.with_name(f".{target.name}.part.zip")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            _write_weights(model, folder)
            _write_tests(model, _crop(model, Source(volume, model.network.dimensions)), folder)
            _write_documentation(model, folder)
            described = _describe(
                spec, model, folder, name or f"{volume.name} denoiser", authors, license
            )
            core.save_bioimageio_package(described, output_path=part)
        _require_passed(core.test_model(part))
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _import() -> tuple[Any, Any]:
    try:
        import bioimageio.core
        import bioimageio.spec.model.v0_5
    except ImportError as error:
        raise MissingPackageError(
            "Exporting to the BioImage Model Zoo needs its library. "
            "Install it with: pip install 'hushpore[bioimage]'"
        ) from error
    return bioimageio.core, bioimageio.spec.model.v0_5


def _crop(model: TrainedNetwork, source: Source) -> npt.NDArray[np.float32]:
    """Return the middle of the first image, (1, channels, *size), as the package's test input."""
    values = source.read(model.arrange(source.volume).members[0])
    for axis, (least, step, _) in enumerate(_sizes(model), start=1):
        length = min(values.shape[axis], max(_EDGE, least)) // step * step
        start = (values.shape[axis] - length) // 2
        values = values.take(range(start, start + length), axis)
        missing = max(least - length, 0)
        width = [(0, missing if k == axis else 0) for k in range(values.ndim)]
        values = np.pad(values, width, mode="symmetric")
    return values[None].astype(np.float32)


def _sizes(model: TrainedNetwork) -> list[tuple[int, int, int]]:
    """Return for each spatial axis its least length, its step, and the margin that tiles need."""
    architecture = model.network.architecture
    found = []
    for step, radius in zip(architecture.multiples, architecture.radii, strict=True):
        # an axis that is not down-sampled may be short, and then has no room for margins
        halo = radius if step > 1 else 0
        found.append((-(-(2 * halo + 1) // step) * step, step, halo))
    return found


def _write_weights(model: TrainedNetwork, folder: Path) -> None:
    network = model.network.cpu().eval()
    architecture = network.architecture
    size = [2 * multiple * 4 for multiple in architecture.multiples]
    example = torch.zeros(1, architecture.inputs, *size)
    with warnings.catch_warnings(), torch.no_grad():
        # PyTorch would have other formats used; the zoo's programs read this one
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, example)  # type: ignore[no-untyped-call]
        traced.save(str(folder / "weights.pt"))


def _write_tests(model: TrainedNetwork, noisy: npt.NDArray[np.float32], folder: Path) -> None:
    shape = (1, -1, *[1] * (noisy.ndim - 2))
    mean, std = (np.array(v, np.float32).reshape(shape) for v in (model.mean, model.std))
    # as the zoo's library does it, so that its test compares like with like
    with torch.inference_mode():
        output = model.network(torch.from_numpy((noisy - mean) / (std + 1e-6))).numpy()
    np.save(folder / "noisy.npy", noisy)
    np.save(folder / "denoised.npy", output * std + mean)


def _write_documentation(model: TrainedNetwork, folder: Path) -> None:
    method = model.network.architecture.method.upper()
    (folder / "README.md").write_text(
        f"# {method} denoiser\n\nTrained with hushpore {__version__} on the noisy images alone.\n\n"
        "## Validation\n\nApply it to images of the same scanner and settings only, and look at "
        "what it removes: it should look like noise and nothing else.\n",
        encoding="utf-8",
    )


def _describe(
    spec: Any,
    model: TrainedNetwork,
    folder: Path,
    name: str,
    authors: tuple[str, ...],
    license: str,
) -> Any:
    architecture = model.network.architecture
    channels = [spec.Identifier(f"channel{k}") for k in range(architecture.outputs)]
    letters = "zyx"[-architecture.dimensions :]
    sizes = list(zip(letters, _sizes(model), strict=True))
    mean, std = list(model.mean), [value + 1e-6 for value in model.std]
    fixed = spec.FixedZeroMeanUnitVarianceAlongAxisKwargs
    noisy = spec.InputTensorDescr(
        id=spec.TensorId("noisy"),
        axes=[
            spec.BatchAxis(),
            spec.ChannelAxis(channel_names=channels),
            *[
                spec.SpaceInputAxis(
                    id=spec.AxisId(letter), size=spec.ParameterizedSize(min=least, step=step)
                )
                for letter, (least, step, _) in sizes
            ],
        ],
        test_tensor=spec.FileDescr(source=folder / "noisy.npy"),
        data=spec.IntervalOrRatioDataDescr(type="float32"),
        preprocessing=[
            spec.FixedZeroMeanUnitVarianceDescr(
                kwargs=fixed(axis=spec.AxisId("channel"), mean=mean, std=std)
            )
        ],
    )
    denoised = spec.OutputTensorDescr(
        id=spec.TensorId("denoised"),
        axes=[
            spec.BatchAxis(),
            spec.ChannelAxis(channel_names=channels),
            *[_output_axis(spec, letter, halo) for letter, (_, _, halo) in sizes],
        ],
        test_tensor=spec.FileDescr(source=folder / "denoised.npy"),
        postprocessing=[
            spec.ScaleLinearDescr(
                kwargs=spec.ScaleLinearAlongAxisKwargs(
                    axis=spec.AxisId("channel"), gain=list(model.std), offset=mean
                )
            )
        ],
    )
    return spec.ModelDescr(
        name=name,
        description="Removes noise that is independent from pixel to pixel (Noise2Void).",
        authors=[spec.Author(name=author) for author in authors],
        cite=[spec.CiteEntry(text=text, doi=spec.Doi(doi)) for text, doi in _CITE],
        license=spec.LicenseId(license),
        documentation=spec.FileDescr(source=folder / "README.md"),
        tags=[
            "denoising",
            "noise2void",
            "unet",
            architecture.method,
            f"{architecture.dimensions}d",
        ],
        inputs=[noisy],
        outputs=[denoised],
        weights=spec.WeightsDescr(
            torchscript=spec.TorchscriptWeightsDescr(
                source=folder / "weights.pt",
                pytorch_version=spec.Version(torch.__version__.partition("+")[0]),
            )
        ),
    )


def _output_axis(spec: Any, letter: str, halo: int) -> Any:
    size = spec.SizeReference(tensor_id=spec.TensorId("noisy"), axis_id=spec.AxisId(letter))
    if halo:
        return spec.SpaceOutputAxisWithHalo(id=spec.AxisId(letter), halo=halo, size=size)
    return spec.SpaceOutputAxis(id=spec.AxisId(letter), size=size)


def _require_passed(summary: Any) -> None:
    if summary.status == "failed":
        problems = [str(error.msg) for detail in summary.details for error in detail.errors]
        raise InputError(
            "The BioImage Model Zoo's own test does not accept the package: " + "; ".join(problems)
        )
