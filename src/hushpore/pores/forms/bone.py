"""Trabecular bone: the variables of Bouxsein et al. (2010), with pores as marrow."""

from __future__ import annotations

from functools import partial

from hushpore.pores.forms.entries import (
    Entry,
    Findings,
    Form,
    NotMeasuredError,
    not_measured,
    value_of,
)
from hushpore.pores.topology import solid_euler

_NO_CORTEX = (
    "Cortical and trabecular bone are not separated. Segment the scan with a mask of the cortex "
    "(Sample mask, --sample-mask)."
)


def _surface_in_total(findings: Findings) -> float:
    findings.require_all_void()
    return findings.total("specific_surface")


def _connectivity_density(findings: Findings) -> float:
    findings.require_3d()
    findings.require_all_void()
    if findings.totals.get("exterior_share"):
        raise NotMeasuredError(
            "Counted in a volume that is all sample; here its surroundings were excluded. Crop the "
            "scan to the region of interest."
        )
    if findings.void is None:
        raise NotMeasuredError("Not counted on a cluster. Segment the scan on one machine.")
    euler_number = int(findings.total("euler_number"))
    faces_only = findings.settings.connectivity == "faces"
    how = partial(solid_euler, findings.void, euler_number, faces_only=faces_only)
    return findings.once("solid_euler", how).connectivity / findings.sample


def _anisotropy(findings: Findings) -> float:
    findings.require_all_void()
    return 1 / (1 - findings.total("anisotropy", "There are no walls to be crossed."))


def _over_bone(findings: Findings) -> float:
    findings.require_all_void()
    return findings.total("solid_specific_surface", "There is no bone.")


BONE = Form(
    "Trabecular bone (Bouxsein et al. 2010)",
    "https://doi.org/10.1002/jbmr.141",
    (
        Entry("TV", "Total volume", lambda f: f.sample, "Volume of the sample.", 3),
        Entry(
            "BV", "Bone volume", lambda f: f.sample * value_of(f.solid_share),
            "Volume of the solid of the sample.", 3,
        ),
        Entry(
            "BS", "Bone surface", lambda f: f.sample * _surface_in_total(f),
            "Surface between solid and pores inside the volume, a Crofton estimate over 13 "
            "directions; the guideline's is that of a mesh. Cuts by the faces do not count.", 2,
        ),
        Entry(
            "BV/TV", "Bone volume fraction", lambda f: f.solid_share,
            "Solid over sample volume: 1 less all void, whatever pores are left out of tables.",
            is_share=True,
        ),
        Entry("BS/TV", "Bone surface density", _surface_in_total, "BS over TV.", -1),
        Entry("BS/BV", "Specific bone surface", _over_bone, "BS over BV.", -1),
        Entry(
            "Conn.D", "Connectivity density", _connectivity_density,
            "1 less the Euler number that the volume adds to that of the bone, over TV (Odgaard "
            "and Gundersen 1993). Solid is connected over the faces of voxels, pores over 26 "
            "neighbours; other programs do it the other way round.", -3,
        ),
        Entry(
            "SMI", "Structure model index",
            not_measured(
                "Falsified by concave surfaces, which bone has (10.3389/fendo.2015.00162); see the "
                "plate-rod index."
            ),
            "",
        ),
        Entry(
            "Tb.N", "Trabecular number",
            lambda f: 1 / (f.thickness("solid_thickness") + f.thickness("void_thickness")),
            "1 / (Tb.Th + Tb.Sp); the guideline's is 1 over the mean distance between the middle "
            "axes of trabeculae, the same for parallel plates.", -1,
        ),
        Entry(
            "Tb.Th", "Trabecular thickness", lambda f: f.thickness("solid_thickness"),
            "Mean local thickness of the solid (largest ball), without a model.", 1,
        ),
        Entry(
            "Tb.Th.SD", "Standard deviation of Tb.Th",
            lambda f: f.thickness("solid_thickness_deviation"),
            "Standard deviation of the local thickness over all voxels of the solid.", 1,
        ),
        Entry(
            "Tb.Sp", "Trabecular separation", lambda f: f.thickness("void_thickness"),
            "Mean local thickness of the pores (largest ball).", 1,
        ),
        Entry(
            "Tb.Sp.SD", "Standard deviation of Tb.Sp",
            lambda f: f.thickness("void_thickness_deviation"),
            "Standard deviation of the local thickness over all voxels of the pores.", 1,
        ),
        Entry(
            "DA", "Degree of anisotropy", _anisotropy,
            "Longest over shortest axis of the ellipsoid of mean intercept lengths, 1 if "
            "isotropic; in the totals it is 1 less its reciprocal.",
        ),
        Entry(
            "Tb.Th (plates)", "Trabecular thickness, plate model", lambda f: 2 / _over_bone(f),
            "2 / (BS/BV); for comparison with older work.", 1,
            reference="https://doi.org/10.1172/JCI111096",
        ),
        Entry(
            "Tb.N (plates)", "Trabecular number, plate model", lambda f: _surface_in_total(f) / 2,
            "(BS/TV) / 2; for comparison with older work.", -1,
            reference="https://doi.org/10.1172/JCI111096",
        ),
        Entry(
            "Tb.Th BS/BV", "Plate-rod index",
            lambda f: f.thickness("solid_thickness") * _over_bone(f),
            "Tb.Th times BS/BV: 2 for plates, 4 for round rods, 6 for balls.",
            reference="https://doi.org/10.1172/JCI111096",
        ),
        Entry("Ct.Ar", "Cortical bone area", not_measured(_NO_CORTEX), "", 2),
        Entry("Ct.Th", "Cortical thickness", not_measured(_NO_CORTEX), "", 1),
        Entry(
            "vBMD, TMD", "Bone mineral densities",
            not_measured(
                "Grey values are not calibrated; it takes a hydroxyapatite phantom in the scan."
            ),
            "", unit="mg HA/cm^3",
        ),
    ),
)  # fmt: skip
