from __future__ import annotations

import xml.etree.ElementTree as ET
from html import escape
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import ndimage

import hushpore
from hushpore import Volume
from hushpore.base.events import Note, result_text
from hushpore.base.formatting import readable_number
from hushpore.base.provenance import fingerprint
from hushpore.pores.flow import Network
from hushpore.pores.forms.tables import FORMS, form_of
from hushpore.runs.report_page import form_section, job_report, pore_page, typeset
from hushpore.runs.result_folder import write_result

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.pores.result import Pores

VOID = {"br", "img", "meta", "hr"}


class Balanced(HTMLParser):
    """Checks that tags close in order, and gathers text and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def page_of(found: Pores, name: str = "bread") -> str:
    import pandas as pd

    profile = found.porosity_profile
    provenance = {
        **result_text(found.headline, found.remarks),
        "jobs": [found.provenance],
        "fingerprints": {"labels": fingerprint(found.labels)},
    }
    place = pd.DataFrame({"position": np.arange(profile.size), "porosity": profile})
    return pore_page(name, provenance, {"pores": found.pores, "profile": place}, b"picture")


@pytest.fixture
def found() -> Pores:
    z, y, x = np.ogrid[:12, :24, :48]
    void = (z - 6) ** 2 + (y - 12) ** 2 + (x % 24 - 12) ** 2 < 25
    return hushpore.segment_pores(Volume(void, spacing=5, unit="um"), edge_pores="remove")


def test_the_page_is_whole_and_loads_nothing(found: Pores) -> None:
    page = page_of(found)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert all(src.startswith(("data:", "#")) for src in parser.sources)
    assert "<script" not in page
    # the plots are well-formed by themselves
    ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_the_page_tells_totals_settings_and_fingerprint(found: Pores) -> None:
    parser = Balanced()
    parser.feed(page_of(found))
    words = parser.words
    assert f"{100 * found.porosity:.1f} %" in words
    assert words[words.index("Pores") + 1] == "2"
    assert fingerprint(found.labels) in words
    row = words.index("Edge pores")
    assert words[row + 1 : row + 3] == ["Exclude", "Keep"]
    assert page_of(found).count("<tr class=changed>") == 1
    assert "Equivalent diameter (µm)" in words


def test_the_page_tells_that_the_scan_changed_while_it_was_worked_on(
    found: Pores, tmp_path: Path
) -> None:
    changed = "The files of bread.tif were changed while they were worked on."
    folder = write_result(tmp_path / "r", [found], found.volume, extra={"notes": [changed]})
    page = Balanced()
    page.feed((folder / "report.html").read_text(encoding="utf-8"))
    assert changed in page.words
    assert set(found.provenance["notes"]) <= set(page.words)


def test_large_numbers_have_no_exponent(found: Pores) -> None:
    other = hushpore.segment_pores(found.volume.replace(found.volume.data, spacing=(5.3,) * 3))
    largest = float(f"{other.pores['volume'].max():.4g}")
    assert largest > 1e4
    assert f"<td class=number>{largest:,.0f}</td>" in page_of(other)


def test_names_are_no_markup(found: Pores) -> None:
    page = page_of(found, "<b>Tom & Jerry</b>")
    assert "<b>" not in page
    assert "&lt;b&gt;Tom &amp; Jerry" in page


def test_a_result_without_pores_has_a_page() -> None:
    page = page_of(hushpore.segment_pores(Volume(np.zeros((4, 6, 6), bool))))
    assert "There are no pores." in page


def test_the_fingerprint_of_a_scan_that_a_cluster_has_read_in_blocks_is_told(found: Pores) -> None:
    given = found.provenance["input"]
    given["blake2b_of_blocks"] = given.pop("blake2b")
    parser = Balanced()
    parser.feed(page_of(found))
    assert given["blake2b_of_blocks"] in parser.words


def test_the_form_of_a_field_has_symbols_with_subscripts(found: Pores) -> None:
    page = "".join(form_section("rock", found.form("rock")))
    assert "<td class=whole>φ</td>" in page
    assert "<td class=whole>d<sub>c,x</sub></td>" in page


def test_remarks_name_flags_and_the_date_is_readable(found: Pores) -> None:
    provenance = found.provenance
    date = "2026-11-27T23:59:50+02:00"
    remarks = [Note("Give a sample mask (sample_mask).", warning=True).to_dict()]
    found.provenance.update({**provenance, "date": date, "remarks": remarks})
    page = page_of(found)
    assert "Give a sample mask (--sample-mask)." in page
    assert "2026-11-27 21:59 UTC" in page


def test_the_residual_of_a_denoising_is_plotted_against_the_noise() -> None:
    noisy = np.random.default_rng(0).normal(100, 20, (2, 32, 32))
    result = hushpore.denoise(noisy, steps=2, patch_size=16, batch_size=2, device="cpu")
    record = {**result_text(result.headline, result.remarks), "jobs": [result.provenance]}
    line = {"frequencies": [0.1], "noise": [1.0], "flat": [1.0], "edges": [2.0]}
    match = {"share": 0.9, "image_lost": 0.1, "noise_left": 0.01, **line}
    for found in (match, None):
        result.provenance["residual"]["match"] = found
        page = job_report(Volume(noisy), result.files(), {**record, "fingerprints": {}})[1][
            "report"
        ]
        assert ("Residual matches noise: 90 % (image lost: 10 %" in page) == (found is not None)
        assert page.count("<svg") == (found is not None)


def forms_of(page: str) -> dict[str, tuple[bool, str]]:
    """Whether each form of a page is open, and its text, by title."""
    found = {}
    for each in page.split('<details name="form"')[1:]:
        opening, _, rest = each.partition(">")
        title = rest[rest.index("<h2>") + 4 : rest.index("</h2>")]
        found[title] = "open" in opening, rest[: rest.index("</details>")]
    return found


@pytest.mark.parametrize(
    "chosen", ["none", "bone", "foam", "casting", "bread", "rock", "electrode"]
)
def test_the_report_holds_all_forms_with_the_chosen_one_open(tmp_path: Path, chosen: str) -> None:
    rng = np.random.default_rng(1)
    grey = ndimage.gaussian_filter(rng.normal(size=(40,) * 3), 2.0, mode="wrap")
    scan = Volume(grey, spacing=2.0, unit="um", name="rock")
    found = hushpore.segment_pores(scan, exterior="keep", threshold=0.0, report_form=chosen)
    folder = write_result(tmp_path / "result", [found], scan)
    page = (folder / "report.html").read_text(encoding="utf-8")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "<script" not in page
    forms = forms_of(page)
    assert list(forms) == [escape(form.title) for form in map(form_of, FORMS)]
    is_open = [title for title, (state, _) in forms.items() if state]
    assert is_open == [escape(form_of(name).title) for name in FORMS if name == chosen]
    assert (folder / "form.csv").is_file() == (chosen != "none")
    # all else is as in the form itself, but what takes time is left out with the reason
    rock = forms[escape(form_of("rock").title)][1]
    has_flow = "Permeability of the network along z</td><td class=whole>" in rock
    assert has_flow == (chosen == "rock")
    electrode = forms[escape(form_of("electrode").title)][1]
    assert ("MacMullin number of the network along z</td><td class=whole>" in electrode) == (
        chosen in ("rock", "electrode")
    )
    reason = "Set Report form to Rock (--report-form rock)."
    assert (reason in rock) == (chosen != "rock")
    for name, form in zip(FORMS, map(form_of, FORMS), strict=True):
        for line in found.form(name).itertuples():
            text = typeset(line.missing or readable_number(line.value, 4))
            shown = f"<td>{typeset(line.name)}</td>"
            assert shown in forms[escape(form.title)][1]
            if name == chosen:
                assert text in forms[escape(form.title)][1]


def test_slow_figures_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    grey = ndimage.gaussian_filter(rng.normal(size=(40,) * 3), 2.0, mode="wrap")
    how = {"exterior": "keep", "threshold": 0.0}
    scan = Volume(grey, spacing=2.0, unit="um")
    found = hushpore.segment_pores(scan, report_form="electrode", **how)
    solved = []
    original = Network.conductance_along

    def counted(self: Network, axis: int, *, hydraulic: bool) -> float:
        solved.append((axis, hydraulic))
        return original(self, axis, hydraulic=hydraulic)

    monkeypatch.setattr(Network, "conductance_along", counted)
    files = found.files()
    assert solved == [(axis, False) for axis in range(3)]
    rock = files.of_report["rock"]().set_index("symbol")
    assert len(solved) == 3
    assert (
        rock.loc["F_net,z", "value"]
        == files.tables["form"].set_index("symbol").loc["N_net,z", "value"]
    )
    assert rock.loc["k_net,z", "missing"].endswith("Set Report form to Rock (--report-form rock).")
    assert np.isfinite(found.form("rock").set_index("symbol").loc["k_net,z", "value"])
    assert len(solved) == 6


def test_a_flat_or_empty_result_has_all_forms(tmp_path: Path) -> None:
    flat = np.zeros((24, 48))
    flat[8:14, 8:20] = 1
    for number, scan in enumerate([flat > 0, np.zeros((6, 8, 8), bool)]):
        volume = Volume(scan)
        folder = write_result(tmp_path / str(number), [hushpore.segment_pores(scan)], volume)
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert len(forms_of(page)) == len(FORMS)
