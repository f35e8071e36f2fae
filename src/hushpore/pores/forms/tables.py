"""Forms: results in the symbols, units and order of a field, and the tables beside them.

Each form is a TOML file in ``fields``: a table for each line, by its symbol. ``value`` names a
function of `hushpore.pores.forms.figures` and its arguments, ``otherwise`` says why a total of the
record is not there, ``missing`` why no scan gives the value. A line with ``repeat`` is written once
for each of the words, in place of ``{}``, and other words in braces are texts of the form.
"""

from __future__ import annotations

import dataclasses
import math
import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from hushpore.base.distributions import PERCENTILES, LognormalFit, lognormal_fit, percentiles
from hushpore.base.errors import InputError
from hushpore.base.formatting import METRES
from hushpore.pores.flow import NotSolvedError, path_columns
from hushpore.pores.forms import figures
from hushpore.pores.forms.findings import Interval, NotMeasuredError, value_of
from hushpore.pores.settings import FORM_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from hushpore.base.arrays import Array, Float64s
    from hushpore.pores.forms.findings import Findings

#: Names of the forms, the values of the setting ``report_form``.
FORMS = tuple(name for name in FORM_NAMES if name != "none")

#: Columns of ``form.csv``, in their order.
COLUMNS = (
    "symbol", "name", "value", "low", "high", "unit", "definition", "missing", "reference",
)  # fmt: skip

#: Reason for a value that is a division by zero here.
_UNDEFINED = "Not defined for this volume."

_LENGTH = re.compile(r"(mm|um|cm)(?:\^(-?\d+))?")


@dataclass(frozen=True)
class Entry:
    """A line of a form.

    Attributes
    ----------
    symbol, name : str
        As the field writes it, and in words.
    value : str
        Name of a function of `hushpore.pores.forms.figures` and its arguments after the findings.
    definition : str
        How it is computed here, and where that differs from the source.
    unit : str
        Of the field; a length, or a power of one, where the voxel size is known.
    otherwise : str
        Reason if a total of the record is not there.
    missing : str
        Reason if no scan gives the value.
    reference : str
        If another one than that of the form.
    without_pores : float, optional
        Value that acceptance limits are compared with if there are no pores.
    smallest : str, optional
        Diameter in mm of the smallest pores that the value depends on, ``"max"`` for that of its
        limit: below the detection limit, no acceptance limit is passed.
    """

    symbol: str
    name: str
    value: str = ""
    definition: str = ""
    unit: str = ""
    otherwise: str = ""
    missing: str = ""
    reference: str = ""
    without_pores: float | None = None
    smallest: str = ""

    def compute(self, findings: Findings) -> float | Interval:
        """Return the value of a segmentation, in its unit of length.

        Raises NotMeasuredError with the reason if there is none.
        """
        if self.missing:
            raise NotMeasuredError(self.missing)
        name, *arguments = self.value.split()
        value: float | Interval = getattr(figures, name)(findings, *arguments)
        return value

    def row(self, findings: Findings, reference: str) -> dict[str, Any]:
        """Return the line of a segmentation, by the names of `COLUMNS`."""
        unit, factor = self._unit_and_factor(findings.volume.unit)
        row: dict[str, Any] = {
            "symbol": self.symbol, "name": self.name, "value": math.nan, "low": math.nan,
            "high": math.nan, "unit": unit, "definition": self.definition, "missing": "",
            "reference": self.reference or reference,
        }  # fmt: skip
        try:
            computed = self.compute(findings)
        except (NotMeasuredError, NotSolvedError) as reason:
            return row | {"missing": str(reason) or self.otherwise or _UNDEFINED}
        except ZeroDivisionError:
            computed = math.nan
        value = value_of(computed)
        if not math.isfinite(value):
            return row | {"missing": _UNDEFINED}
        if isinstance(computed, Interval):
            low, high = sorted((computed.low * factor, computed.high * factor))
            row |= {"low": low, "high": high}
        return row | {"value": value * factor}

    def _unit_and_factor(self, unit: str) -> tuple[str, float]:
        """Return the unit that the value is written in, and what it is multiplied by."""
        length = _LENGTH.fullmatch(self.unit)
        if length is None:
            return self.unit, 100.0 if self.unit == "%" else 1.0
        power = int(length[2] or 1)
        if unit in METRES:
            return self.unit, (METRES[unit] / METRES[length[1]]) ** power
        return unit if power == 1 else f"{unit}^{power}", 1.0


@dataclass(frozen=True)
class Form:
    """A form of a field.

    Attributes
    ----------
    title, reference : str
        Its title, and where its names and definitions are from.
    entries : tuple of Entry
        In the order of the field.
    has_drainage : bool
        Whether a drainage curve belongs to it.
    has_profiles : bool
        Whether profiles by depth below the surface and by radius belong to it.
    """

    title: str
    reference: str
    entries: tuple[Entry, ...]
    has_drainage: bool = False
    has_profiles: bool = False

    @classmethod
    def of_toml(cls, text: str) -> Form:
        """Return the form of a file of ``fields``."""
        content = tomllib.loads(text)
        lines = {symbol: line for symbol, line in content.items() if isinstance(line, dict)}
        texts = {name: value for name, value in content.items() if isinstance(value, str)}
        entries = [
            entry for symbol, line in lines.items() for entry in _entries(symbol, line, texts)
        ]
        flags = {name: content.get(name, False) for name in ("has_drainage", "has_profiles")}
        return cls(content["title"], content["reference"], tuple(entries), **flags)

    def columns(self, findings: Findings) -> dict[str, list[Any]]:
        """Return the form of a segmentation as the columns of a table, `COLUMNS`."""
        rows = [entry.row(findings, self.reference) for entry in self.entries]
        return {name: [row[name] for row in rows] for name in COLUMNS}


def _entries(symbol: str, line: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the entries of a line, one for each of the words that it is repeated for."""
    for word in line.get("repeat", [""]):
        values = {"symbol": symbol, **line}
        values.pop("repeat", None)
        filled: dict[str, Any] = {
            name: value.format(word, **texts) if isinstance(value, str) else value
            for name, value in values.items()
        }
        yield Entry(**filled)


@cache
def form_of(name: str) -> Form:
    """Return a form by its name, one of `FORMS`."""
    file = files("hushpore.pores.forms") / "fields" / f"{name}.toml"
    return Form.of_toml(file.read_text(encoding="utf-8"))


def form_tables(name: str, findings: Findings) -> dict[str, Mapping[str, Any]]:
    """Return the tables of a form, by the names of their files.

    Parameters
    ----------
    name : str
        Of the form, one of `FORMS`.
    findings : Findings
        The segmentation.

    Returns
    -------
    dict of str to mapping
        ``form``: the columns `COLUMNS`, a row for each entry;
        ``size_classes`` and ``size_statistics``: see `size_classes`, `size_statistics`;
        ``drainage`` and ``breakthrough_path``: see
        `hushpore.pores.flow.drainage_columns` and
        `hushpore.pores.flow.path_columns`, of rocks and electrodes;
        ``profile_depth`` and ``profile_radius``: porosity by depth below the surface and by radius,
        of castings, bread and foams.

    Raises
    ------
    InputError
        If there is no such form.
    """
    if name not in FORMS:
        raise InputError(f"There is no form {name!r}. Available: {', '.join(FORMS)}.")
    form = form_of(name)
    tables: dict[str, Mapping[str, Any]] = {
        "form": form.columns(findings),
        "size_classes": size_classes(findings.pores, findings.sample),
        "size_statistics": size_statistics(findings.pores),
    }
    if form.has_drainage:
        with suppress(NotMeasuredError):
            tables["drainage"] = findings.drainage
            tables["breakthrough_path"] = path_table(name, findings)
    if form.has_profiles:
        with suppress(NotMeasuredError):
            tables |= findings.sample_map.profiles()
    return tables


def other_forms(chosen: str, findings: Findings) -> dict[str, Callable[[], pd.DataFrame]]:
    """Return the forms beside the chosen one, for the report, without further slow figures.

    Parameters
    ----------
    chosen : str
        Name of the form that is measured; another value: none is.
    findings : Findings
        The segmentation, from which the chosen form was made.

    Returns
    -------
    dict of str to callable
        By name, each returns the table of a form, with the columns
        `COLUMNS`; ``missing`` says for which figures that form has to
        be chosen.
    """

    def table(name: str) -> pd.DataFrame:
        import pandas as pd

        choice = f"{name.capitalize()} (--report-form {name})"
        known = dataclasses.replace(findings, form_to_choose=choice)
        return pd.DataFrame(form_of(name).columns(known))

    return {name: partial(table, name) for name in FORMS if name != chosen}


def has_profiles(name: str) -> bool:
    """Whether a form has profiles by depth, and its table of pores their ``surface_distance``."""
    return name in FORMS and form_of(name).has_profiles


def depth_column(name: str, findings: Findings) -> dict[str, Float64s]:
    """Return ``surface_distance`` of the pores, by its name; empty if the form has none."""
    if has_profiles(name):
        with suppress(NotMeasuredError):
            findings.require_all_void()
            findings.require_3d()
            return {"surface_distance": findings.depths()}
    return {}


def has_drainage(name: str) -> bool:
    """Whether a form is one of flow, with a drainage curve."""
    return name in FORMS and form_of(name).has_drainage


def path_table(name: str, findings: Findings) -> dict[str, list[Any]]:
    """Return the breakthrough paths of a form of flow, see `path_columns`; else nothing."""
    if not has_drainage(name):
        return {}
    with suppress(NotMeasuredError):
        return path_columns(findings.network, findings.pores, findings.volume)
    return {}


def class_limits(lowest: float, highest: float) -> Float64s:
    """Return limits of 1, 2 and 5 times powers of ten that hold a range of lengths.

    Parameters
    ----------
    lowest, highest : float
        Above 0.

    Returns
    -------
    numpy.ndarray
        Rising; the first is at most `lowest`, the last above `highest`.

    Examples
    --------
    >>> class_limits(0.3, 4).tolist()
    [0.2, 0.5, 1.0, 2.0, 5.0]
    """
    decades = range(math.floor(math.log10(lowest)) - 1, math.floor(math.log10(highest)) + 2)
    # as they are written in decimals
    limits = np.array([float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)])
    first = int(np.searchsorted(limits, lowest, side="right")) - 1
    last = int(np.searchsorted(limits, highest, side="right"))
    return limits[first : last + 1]


def size_classes(pores: Mapping[str, Array], sample_volume: float) -> dict[str, Array]:
    """Return pores by classes of equivalent diameter, as the columns of ``size_classes.csv``.

    Parameters
    ----------
    pores : mapping of str to numpy.ndarray
        Columns of the table of pores.
    sample_volume : float
        Volume of the sample.

    Returns
    -------
    dict of str to numpy.ndarray
        ``diameter_from``, ``diameter_to`` (limits of 1, 2 and 5 times powers of ten), ``number`` of
        pores, their ``volume``, both as shares of all pores (``number_share``, ``volume_share``),
        and ``porosity``, their volume over that of the sample.
    """
    diameter = np.asarray(pores["equivalent_diameter"], np.float64)
    volume = np.asarray(pores["volume"], np.float64)
    if diameter.size:
        limits = class_limits(float(diameter.min()), float(diameter.max()))
    else:
        limits = np.zeros(1)
    place = np.searchsorted(limits, diameter, side="right") - 1
    number = np.bincount(place, minlength=limits.size - 1)
    of_class = np.bincount(place, volume, minlength=limits.size - 1)
    return {
        "diameter_from": limits[:-1],
        "diameter_to": limits[1:],
        "number": number,
        "volume": of_class,
        "number_share": number / max(diameter.size, 1),
        "volume_share": of_class / (volume.sum() or 1.0),
        "porosity": of_class / sample_volume,
    }


def size_statistics(
    pores: Mapping[str, Array], column: str = "equivalent_diameter"
) -> dict[str, list[Any]]:
    """Return percentiles of size and a log-normal fit, as the columns of ``size_statistics.csv``.

    See `hushpore.base.distributions` for both.

    Parameters
    ----------
    pores : mapping of str to numpy.ndarray
        Columns of the table of pores.
    column : str, optional
        The size; pores without it are left out.

    Returns
    -------
    dict of str to list
        ``weighting`` (``"number"``, ``"volume"``), ``d10``, ``d50``, ``d90`` of the size,
        ``lognormal_median``, ``lognormal_geometric_deviation`` and ``lognormal_distance``; NaN if
        there are no pores.
    """
    size = np.asarray(pores[column], np.float64)
    is_known = np.isfinite(size)
    size, volume = size[is_known], np.asarray(pores["volume"], np.float64)[is_known]
    weights = {"number": np.ones(size.size), "volume": volume}
    none = LognormalFit(math.nan, math.nan, math.nan)
    rows = [
        [name, *percentiles(size, weight), *(lognormal_fit(size, weight) or none)]
        for name, weight in weights.items()
    ]
    names = [
        "weighting", *(f"d{percentile}" for percentile in PERCENTILES), "lognormal_median",
        "lognormal_geometric_deviation", "lognormal_distance",
    ]  # fmt: skip
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}
