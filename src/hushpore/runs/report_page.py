"""The report of a result as one HTML file: pictures, figures, settings, and how it was made.

Nothing in it is loaded from elsewhere, and it prints as it is shown.
"""

from __future__ import annotations

import base64
import html
import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.events import Note
from hushpore.base.formatting import readable_number, readable_unit
from hushpore.figures.drawing import (
    PAPER,
    add_legend,
    add_plots,
    bins_for,
    draw_noise_match,
    draw_rev,
    draw_rising,
    draw_sizes,
    draw_transport,
    edges_of,
    frame,
    map_picture,
    new_figure,
    noise_match_in_words,
    phase_picture,
    pore_picture,
    size_table,
    svg,
)
from hushpore.jobs import JOBS
from hushpore.pores.forms.tables import FORMS, form_of
from hushpore.pores.phases.measures import CONTACTS, PHASES
from hushpore.pores.phases.result import COLOURS
from hushpore.pores.tables.measures import PORES, summarised
from hushpore.pores.tables.totals import totals_in_words
from hushpore.pores.transport.result import MAPS, is_map, map_title, without_transport
from hushpore.runs.methods_text import methods_section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd

    from hushpore.base.events import ResultFiles
    from hushpore.base.settings import Option
    from hushpore.base.volume import Volume
    from hushpore.pores.tables.measures import Measure


# names of Greek letters as whole words, and subscripts of one letter: tau_g,z; d_50
_GREEK = {
    "alpha": "α", "eps": "ε", "phi": "φ", "psi": "ψ", "Psi": "Ψ", "rho": "ρ", "sigma": "σ",
    "tau": "τ",
}  # fmt: skip
_GREEK_NAME = re.compile(rf"(?<![A-Za-z_])({'|'.join(_GREEK)})(?![A-Za-z])")
_SUBSCRIPT = re.compile(r"(?<![^\W_])([^\W\d_])_(\w+(?:,\w)?)")

# columns that are not wrapped
_ON_ONE_LINE = ("Symbol", "Value", "90 % interval", "Unit")


def form_section(name: str, table: pd.DataFrame | None, *, narrow: bool = False) -> Iterable[str]:
    """Yield the form as HTML: a table of what was found, and a list of what was not.

    Parameters
    ----------
    name : str
        Value of the setting ``report_form``.
    table : pandas.DataFrame, optional
        As `hushpore.pores.result.Pores.form` returns it; None: nothing is yielded.
    narrow : bool, default: False
        Whether each row is a paragraph, for a width of 250 pixels, instead of a line of a table.

    Yields
    ------
    str
        Elements of a page.
    """
    if table is None or name not in FORMS:
        return
    form = form_of(name)
    found, missing = table[table["missing"] == ""], table[table["missing"] != ""]
    with_ends = bool(found["low"].notna().any())
    heads = ["Symbol", "Name", "Value", *(["90 % interval"] if with_ends else []), "Unit",
             "Definition"]  # fmt: skip
    rows = [
        [
            line.symbol, line.name, readable_number(line.value, 4),
            *([_ends(line.low, line.high)] if with_ends else []), _unit(line.unit), line.definition,
        ]
        for line in found.itertuples(index=False)
    ]  # fmt: skip
    yield f"<h2>{html.escape(form.title)}</h2>"
    yield _form_table(heads, rows, narrow)
    others = sorted(set(table["reference"]) - {form.reference})
    yield f'<p class="faint">{html.escape("; ".join([form.reference, *others]))}</p>'
    if len(missing):
        yield "<h3>Not in this scan</h3>"
        yield _form_table(
            ["Symbol", "Name", "Reason"],
            [[line.symbol, line.name, line.missing] for line in missing.itertuples(index=False)],
            narrow,
        )


def limits_section(table: pd.DataFrame | None) -> Iterable[str]:
    """Yield the figures with acceptance limits as an HTML section; nothing without limits."""
    if table is None:
        return
    heads = ["Symbol", "Name", "Value", "90 % interval", "Unit", "Limits", "Verdict", "Reason"]
    rows = []
    numbers = dict.fromkeys(("value", "low", "high", "min", "max"), float)
    for line in table.astype(numbers).itertuples():
        limits = {"at least": line.min, "at most": line.max}
        accepted = [f"{word} {end:g}" for word, end in limits.items() if not math.isnan(end)]
        value = "" if math.isnan(line.value) else readable_number(line.value, 4)
        cells = [line.symbol, line.name, value, _ends(line.low, line.high), _unit(line.unit)]
        rows.append([*cells, ", ".join(accepted), line.verdict, line.reason])
    yield "<h2>Acceptance limits</h2>"
    yield _form_table(heads, rows)


def form_choice(chosen: str, tables: Mapping[str, pd.DataFrame]) -> Iterable[str]:
    """Yield forms as HTML sections of which one is open at a time, without a script.

    Parameters
    ----------
    chosen : str
        Name of the form that is open at first; another value: none.
    tables : mapping of str to pandas.DataFrame
        By name of the form, as `hushpore.pores.result.Pores.form` returns them.

    Yields
    ------
    str
        Elements of a page; nothing without tables.
    """
    if len(tables) > 1:
        yield (
            '<p class="faint choice">Results as a field reports them. Open one form; only the open '
            "one is printed.</p>"
        )
    for name in FORMS:
        if name in tables:
            title, *parts = form_section(name, tables[name])
            state = " open" if name == chosen else ""
            yield f'<details name="form"{state}><summary>{title}</summary>'
            yield from parts
            yield "</details>"


def _ends(low: float, high: float) -> str:
    if math.isnan(low):
        return ""
    return f"{readable_number(low, 4)} to {readable_number(high, 4)}"


def _unit(unit: str) -> str:
    length, _, power = unit.partition("^")
    return readable_unit(length, int(power or 1)) if length.isalpha() else unit


def _form_table(heads: Iterable[str], rows: Iterable[Iterable[str]], narrow: bool = False) -> str:
    if narrow:
        return "".join(map(_paragraph, rows))
    heads = list(heads)
    kinds = [" class=whole" if head in _ON_ONE_LINE else "" for head in heads]

    def line(cells: Iterable[str], tag: str) -> str:
        return "".join(
            f"<{tag}{kind}>{typeset(str(cell))}</{tag}>"
            for cell, kind in zip(cells, kinds, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(heads, 'th')}</tr>{body}</table>"


def _paragraph(row: Iterable[str]) -> str:
    """Return a row of a form as a paragraph: its name, symbol and value, and definition."""
    symbol, name, *figures, last = (typeset(str(cell)) for cell in row)
    value = " ".join([symbol, *(["=", *figures] if figures else [])])
    return f"<p><b>{name}</b><br>{value}<br><i>{last}</i></p>"


def typeset(text: str) -> str:
    """Return a text as HTML with the symbols of the forms in Greek letters and subscripts.

    >>> typeset("rho/rho_s"), typeset("tau_g,z"), typeset("N(d>=0.1)"), typeset("drainage.csv")
    ('ρ/ρ<sub>s</sub>', 'τ<sub>g,z</sub>', 'N(d≥0.1)', 'drainage.csv')
    """
    greek = _GREEK_NAME.sub(lambda found: _GREEK[found[1]], text.replace(">=", "≥"))
    return _SUBSCRIPT.sub(r"\1<sub>\2</sub>", html.escape(greek))


#: Pores that are listed.
_LARGEST = 10

#: Inches of the plots of a page.
_SIZE = 11, 3.1

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p.headline { font-size: 1.1rem; font-weight: 600; margin: .3rem 0; }
p.faint, caption { color: #5b6875; }
img, svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .9rem; margin: .3rem 0 1rem; }
th, td { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #e4e7eb; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.changed td { font-weight: 600; } td { overflow-wrap: anywhere; }
td.whole { overflow-wrap: normal; white-space: nowrap; } sub { line-height: 0; }
ul.remarks { padding-left: 1.2rem; }
details { border-bottom: 1px solid #e4e7eb; } summary { cursor: pointer; padding: .2rem 0; }
summary h2 { display: inline; } details[open] { padding-bottom: .5rem; }
details td { overflow-wrap: normal; }
@media print { body { margin: 0; max-width: none; font-size: 10.5pt; }
  details:not([open]), p.choice { display: none; } summary { list-style: none; }
  table, img, svg, tr { break-inside: avoid; } details table { break-inside: auto; }
  h2 { break-after: avoid; } }
"""


def job_report(
    before: Volume, files: ResultFiles, provenance: Mapping[str, Any]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the figures and pages of the result of any job.

    `files`: what is written of the results. `provenance`: as ``result.json`` has it.
    Returns: by name, as `hushpore.io.results.write_results` takes them.
    """
    return {}, {"report": _page(before.name, provenance)}


def pore_report(
    before: Volume, files: ResultFiles, provenance: Mapping[str, Any]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the figures and pages of a pore result; parameters as for `job_report`."""
    picture = pore_picture(
        before,
        files.images.get("denoised"),
        files.images["labels"],
        files.tables["pores"]["equivalent_diameter"].to_numpy(),
        title=provenance["headline"],
    )
    forms = {name: table() for name, table in files.of_report.items()}
    solved = _transport(files)
    page = pore_page(before.name, provenance, files.tables, picture, forms, solved)
    return {"report": picture}, {"report": page}


def pore_page(
    name: str,
    provenance: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    picture: bytes,
    other_forms: Mapping[str, pd.DataFrame] | None = None,
    solved: Iterable[str] = (),
) -> str:
    """Return the report of a pore result as one HTML page.

    `provenance`: as ``result.json`` has it; the last of its ``jobs`` is the segmentation. `tables`:
    ``pores`` and ``profile``. `picture`: PNG file of slices, see
    `hushpore.figures.drawing.pore_picture`. `other_forms`: tables of the forms beside the chosen
    one, which is ``form`` of `tables`, by name. `solved`: the section about transport.
    Returns: the page; pictures are part of it.
    """
    made = provenance["jobs"][-1]
    unit = readable_unit(made["input"]["unit"])
    titles = _titles(tables["pores"], made["input"])
    chosen, table = str(made["settings"].get("report_form", "none")), tables.get("form")
    forms = {**({} if table is None else {chosen: table}), **(other_forms or {})}
    return _page(
        name,
        provenance,
        [_picture("Slices before and after, and pore sizes", picture)],
        [
            *limits_section(tables.get("limits")),
            *form_choice(chosen, forms),
            "<h2>Totals</h2>",
            _table(totals_in_words(made["result"])),
            f'<p class="faint">{_text(made["result"].get("merged_by", {}).get("why", ""))}</p>',
            "<h2>Distributions</h2>",
            _plots(tables["pores"], tables["profile"], unit),
            *_rev(tables.get("rev"), made["result"], unit),
            *solved,
            "<h2>Pores</h2>",
            _spread(tables["pores"], titles),
            _largest(tables["pores"], titles),
            *methods_section(provenance, tables["pores"]["touches_border"].to_numpy(bool)),
        ],
    )


def phase_report(
    before: Volume, files: ResultFiles, provenance: Mapping[str, Any]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the figures and pages of a measurement of phases; parameters as for `job_report`."""
    phases, contacts = files.tables["phases"], files.tables["contacts"]
    named = list(phases["name"]), phases["share"].to_numpy(np.float64), COLOURS
    title = provenance["headline"]
    picture = phase_picture(before, files.images["phases"], *named, title=title)
    given = provenance["jobs"][-1]["input"]
    findings = [
        "<h2>Phases</h2>",
        _measures(phases, PHASES, given),
        "<h2>Contacts</h2>",
        _measures(contacts, CONTACTS, given) if len(contacts) else "<p>No two phases touch.</p>",
        *_transport(files, provenance["jobs"][-1]["result"]),
    ]
    shown = _picture("A slice, its phases, and their shares", picture)
    return {"report": picture}, {"report": _page(before.name, provenance, [shown], findings)}


def _transport(files: ResultFiles, totals: Mapping[str, Any] | None = None) -> Iterable[str]:
    """Yield slices of the flux and the profiles of transport; nothing where it was not solved.

    `totals`: a record, for its totals of transport in a table.
    """
    maps = {map_title(name): volume for name, volume in files.images.items() if is_map(name)}
    if not maps:
        return
    yield "<h2>Transport in voxels</h2>"
    if totals is not None:
        names = without_transport(totals)
        rows = {
            name: value for name, value in totals.items() if name not in names or name == "unit"
        }
        yield _table(totals_in_words(rows))
    yield "<p>Local flux over its mean along the axis, in the middle slice.</p>"
    for kind in MAPS.values():
        if own := {title: volume for title, volume in maps.items() if title.startswith(kind)}:
            yield _picture(f"Slices of the {kind}", map_picture(own))
    unit = readable_unit(next(iter(maps.values())).unit)
    figure = new_figure(_SIZE[0] / 2, _SIZE[1])
    draw_transport(add_plots(figure, 1)[0], files.tables["transport"], unit, PAPER)
    yield svg(figure)


def _measures(
    table: pd.DataFrame, measures: Iterable[Measure[Any]], given: Mapping[str, Any]
) -> str:
    """All of a table, with its names first; what was not measured is left out."""
    names = [column for column in table if str(column).startswith("name")]
    known = [each for each in measures if table[each.name].notna().any()]
    known = [each for each in known if not each.name.startswith("phase")]
    titles = [each.titled(given["unit"], len(given["spacing"])) for each in known]
    rows = [
        [*(str(row[name]) for name in names), *(_number(row[each.name]) for each in known)]
        for _, row in table.iterrows()
    ]
    head = [*("phase" for _ in names), *titles]
    return _grid([each[:1].upper() + each[1:] for each in head], rows)


def _picture(what: str, picture: bytes) -> str:
    """Return a PNG file as part of a page."""
    inside = base64.b64encode(picture).decode("ascii")
    return f'<img alt="{what}" src="data:image/png;base64,{inside}">'


def _page(
    name: str,
    provenance: Mapping[str, Any],
    pictures: Iterable[str] = (),
    findings: Iterable[str] = (),
) -> str:
    """Return the page of any result, with what is its own between notes and settings."""
    made = provenance["jobs"][-1]
    as_flags = JOBS[made["job"]].settings.as_flags
    remarks = [as_flags(Note.of_dict(remark).with_flags) for remark in provenance["remarks"]]
    date = f"{datetime.fromisoformat(made['date']).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    # a scan that changed during the run bears on all that follows
    of_all = [
        *provenance.get("notes", []),
        *(n for job in provenance["jobs"] for n in job["notes"]),
    ]
    of_results = {remark["text"] for remark in provenance["remarks"]}
    notes = [note for note in dict.fromkeys(of_all) if note not in of_results]
    parts = [
        f"<h1>{_text(name)}</h1>",
        f'<p class="headline">{_text(provenance["headline"])}</p>',
        _list(remarks),
        f'<p class="faint">{date} · hushpore {_text(made["hushpore"])}</p>',
        *pictures,
    ]
    if notes:
        parts += ["<h2>Notes on the scan</h2>", _list(notes)]
    parts += [*_residual(provenance), *findings]
    for job in provenance["jobs"]:
        parts += [f"<h2>Settings: {_text(JOBS[job['job']].title)}</h2>", _settings(job)]
    parts += ["<h2>How it was made</h2>", _table(_provenance(provenance))]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{_text(name)}: {_text(made['job'])}</title><style>{_STYLE}</style></head>"
    )
    return f"{head}\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"


def _residual(provenance: Mapping[str, Any]) -> Iterable[str]:
    """Compare the residual of a denoising with the noise; nothing without one."""
    for job in provenance["jobs"]:
        if match := job.get("residual", {}).get("match"):
            figure = new_figure(_SIZE[0] / 2, _SIZE[1])
            draw_noise_match(add_plots(figure, 1)[0], match, PAPER)
            yield "<h2>Denoising: the residual</h2>"
            yield f"<p>{_text(noise_match_in_words(match))}</p>"
            yield svg(figure)


def _list(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f'<ul class="remarks">{items}</ul>' if sentences else ""


def _titles(pores: pd.DataFrame, given: Mapping[str, Any]) -> dict[str, str]:
    """Return titles of the columns that tell something of the whole, by their names."""
    titles = {
        name: each.titled(given["unit"], len(given["spacing"]))
        for name, each in summarised(PORES, pores).items()
    }
    return {name: title[0].upper() + title[1:] for name, title in titles.items()}


def _spread(pores: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """Quartiles of the main columns."""
    levels = {"smallest": 0, "lower quartile": 0.25, "median": 0.5, "upper quartile": 0.75,
              "largest": 1}  # fmt: skip
    rows = []
    for column, title in titles.items():
        values = pores[column].to_numpy(np.float64)
        # without solid, a pore has no largest ball
        values = values[np.isfinite(values)]
        if values.size:
            found = [_number(value) for value in np.quantile(values, list(levels.values()))]
            rows.append([title, *found, _number(values.mean())])
    return _grid(["", *levels, "mean"], rows) if rows else "<p>There are no pores.</p>"


def _largest(pores: pd.DataFrame, titles: Mapping[str, str]) -> str:
    top = pores.nlargest(_LARGEST, "volume")
    if top.empty:
        return ""
    rows = [
        [str(int(row["label"])), *(_number(row[name]) for name in titles)]
        for _, row in top.iterrows()
    ]
    caption = f"The {len(top)} largest of {len(pores):,}; all are in pores.csv."
    return _grid(["Label", *titles.values()], rows, caption)


def _settings(job: Mapping[str, Any]) -> str:
    """All settings as the form has them; those that are not the default stand out."""
    rows = []
    for opt in JOBS[job["job"]].settings.options():
        if opt.name in job["settings"]:
            value = job["settings"][opt.name]
            cells = [opt.label, _value(opt, value), _value(opt, opt.default)]
            rows.append((cells, value != opt.default))
    body = "".join(
        f"<tr{' class=changed' if changed else ''}>"
        + "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        + "</tr>"
        for cells, changed in rows
    )
    return f"<table><tr><th>Setting</th><th>Value</th><th>Default</th></tr>{body}</table>"


def _provenance(provenance: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    first, made = provenance["jobs"][0], provenance["jobs"][-1]
    given = first["input"]
    shape = " x ".join(str(length) for length in given["shape"])
    spacing = " x ".join(f"{step:.6g}" for step in given["spacing"])
    yield "Read from", given["source"] or "memory"
    yield "Input", f"{shape} · {spacing} {readable_unit(given['unit'])} · {given['dtype']}"
    if given.get("scanner"):
        yield "Scanner", ", ".join(_scanner_settings(given["scanner"]))
    # of the whole, or of its blocks on a cluster
    (digest,) = (value for name, value in given.items() if name.startswith("blake2b"))
    yield "Fingerprint of the input", digest
    for name, digest in provenance.get("fingerprints", {}).items():
        yield f"Fingerprint of {name}", digest
    for job in provenance["jobs"]:
        seconds = sum(job["timings"].values())
        yield JOBS[job["job"]].title, f"{seconds:.1f} s on {job['device']}"
    yield "Versions", ", ".join(f"{name} {is_}" for name, is_ in made["versions"].items())
    yield "Computer", made["platform"]


def _scanner_settings(settings: Mapping[str, Any]) -> Iterable[str]:
    """Yield the settings of a scanner in words: ``filter Al 0.5 mm``, ``voltage 80 kV``."""
    units = {"kv": "kV", "ua": "µA", "ms": "ms", "deg": "°", "mm": "mm"}
    for name, value in settings.items():
        words = name.split("_")
        if isinstance(value, str):
            yield value if name == "scanner" else f"{' '.join(words)} {value}"
        else:
            yield f"{' '.join(words[:-1])} {value:g} {units.get(words[-1], words[-1])}"


def _plots(pores: pd.DataFrame, profile: pd.DataFrame, unit: str) -> str:
    """Size distribution, cumulative shares, and porosity by slice, as SVG."""
    figure = new_figure(*_SIZE)
    sizes, rising, slices = add_plots(figure, 3)
    diameter = pores["equivalent_diameter"].to_numpy(np.float64)
    volume = pores["volume"].to_numpy(np.float64)
    length = f"equivalent diameter ({unit})"
    frame(sizes, length, "share (%)")
    frame(rising, length, "up to this size (%)")
    frame(slices, f"position ({unit})", "porosity (%)")
    if diameter.size:
        weights = {"by number": np.ones_like(volume), "by volume": volume}
        samples = {name: (diameter, weight) for name, weight in weights.items()}
        table = size_table(samples, bins=bins_for(diameter.size))
        for (name, weight), colour in zip(weights.items(), PAPER, strict=False):
            draw_sizes(sizes, edges_of(table), table[name], colour, name)
            draw_rising(rising, diameter, weight, colour, name)
        add_legend(sizes)
        add_legend(rising)
    slices.plot(profile["position"], 100 * profile["porosity"], color=PAPER[0])
    return svg(figure)


def _rev(table: pd.DataFrame | None, result: Mapping[str, Any], unit: str) -> Iterable[str]:
    """Yield porosity and pores of cubes of the sample by their edge, where they are known."""
    if table is None:
        return
    titles = {"porosity": "porosity (%)", "density": f"pores in a volume (1/{unit}³)"}
    # without the second where pores were merged anew
    titles = {name: title for name, title in titles.items() if name in table}
    figure = new_figure(*_SIZE)
    panels = add_plots(figure, 2)
    panels[-1].set_axis_off()
    settled = result.get("rev_edge_length")
    for axes, (name, title) in zip(panels, titles.items(), strict=False):
        axes.set_axis_on()
        draw_rev(axes, table, name, title, unit, settled, PAPER)
    yield "<h2>Representative volume</h2>"
    yield svg(figure)


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{_text(title)}</th><td>{_text(value)}</td></tr>" for title, value in rows)
    return f"<table>{''.join(cells)}</table>"


def _grid(head: Iterable[str], rows: Iterable[Iterable[str]], caption: str = "") -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        kinds = ("", " class=number")
        marked = ((kinds[number > 0], cell) for number, cell in enumerate(cells))
        return "".join(f"<{tag}{kind}>{_text(cell)}</{tag}>" for kind, cell in marked)

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    above = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f"<table>{above}<tr>{line(head, 'th')}</tr>{body}</table>"


def _value(opt: Option, value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == "":
        return "-"
    if isinstance(value, str):
        return opt.in_words(value)
    return f"{_number(value) if isinstance(value, float) else value} {opt.unit}".strip()


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    if math.isfinite(value) and value == int(value):
        return f"{int(value):,}"
    if 1e4 <= abs(value) < 1e9:
        # four digits that count, without an exponent
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


def _text(value: object) -> str:
    return html.escape(str(value))
