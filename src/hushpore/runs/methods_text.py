"""A paragraph for the methods section of a paper, made from the record of a pore result."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.errors import InputError
from hushpore.base.formatting import (
    percent_digits,
    readable_count,
    readable_grey,
    readable_number,
    readable_percent,
    readable_unit,
)
from hushpore.jobs import PORE_JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hushpore.base.arrays import Mask

#: Names and sources of global and local thresholds.
_THRESHOLDS = {
    "otsu": ("Otsu's method", "10.1109/TSMC.1979.4310076"),
    "li": ("Li's minimum cross entropy method", "10.1016/0031-3203(93)90115-D"),
    "triangle": ("the triangle method", "10.1177/25.7.70454"),
    "yen": ("Yen's maximum correlation method", "10.1109/83.366472"),
    "isodata": ("the ISODATA method", "10.1109/TSMC.1978.4310039"),
    "minimum": ("the minimum between two modes", "10.1111/j.1749-6632.1965.tb11715.x"),
    "mixture": (
        "the threshold with the share of void of two groups with blurred edges, fitted to the "
        "histogram",
        "10.1109/83.469934",
    ),
    "main peak": (
        "the minimum error threshold beside the main peak of the histogram",
        "10.1016/0031-3203(86)90030-0",
    ),
    "sauvola": ("Sauvola's local threshold", "10.1016/S0031-3203(99)00055-2"),
    "niblack": ("Niblack's local threshold", ""),
}

#: Names and sources of ways to train a denoiser.
_DENOISERS = {
    "r2r": ("Recorrupted-to-Recorrupted", "10.1109/CVPR46437.2021.00208"),
    "n2v2": ("N2V2", "10.1007/978-3-031-25069-9_33"),
    "n2v": ("Noise2Void", "10.1109/CVPR.2019.00223"),
    "n2n": ("Noise2Noise", "10.48550/arXiv.1803.04189"),
}

_SNOW = "10.1103/PhysRevE.96.023307"
_LOCAL_THICKNESS = "10.1046/j.1365-2818.1997.1340694.x"

#: What reviewers ask for that no record holds (Bouxsein et al. 2010, 10.1002/jbmr.141).
_NEVER_KNOWN = (
    "Specimen: preparation, number, scanning medium.",
    "Scanner: manufacturer and model, tube voltage and current, filter, focal spot.",
    "Acquisition: exposure time, number and range of projections, detector binning.",
    "Reconstruction: software, filter, corrections of beam hardening and rings.",
    "Spatial resolution, which is larger than the voxel size.",
    "Place and size of the region of interest in the specimen.",
)


@dataclass(frozen=True)
class MethodsText:
    """A paragraph, its references, and what it does not say.

    Attributes
    ----------
    paragraph : str
        Ready to paste.
    references : tuple of str
        DOIs of the methods, in the order in which they are cited.
    missing : tuple of str
        What reviewers ask for that the record does not hold.
    """

    paragraph: str
    references: tuple[str, ...]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        """All of it as plain text."""
        cited = "\n".join(
            f"[{n}] https://doi.org/{doi}" for n, doi in enumerate(self.references, 1)
        )
        asked = "\n".join(f"- {each}" for each in self.missing)
        return f"{self.paragraph}\n\n{cited}\n\nNot in the record, to be added:\n{asked}\n"


@dataclass
class _Writer:
    """Collects sentences and numbers sources in the order in which they are cited."""

    sentences: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    def cite(self, doi: str) -> str:
        """Return the mark of a source, with a space before it; empty without a DOI."""
        if not doi:
            return ""
        if doi not in self.references:
            self.references.append(doi)
        return f" [{self.references.index(doi) + 1}]"


def methods_text(provenance: Mapping[str, Any], touches_border: Mask | None = None) -> MethodsText:
    """Return the methods of a pore result in a paragraph.

    Parameters
    ----------
    provenance : mapping
        As ``result.json`` has it; the last of its ``jobs`` is the segmentation.
    touches_border : numpy.ndarray, optional
        (pores,), bool: the column of this name; without it the text does not say how many pores are
        cut by faces of the volume.

    Returns
    -------
    MethodsText
        The paragraph, its references, and what the record does not hold.

    Raises
    ------
    InputError
        If the last job is not a segmentation of pores.
    """
    jobs = provenance["jobs"]
    if jobs[-1]["job"] not in PORE_JOBS:
        raise InputError("The methods paragraph is that of a pore result; this is another one.")
    made = jobs[-1]
    writer = _Writer()
    for sentences in (
        _scan(jobs[0], provenance.get("source") or {}),
        *(_denoising(job, writer) for job in jobs[:-1] if job["job"] == "denoise"),
        *([_labels(made)] if made["job"] == "measure" else [_threshold(made, writer)]),
        _exterior(made),
        *([] if made["job"] == "measure" else [_splitting(made, writer)]),
        _excluded(made),
        _counts(made, touches_border),
        _measures(made, writer),
        _uncertainty(made),
        _software(made),
    ):
        writer.sentences += sentences
    missing = (*_unknown(made), *_NEVER_KNOWN)
    return MethodsText(" ".join(writer.sentences), tuple(writer.references), missing)


def methods_section(provenance: Mapping[str, Any], touches_border: Mask) -> Iterator[str]:
    """Yield the methods paragraph as elements of a page; parameters as for `methods_text`."""
    text = methods_text(provenance, touches_border)
    cited = " · ".join(f"[{n}] https://doi.org/{doi}" for n, doi in enumerate(text.references, 1))
    asked = "".join(f"<li>{html.escape(each)}</li>" for each in text.missing)
    yield "<h2>Methods, ready to paste</h2>"
    yield f"<p>{html.escape(text.paragraph)}</p>"
    yield f'<p class="faint">{html.escape(cited)}</p>'
    yield "<p>Reviewers also ask for the following, which the record does not hold:</p>"
    yield f"<ul>{asked}</ul>"


def _scan(job: Mapping[str, Any], source: Mapping[str, Any]) -> Iterator[str]:
    given = job["input"]
    shape = " x ".join(str(each) for each in given["shape"])
    sizes = [f"{step:.4g}" for step in given["spacing"]]
    size = sizes[0] if len(set(sizes)) == 1 else " x ".join(sizes)
    known = given["unit"] != "pixel"
    voxels = "voxels" if len(given["spacing"]) == 3 else "pixels"
    of_size = f" of {size} {readable_unit(given['unit'])}" if known else ""
    resampled = ", resampled to even slices" if source.get("resample") else ""
    yield f"The scan had {shape} {voxels}{of_size} ({given['dtype']}){resampled}."


def _denoising(job: Mapping[str, Any], writer: _Writer) -> Iterator[str]:
    settings, network = job["settings"], job.get("network", {})
    method = "n2n" if settings.get("pair") else network.get("method", settings.get("method"))
    name, doi = _DENOISERS.get(method, ("a network trained on the scan itself", ""))
    steps = job.get("result", {}).get("steps")
    trained = f", {steps:,} training steps" if steps else ""
    yield (
        f"It was denoised by {name}{writer.cite(doi)} with a network trained on the scan itself "
        f"({network.get('dimensions', settings.get('dimensions'))}D{trained}, seed "
        f"{settings.get('seed')})."
    )


def _threshold(job: Mapping[str, Any], writer: _Writer) -> Iterator[str]:
    settings, found = job["settings"], job["result"]
    chosen, value = settings["threshold"], found.get("threshold")
    side = "at or below" if found.get("pores_are", settings["pores_are"]) == "dark" else "above"
    if chosen == "auto":
        groups = found.get("threshold_groups") or {"method": "otsu"}
        chosen = groups["method"]
    if isinstance(chosen, str):
        name, doi = _THRESHOLDS.get(chosen, (chosen, ""))
        if chosen in ("sauvola", "niblack"):
            yield (
                f"Void was segmented by {name}{writer.cite(doi)} with a window of "
                f"{settings['local_window']} voxels and k = {settings['sauvola_k']:g}."
            )
        elif value is not None:
            yield (
                f"Voxels {side} a grey value of {readable_grey(value)} were segmented as void; the "
                f"threshold was found by {name}{writer.cite(doi)}."
            )
        else:
            yield "The input was a binary image of the void."
    else:
        yield (
            f"Voxels {side} a grey value of {readable_grey(float(chosen))}, set by hand, were "
            "segmented as void."
        )
    if settings["hysteresis"] is not None:
        yield (
            "Connected components were kept only if a voxel passed the stricter threshold of "
            f"{readable_grey(settings['hysteresis'])}."
        )
    if settings["pore_type"] != "all":
        yield f"Only {settings['pore_type']} void was analysed."


def _labels(job: Mapping[str, Any]) -> Iterator[str]:
    yield "Pores were segmented with another program and measured as labelled."


def _exterior(job: Mapping[str, Any]) -> Iterator[str]:
    settings, found = job["settings"], job["result"]
    share = found.get("exterior_share", 0.0)
    if settings["sample_mask"]:
        yield "The sample was delimited by a mask."
    elif share:
        yield (
            f"Air around the sample ({readable_percent(share)} of the volume) was excluded with a "
            f"rolling ball of a radius of {found['ball_radius']:g} voxels; porosity is a fraction "
            "of the sample."
        )


def _splitting(job: Mapping[str, Any], writer: _Writer) -> Iterator[str]:
    settings, found = job["settings"], job["result"]
    start = "Void was split into pores by a watershed of its exact Euclidean distance map"
    if settings["markers"]:
        yield f"{start}, grown from markers."
    elif settings["merging"] == "snow":
        yield f"{start}, from the peaks of the SNOW algorithm{writer.cite(_SNOW)}."
    else:
        height = found.get("merge_height")
        chosen = "chosen from the typical pore radius" if settings["merge_height"] == "auto" else (
            "set by hand"
        )  # fmt: skip
        yield (
            f"{start}; basins were merged if the radius of the neck was less than {height:.2g} "
            f"voxels ({chosen}) below that of the smaller pore."
        )


def _excluded(job: Mapping[str, Any]) -> Iterator[str]:
    settings = job["settings"]
    least, edge = job["result"].get("minimum_voxels", 1), settings["edge_pores"]
    if least > 1:
        yield f"Pores of fewer than {least} voxels were excluded."
    if edge == "remove":
        yield "Pores cut by faces of the volume were excluded."
    elif edge == "sizes":
        yield "Pores cut by faces of the volume were excluded from the size statistics."


def _counts(job: Mapping[str, Any], touches: Mask | None) -> Iterator[str]:
    found = job["result"]
    count, unit = found["count"], readable_unit(found["unit"])
    cut = ""
    if touches is not None and count:
        number = int(np.count_nonzero(touches))
        share = readable_percent(number / count)
        cut = f", {number:,} of them ({share}) cut by faces of the volume"
    yield (
        f"The porosity was {percent_digits(found['porosity'])} %, with "
        f"{readable_count(count, 'pore')}{cut}."
    )
    if count:
        median = readable_number(found["median_diameter"])
        yield f"The median equivalent diameter was {median} {unit}."


def _measures(job: Mapping[str, Any], writer: _Writer) -> Iterator[str]:
    thick = job["settings"]["local_thickness"]
    if thick != "none":
        of = {"void": "the pores", "solid": "the solid", "both": "pores and solid"}[thick]
        yield f"Thickness is the mean local thickness of {of}{writer.cite(_LOCAL_THICKNESS)}."


def _uncertainty(job: Mapping[str, Any]) -> Iterator[str]:
    found = job["result"]
    if "porosity_low" not in found:
        return
    low, high = (percent_digits(found[f"porosity_{end}"]) for end in ("low", "high"))
    yield (
        f"The 90 % uncertainty interval of the porosity was {low} to {high} %, from equally "
        "plausible thresholds and merge heights and from sub-volumes."
    )
    if found.get("rev_edge_length") is not None:
        edge, unit = readable_number(found["rev_edge_length"]), readable_unit(found["unit"])
        yield f"Cubes with an edge of {edge} {unit} were representative (REV)."


def _software(job: Mapping[str, Any]) -> Iterator[str]:
    versions = job["versions"]
    used = ", ".join(
        f"{name} {versions[key]}"
        for name, key in (("Python", "python"), ("NumPy", "numpy"), ("PyTorch", "torch"))
        if key in versions
    )
    yield f"Analysis was done with hushpore {job['hushpore']} ({used})."


def _unknown(job: Mapping[str, Any]) -> Iterator[str]:
    """Yield what this record could hold, and does not."""
    if job["input"]["unit"] == "pixel":
        yield "Voxel size (--voxel-size)."
    if job["job"] == "measure":
        yield "How the labels were made."
        return
    if not isinstance(job["settings"]["threshold"], str):
        yield "Why the threshold was set to this value."
    if "porosity_low" not in job["result"]:
        yield "Uncertainty intervals and representative volume (--intervals)."
