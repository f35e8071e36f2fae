"""Denoising of real scans, and of simulated ones with the difficulties of real ones.

TomoPy's tooth (each half of the projections denoised by itself and judged by the other, inside the
sample: mean squared difference over that of the noisy half), the slice of Noise2Inverse (PSNR
against the authors' clean slice), FDA's low-contrast CT phantom at three doses (inside it, in HU),
the simulated scans of `_hard_scans` (PSNR over the contrast, inside the core, with pores below the
middle of the contrast), and two kinds that are made: photon counts of photographs, and blurred
particles with blurred noise. None of the files is in the repository, and what is missing is left
out::

    python -m benchmarks.denoise_real DATA --out FILE.json [--device cuda] [--only tooth]
        [--variants sample,whole] [--limit 240]

DATA holds ``tooth_halves.npz``, ``noise2inverse_slice.npz``, ``lcd_ct.npz`` (DIDSR/LCD_CT),
photographs (``*.png``) and the files of `_hard_scans`. Figures are written after each case, and one
run can compare several variants of the settings.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import ndimage
from skimage.io import imread
from skimage.restoration import denoise_nl_means, denoise_tv_chambolle

import hushpore
from benchmarks._hard_scans import loaded
from benchmarks._missing import MissingError
from benchmarks._scans import AIR, CONTRAST
from hushpore import Volume
from hushpore.denoising.pairs import Recorruption
from hushpore.scan.sample import find_sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    Image = npt.NDArray[np.float32]


class Case(NamedTuple):
    """A noisy scan, and how a result is judged."""

    name: str
    noisy: Image  # (z, y, x)
    judge: Callable[[Image], dict[str, float]]
    noise: float  # true standard deviation where it is judged
    contrast: float


class Variant(NamedTuple):
    """Settings of a job, and how much stronger the simulated noise is made."""

    settings: dict[str, Any]
    gain: float = 1.0
    # steps of a first pass, whose residual in the sample replaces the autocovariance; 0: none
    first_pass: int = 0
    first_gain: float = 1.2


#: What is compared: by default, as before the sample was looked at, with stronger noise, and so on.
VARIANTS = {
    "default": Variant({}),
    "r2r": Variant({"method": "r2r"}),
    "whole": Variant({"method": "r2r", "sample_focus": False}),
    "noise 1.1": Variant({"method": "r2r"}, 1.1),
    "noise 1.13": Variant({}, 1.13),
    "noise 0.95": Variant({}, 0.95),
    "noise 1.2": Variant({"method": "r2r"}, 1.2),
    "noise 1.3": Variant({"method": "r2r"}, 1.3),
    "400 steps": Variant({"steps": 400}),
    "600 steps": Variant({"method": "r2r", "steps": 600}),
    "3000 steps": Variant({"method": "r2r", "steps": 3000}),
    "3000 steps, noise 1.2": Variant({"method": "r2r", "steps": 3000}, 1.2),
    "residual 300": Variant({"method": "r2r"}, 1.0, 300),
    "residual 300, noise 1.1": Variant({"method": "r2r"}, 1.1, 300),
    "residual 300 of 1.4": Variant({"method": "r2r"}, 1.0, 300, 1.4),
    "residual 300 of 1.4, noise 1.1": Variant({"method": "r2r"}, 1.1, 300, 1.4),
    "residual 600": Variant({"method": "r2r"}, 1.0, 600),
    "batch 64": Variant({"method": "r2r", "batch_size": 64}),
    "n2v2": Variant({"method": "n2v2"}),
    "10 steps": Variant({"method": "r2r", "steps": 10}),
}


def real_cases(data: Path) -> Iterator[Case]:
    """Yield the real scans, with halves of the tooth both ways."""
    if (data / "lcd_ct.npz").exists():
        yield from phantom_cases(data / "lcd_ct.npz")
    if not (data / "tooth_halves.npz").exists():
        return
    with np.load(data / "tooth_halves.npz") as kept:
        even, odd = kept["even"], kept["odd"]
    smooth = ndimage.gaussian_filter((even + odd) / 2, (0, 3, 3))
    sample = ndimage.binary_dilation(smooth > (smooth.max() + smooth.min()) / 3, iterations=6)
    noise, contrast = float((even - odd)[sample].std() / 2**0.5), float(np.ptp(smooth))
    for name, noisy, other in (("tooth even", even, odd), ("tooth odd", odd, even)):
        before = square(noisy, other, sample)

        def judge(
            image: Image, noisy: Image = noisy, other: Image = other, before: float = before
        ) -> dict[str, float]:
            found = {"ratio": square(image, other, sample) / before}
            for z in range(len(image)):
                part = square(image[z], other[z], sample[z])
                found[f"ratio of slice {z}"] = part / square(noisy[z], other[z], sample[z])
            return found

        yield Case(name, noisy, judge, noise, contrast)
    with np.load(data / "noise2inverse_slice.npz") as kept:
        noisy, clean = kept["noisy"][None], kept["clean"]
    everywhere, extent = np.ones(clean.shape, bool), float(np.ptp(clean))

    def psnr(image: Image) -> dict[str, float]:
        return {"psnr": float(10 * np.log10(extent**2 / square(image[0], clean, everywhere)))}

    yield Case("noise2inverse", noisy, psnr, float((noisy[0] - clean).std()), extent)


def phantom_cases(path: Path) -> Iterator[Case]:
    """Yield the first repeat of FDA's phantom at each dose, judged inside the phantom."""
    with np.load(path) as kept:
        images = {name: kept[name] for name in kept.files}
    truth = images.pop("truth").astype(np.float64)
    radius = np.hypot(*(np.indices(truth.shape) - (truth.shape[0] - 1) / 2))
    for name, repeats in images.items():
        yield judged(f"phantom {name}", repeats[0], truth, radius < 90, 100.0)


def made_cases(data: Path) -> Iterator[Case]:
    """Yield photon counts of photographs, and blurred particles with blurred noise."""
    for path in sorted(data.glob("*.png"))[:3]:
        clean = np.asarray(imread(path), np.float64)[:256, :256] / 255
        for counts in (10, 60):
            truth = counts * clean
            noisy = np.random.default_rng(1).poisson(truth)
            yield judged(f"photograph {path.stem}, {counts} counts", noisy, truth, None, counts)
    rng = np.random.default_rng(0)
    seeds = np.ones((16, 128, 128))
    seeds[tuple(rng.integers(0, np.reshape(seeds.shape, (3, 1)), (3, 25)))] = 0
    solid = ndimage.gaussian_filter(100.0 * (ndimage.distance_transform_edt(seeds) < 14), 0.8)
    for width in (1.0, 3.0):
        noise = ndimage.gaussian_filter(
            rng.standard_normal(solid.shape), (width / 2, width, width), mode="wrap"
        )
        noisy = solid + 30 * noise / noise.std()
        yield judged(f"particles, noise blurred by {width:g}", noisy, solid, None, 100.0)


def judged(
    name: str,
    noisy: npt.NDArray[np.generic],
    truth: npt.NDArray[np.float64],
    where: npt.NDArray[np.bool_] | None,
    contrast: float,
) -> Case:
    """Return a case that is judged by its truth in a mask, or everywhere."""
    image = noisy.astype(np.float32)
    stack = image if image.ndim == 3 else image[None]
    mask = np.broadcast_to(np.ones(truth.shape, bool) if where is None else where, stack.shape)
    clean = np.broadcast_to(truth, stack.shape)

    def judge(result: Image) -> dict[str, float]:
        error = square(result, clean, mask)
        shift = float((result - clean)[mask].mean())
        return {
            "psnr": float(10 * np.log10(contrast**2 / error)),
            "error": error**0.5,
            "shift": shift,
        }

    return Case(name, stack, judge, float((stack - clean)[mask].std()), contrast)


def simulated_cases(data: Path) -> Iterator[Case]:
    """Yield the simulated scans."""
    for path in sorted(data.glob("*_*.npz")):
        if path.stem.partition("_")[0] not in ("tuning", "held-out"):
            continue
        scan, reference, core = loaded(path)
        where = np.broadcast_to(core, scan.shape)
        void = (reference < AIR + CONTRAST / 2) & where
        _, n_pores = ndimage.label(void)

        def judge(
            image: Image,
            reference: Image = reference,
            where: npt.NDArray[np.bool_] = where,
            n_pores: int = n_pores,
        ) -> dict[str, float]:
            error = square(image, reference, where)
            _, found = ndimage.label((image < AIR + CONTRAST / 2) & where)
            psnr = float(10 * np.log10(CONTRAST**2 / error))
            return {"psnr": psnr, "pores": found, "true pores": n_pores}

        noise = float((scan - reference)[where].std())
        yield Case(path.stem, scan, judge, noise, CONTRAST)


def square(image: Image, other: Image, where: npt.NDArray[np.bool_]) -> float:
    """Return the mean squared difference of two images in a mask."""
    return float(np.mean((image.astype(np.float64) - other)[where] ** 2))


def denoised(case: Case, variant: Variant, device: str) -> dict[str, Any]:
    """Denoise a case with a variant of the settings, and judge the result."""
    original = Recorruption.of.__func__  # type: ignore[attr-defined]
    measured: list[npt.NDArray[np.float64]] = []

    def stronger(cls: type[Recorruption], model: Any, *arguments: Any) -> Recorruption:
        if measured:
            model = dataclasses.replace(model, autocovariance=measured[0])
        made: Recorruption = original(cls, model, *arguments)
        return dataclasses.replace(made, root=made.root * variant.gain)

    began = time.perf_counter()
    if variant.first_pass:
        first = Variant({**variant.settings, "steps": variant.first_pass}, variant.first_gain)
        measured.append(residual_autocovariance(case, first, device))
    Recorruption.of = classmethod(stronger)  # type: ignore[assignment,method-assign]
    try:
        volume = Volume(np.ascontiguousarray(case.noisy), axes="zyx")
        result = hushpore.denoise(volume, seed=0, device=device, **variant.settings)
    finally:
        Recorruption.of = classmethod(original)  # type: ignore[assignment,method-assign]
    seconds = time.perf_counter() - began
    found = case.judge(np.asarray(result.volume.data))
    record = result.provenance
    model = record.get("noise_model") or {}
    return {
        **{name: round(value, 4) for name, value in found.items()},
        "steps": record["result"]["steps"],
        "input share": round(record["result"]["input_share"], 3),
        "noise found over true": round(model["deviation"] / case.noise, 3) if model else None,
        "method": record["network"]["method"],
        "ended": record["result"]["ended"],
        "filter better": [note for note in result.notes if "comes closer" in note],
        "seconds": round(seconds, 1),
    }


def residual_autocovariance(case: Case, variant: Variant, device: str) -> npt.NDArray[np.float64]:
    """Return the autocovariance of what a short first pass removes inside the sample."""
    kept: list[Image] = []
    judge = lambda image: kept.append(image) or {}  # noqa: E731
    denoised(case._replace(judge=judge), variant, device)
    residual = case.noisy - kept[0]
    sample = find_sample(Volume(case.noisy, axes="zyx"))
    depth, height, width = residual.shape
    mask = np.ones(residual.shape)
    if sample is not None:
        z = np.rint(np.linspace(0, len(sample.mask) - 1, depth)).astype(int)
        y, x = (
            np.arange(n) * m // n
            for n, m in zip((height, width), sample.mask.shape[1:], strict=True)
        )
        mask = sample.mask[np.ix_(z, y, x)].astype(float)
    reach = (min(3, depth // 2), 10, 10)
    values = np.where(mask > 0, residual - residual[mask > 0].mean(), 0)
    shape = [n + r for n, r in zip(residual.shape, reach, strict=True)]
    near = np.ix_(*(np.arange(-r, r + 1) for r in reach))
    sums, pairs = (
        np.fft.irfftn(np.abs(np.fft.rfftn(each, shape)) ** 2, shape)[near]
        for each in (values, mask)
    )
    return np.asarray(sums / np.maximum(pairs, 1.0))


def classical(case: Case) -> dict[str, Any]:
    """Return the best of every classical filter, each tuned with the truth."""
    unit = case.noisy / case.contrast
    sigma = case.noise / case.contrast
    ways: dict[str, list[Callable[[], Image]]] = {
        "noisy": [lambda: unit],
        "gaussian": [
            lambda w=w, z=z: ndimage.gaussian_filter(unit, (z * w, w, w))
            for w in (0.4, 0.6, 0.9, 1.3, 1.8, 2.8, 4, 5.6) for z in (0, 1)
        ],
        "median": [lambda s=s: ndimage.median_filter(unit, (1, s, s)) for s in (3, 5)],
        "total variation": [
            lambda w=w: denoise_tv_chambolle(unit, w)
            for w in (0.5 * sigma, sigma, 1.5 * sigma, 2.5 * sigma)
        ],
        "non-local means": [
            lambda h=h: np.stack(
                [denoise_nl_means(p, patch_size=5, patch_distance=7, h=h * sigma) for p in unit]
            )
            for h in (0.4, 0.7, 1.0)
        ],
    }  # fmt: skip
    found: dict[str, Any] = {}
    for name, each in ways.items():
        scores = [case.judge((way() * case.contrast).astype(np.float32)) for way in each]
        best = min(scores, key=lambda score: score.get("ratio", -score.get("psnr", 0.0)))
        found[name] = {key: round(value, 4) for key, value in best.items()}
    return found


def measure() -> dict[str, Any]:
    """Say how it is run, because its scans are not in the repository."""
    raise MissingError("give the folder of the scans: python -m benchmarks.denoise_real DATA")


def main() -> None:
    """Run the variants on the cases, and write figures after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("denoise_real.json"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="parts of the names of cases, with commas")
    parser.add_argument("--variants", default="default", help="names, with semicolons")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    began = time.perf_counter()
    cases = [*real_cases(given.data), *simulated_cases(given.data), *made_cases(given.data)]
    cases = [c for c in cases if any(part in c.name for part in given.only.split(","))]
    # variant by variant, so that a run that is cut short has compared the first ones everywhere
    for name in given.variants.split(";"):
        for case in cases:
            if time.perf_counter() - began > given.limit:
                return
            found = (
                classical(case) if name == "classical"
                else denoised(case, VARIANTS[name], given.device)
            )  # fmt: skip
            figures.setdefault(case.name, {})[name] = found
            print(case.name, name, found, flush=True)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
