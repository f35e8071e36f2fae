"""A trained denoiser as a package of the BioImage Model Zoo, which other programs can apply.

The package is written and tested by the zoo's own library, `bioimageio.core` (MIT). The weights are
stored as TorchScript, which includes the network; hushpore itself never reads such a file.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hushpore._version import __version__
from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, import_optional
from hushpore.base.formatting import readable_count
from hushpore.denoising.tensor_file import check_file_target

if TYPE_CHECKING:
    import os

    from hushpore.base.arrays import Array, Float32s
    from hushpore.denoising.model import Architecture, UNet
    from hushpore.denoising.plane_reader import Scale

#: Maximum edge of the test image, in pixels.
_EDGE = 96

_TAGS = ("denoising", "unet")

_NOISE2VOID = ("Krull et al. 2019, Noise2Void", "10.1109/CVPR.2019.00223")

#: Description of a network by its training method: what it removes, tags, and papers with DOI.
_METHODS: dict[str, tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "n2v2": (
        "Removes uncorrelated noise (N2V2).",
        ("noise2void",),
        (("Hoeck et al. 2022, N2V2", "10.1007/978-3-031-25069-9_33"), _NOISE2VOID),
    ),
    "n2v": ("Removes uncorrelated noise (Noise2Void).", ("noise2void",), (_NOISE2VOID,)),
    "r2r": (
        "Removes noise like that of its training image, correlated or not "
        "(Recorrupted-to-Recorrupted).",
        ("recorrupted2recorrupted",),
        (("Pang et al. 2021, Recorrupted-to-Recorrupted", "10.1109/CVPR46437.2021.00208"),),
    ),
    "n2n": (
        "Removes noise that differs between two images of the same object (Noise2Noise).",
        ("noise2noise",),
        (("Lehtinen et al. 2018, Noise2Noise", "10.48550/arXiv.1803.04189"),),
    ),
}


def check_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that a package can be written at `path`.

    Raises InputError too, if the name does not end in ``.zip``.
    """
    target = check_file_target(path, overwrite)
    if target.suffix != ".zip":
        raise InputError(
            f"The file name of a BioImage Model Zoo package must end in .zip; got {target.name}."
        )
    return target


def check_package(path: str, overwrite: bool = False) -> Path:
    """Check that a model can be packaged, before it is trained; see `check_target`.

    Raises MissingPackageError too, if the zoo's library is not installed.
    """
    target = check_target(path, overwrite)
    _import_zoo()
    return target


def require_plain(context: int, channels: int, outputs: int) -> None:
    """Check that the inputs of a network can be described in the format of the zoo.

    `context`: number of neighbouring slices on either side. `channels`: of the images. `outputs`:
    number of channels that are seen and predicted together.
    Raises InputError if the network needs neighbouring slices, or treats channels separately.
    """
    if context:
        raise InputError(
            "The BioImage Model Zoo supports 2D and 3D networks; this one is 2.5D, with "
            f"{readable_count(context, 'neighbouring slice')} on either side. Train with context=0 "
            "or dimensions=3, or save the model in hushpore's own format."
        )
    if channels != outputs:
        raise InputError(
            "The BioImage Model Zoo supports networks that see all channels at once; this one "
            f"denoises its {channels} channels separately. Train with channels='together' or on "
            "one channel, or save the model in hushpore's own format."
        )


def _import_zoo() -> tuple[Any, Any]:
    """Return the zoo's library and its module for model descriptions."""
    purpose = "Exporting to the BioImage Model Zoo"
    names = "bioimageio.core", "bioimageio.spec.model.v0_5"
    core, spec = (import_optional(name, purpose, "bioimage") for name in names)
    return core, spec


def write_package(
    target: Path,
    network: UNet,
    scale: Scale,
    sample: Array,
    name: str,
    authors: tuple[str, ...],
    license: str,
) -> None:
    """Write a network as a package, atomically, after a test by the zoo's library.

    `sample`: an image like the training images, (channels, *size). For the other parameters and
    errors see `hushpore.denoising.trained_model.Model.export`.
    """
    core, spec = _import_zoo()
    with new_file(target, overwrite=True, suffix=".part.zip") as part:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            _write_weights(network, folder)
            _write_tests(network, scale, _crop(network.architecture, sample), folder)
            _write_documentation(network.architecture, folder)
            described = _describe(spec, network.architecture, scale, folder, name, authors, license)
            core.save_bioimageio_package(described, output_path=part)
        tested = core.test_model(part)
        if tested.status == "failed":
            problems = [str(error.msg) for detail in tested.details for error in detail.errors]
            raise InputError(
                "The package failed the test of the BioImage Model Zoo: " + "; ".join(problems)
            )


def _crop(architecture: Architecture, values: Array) -> Float32s:
    """Return the middle of an image, (1, channels, *size), as the package's test input."""
    for axis, (least, step, _) in enumerate(_sizes(architecture), start=1):
        length = min(values.shape[axis], max(_EDGE, least)) // step * step
        start = (values.shape[axis] - length) // 2
        values = values.take(range(start, start + length), axis)
        missing = max(least - length, 0)
        width = [(0, missing if k == axis else 0) for k in range(values.ndim)]
        values = np.pad(values, width, mode="symmetric")
    return values[None].astype(np.float32)


def _sizes(architecture: Architecture) -> list[tuple[int, int, int]]:
    """Return the minimum length, the step and the tile margin along each spatial axis."""
    found = []
    for step, radius in zip(architecture.multiples, architecture.radii, strict=True):
        # an axis without down-sampling may be too short for margins
        halo = radius if step > 1 else 0
        found.append((-(-(2 * halo + 1) // step) * step, step, halo))
    return found


def _write_weights(network: UNet, folder: Path) -> None:
    architecture = network.cpu().eval().architecture
    size = [2 * multiple * 4 for multiple in architecture.multiples]
    example = torch.zeros(1, architecture.inputs, *size)
    with warnings.catch_warnings(), torch.no_grad():
        # PyTorch recommends other formats, but the programs of the zoo read this one
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, example)  # type: ignore[no-untyped-call]
        traced.save(str(folder / "weights.pt"))


def _write_tests(network: UNet, scale: Scale, noisy: Float32s, folder: Path) -> None:
    shape = (1, -1, *[1] * (noisy.ndim - 2))
    mean, std = (np.array(v, np.float32).reshape(shape) for v in (scale.mean, scale.std))
    # as in the zoo's library, so that its test compares like with like
    with torch.inference_mode():
        output = network(torch.from_numpy((noisy - mean) / (std + 1e-6))).numpy()
    np.save(folder / "noisy.npy", noisy)
    np.save(folder / "denoised.npy", output * std + mean)


def _write_documentation(architecture: Architecture, folder: Path) -> None:
    (folder / "README.md").write_text(
        f"# {architecture.method.upper()} denoiser\n\n"
        f"Trained with hushpore {__version__} on noisy images only, without clean references.\n\n"
        "## Validation\n\nApply it only to images from the same scanner and settings, and check "
        "the removed noise: it should contain no image structure.\n",
        encoding="utf-8",
    )


def _describe(
    spec: Any,
    architecture: Architecture,
    scale: Scale,
    folder: Path,
    name: str,
    authors: tuple[str, ...],
    license: str,
) -> Any:
    channels = [spec.Identifier(f"channel{k}") for k in range(architecture.outputs)]
    channel, first_axes = (
        spec.AxisId("channel"),
        [spec.BatchAxis(), spec.ChannelAxis(channel_names=channels)],
    )
    letters = "zyx"[-architecture.dimensions :]
    sizes = list(zip(letters, _sizes(architecture), strict=True))
    mean, std = list(scale.mean), [value + 1e-6 for value in scale.std]
    noisy = spec.InputTensorDescr(
        id=spec.TensorId("noisy"),
        axes=[
            *first_axes,
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
                kwargs=spec.FixedZeroMeanUnitVarianceAlongAxisKwargs(
                    axis=channel, mean=mean, std=std
                )
            )
        ],
    )
    denoised = spec.OutputTensorDescr(
        id=spec.TensorId("denoised"),
        axes=[*first_axes, *[_output_axis(spec, letter, halo) for letter, (*_, halo) in sizes]],
        test_tensor=spec.FileDescr(source=folder / "denoised.npy"),
        postprocessing=[
            spec.ScaleLinearDescr(
                kwargs=spec.ScaleLinearAlongAxisKwargs(
                    axis=channel, gain=list(scale.std), offset=mean
                )
            )
        ],
    )
    description, tags, papers = _METHODS[architecture.method]
    return spec.ModelDescr(
        name=name,
        description=description,
        authors=[spec.Author(name=author) for author in authors],
        cite=[spec.CiteEntry(text=text, doi=spec.Doi(doi)) for text, doi in papers],
        license=spec.LicenseId(license),
        documentation=spec.FileDescr(source=folder / "README.md"),
        tags=[*_TAGS, *tags, architecture.method, f"{architecture.dimensions}d"],
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
