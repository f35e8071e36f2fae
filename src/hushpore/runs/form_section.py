"""The form of a field as a part of the report."""

from __future__ import annotations

import html
import math
import re
from typing import TYPE_CHECKING

from hushpore.base.formatting import readable_number, readable_unit
from hushpore.pores.forms.registry import FORMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd


# names of Greek letters as whole words, and subscripts of one letter: tau_g,z; d_50
_GREEK = {
    "alpha": "α", "eps": "ε", "phi": "φ", "psi": "ψ", "Psi": "Ψ", "rho": "ρ", "sigma": "σ",
    "tau": "τ",
}  # fmt: skip
_GREEK_NAME = re.compile(rf"(?<![A-Za-z_])({'|'.join(_GREEK)})(?![A-Za-z])")
_SUBSCRIPT = re.compile(r"(?<![^\W_])([^\W\d_])_(\w+(?:,\w)?)")

# columns that are not wrapped
_ON_ONE_LINE = ("Symbol", "Value", "90 % interval", "Unit")


def form_section(name: str, table: pd.DataFrame | None) -> Iterable[str]:
    """Yield the form as HTML: a table of what was found, and a list of what was not.

    Parameters
    ----------
    name : str
        Value of the setting ``report_form``.
    table : pandas.DataFrame, optional
        As `hushpore.pores.result.Pores.form` returns it; None: nothing is yielded.

    Yields
    ------
    str
        Elements of a page.
    """
    if table is None or name not in FORMS:
        return
    form = FORMS[name]
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
    yield _table(heads, rows)
    others = sorted(set(table["reference"]) - {form.reference})
    yield f'<p class="faint">{html.escape("; ".join([form.reference, *others]))}</p>'
    if len(missing):
        yield "<h3>Not in this scan</h3>"
        yield _table(
            ["Symbol", "Name", "Reason"],
            [[line.symbol, line.name, line.missing] for line in missing.itertuples(index=False)],
        )


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


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    kinds = [" class=whole" if head in _ON_ONE_LINE else "" for head in heads]

    def line(cells: Iterable[str], tag: str) -> str:
        return "".join(
            f"<{tag}{kind}>{typeset(str(cell))}</{tag}>"
            for cell, kind in zip(cells, kinds, strict=True)
        )

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(heads, 'th')}</tr>{body}</table>"


def typeset(text: str) -> str:
    """Return a text as HTML with the symbols of the forms in Greek letters and subscripts.

    >>> typeset("rho/rho_s"), typeset("tau_g,z"), typeset("N(d>=0.1)"), typeset("drainage.csv")
    ('ρ/ρ<sub>s</sub>', 'τ<sub>g,z</sub>', 'N(d≥0.1)', 'drainage.csv')
    """
    greek = _GREEK_NAME.sub(lambda found: _GREEK[found[1]], text.replace(">=", "≥"))
    return _SUBSCRIPT.sub(r"\1<sub>\2</sub>", html.escape(greek))
