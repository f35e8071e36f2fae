"""Acceptance limits: figures of a form, each compared with the least and most that is accepted.

The limits are in a TOML file: the name of a form, and a table for each limited symbol, with ``min``
or ``max`` or both in the unit of the form::

    form = "casting"

    [d_max]
    max = 0.5  # mm

A figure passes if its whole 90 % interval is within the limits, fails if none of the interval is,
and is not decided otherwise; without an interval, its value is compared.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.base.events import Note
from hushpore.base.formatting import METRES, readable_number
from hushpore.base.preferences import read_toml
from hushpore.pores.forms.tables import FORMS, form_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hushpore.pores.forms.findings import Findings
    from hushpore.pores.forms.tables import Entry

#: Verdicts on a figure and on a scan, the worst first.
VERDICTS = FAILED, NOT_DECIDED, PASSED = ("failed", "not decided", "passed")

#: Columns of ``limits.csv``, in their order.
COLUMNS = (
    "symbol", "name", "value", "low", "high", "unit", "min", "max", "verdict", "reason",
)  # fmt: skip


def read_limits(path: str) -> dict[str, Any]:
    """Read a file of acceptance limits.

    Parameters
    ----------
    path : str
        TOML file, see `hushpore.pores.forms.limits`.

    Returns
    -------
    dict
        ``file`` (its name), ``form``, and ``lines``: for each limit ``symbol``, ``min`` and
        ``max``; None for no limit. JSON values, as the record has them under ``acceptance``.

    Raises
    ------
    InputError
        If the file cannot be read, names no form, or has an entry that the form does not have or
        that is not a limit.
    """
    file = Path(path)
    try:
        content = read_toml(file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or error
        raise InputError(f"The limits cannot be read from {file}: {reason}.") from error
    form = content.pop("form", None)
    if form not in FORMS:
        raise InputError(
            f"{file.name} must name the form of its limits, form = one of {', '.join(FORMS)}; got "
            f"{form!r}."
        )
    entries = {entry.symbol: entry for entry in form_of(form).entries if not entry.missing}
    for symbol in content:
        if symbol not in entries:
            raise InputError(
                f"{file.name}: the form {form} measures no {symbol!r}. Available: "
                f"{', '.join(entries)}."
            )
    lines = [_line(file.name, entries[symbol], table) for symbol, table in content.items()]
    if not lines:
        raise InputError(f"{file.name} has no limits. Add a table, for example [P] with max = 2.")
    return {"file": file.name, "form": form, "lines": lines}


def _line(file: str, entry: Entry, table: Any) -> dict[str, Any]:
    """Return the limits of an entry, checked."""
    where = f"{file}, [{entry.symbol}]"
    if not isinstance(table, dict) or not table or not {*table} <= {"min", "max", "unit"}:
        raise InputError(f"{where} must be a table with min or max, or both; got {table!r}.")
    unit = table.get("unit", entry.unit)
    if unit != entry.unit:
        raise InputError(f"{where}: the unit is {entry.unit or 'none'}; got {unit!r}.")
    ends = {end: table.get(end) for end in ("min", "max")}
    given = [value for value in ends.values() if value is not None]
    for value in given:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise InputError(f"{where}: min and max must be numbers; got {value!r}.")
    if not given or given[0] > given[-1]:
        raise InputError(f"{where} needs min or max, and min must not be above max; got {table!r}.")
    return {"symbol": entry.symbol, **ends}


def judged(acceptance: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Return the entries of the record that compare a segmentation with acceptance limits.

    Parameters
    ----------
    acceptance : mapping
        As `read_limits` returns it, or as an earlier record has it.
    findings : Findings
        The segmentation.

    Returns
    -------
    dict
        ``limits``: the verdict on the scan, the worst of `VERDICTS` on its figures. ``acceptance``:
        `acceptance`, with the columns `COLUMNS` for each line.
    """
    entries = {entry.symbol: entry for entry in form_of(acceptance["form"]).entries}
    lines = [_judge(line, entries[line["symbol"]], findings) for line in acceptance["lines"]]
    found = {line["verdict"] for line in lines}
    verdict = next(each for each in VERDICTS if each in found)
    return {"limits": verdict, "acceptance": {**acceptance, "lines": lines}}


def _judge(line: Mapping[str, Any], entry: Entry, findings: Findings) -> dict[str, Any]:
    """Return a line with the figure and the verdict on it."""
    row = entry.row(findings, "")
    least, most = (line["min"], line["max"])
    value, ends, reason = row["value"], (row["low"], row["high"]), row["missing"]
    if math.isnan(value) and entry.without_pores is not None and not findings.totals["count"]:
        value, reason = entry.without_pores, "There are no pores."
    low, high = (value, value) if math.isnan(ends[0]) else ends
    lowest, highest = (-math.inf if least is None else least, math.inf if most is None else most)
    if row["unit"] != entry.unit:
        verdict, reason = NOT_DECIDED, "The voxel size is not known (--voxel-size)."
    elif math.isnan(value):
        verdict = NOT_DECIDED
    elif lowest <= low and high <= highest:
        verdict, reason = _unless_unseen(entry, most, findings) or (PASSED, reason)
    elif high < lowest or low > highest:
        verdict = FAILED
    else:
        verdict, reason = NOT_DECIDED, "A limit is inside the 90 % interval."
    numbers = {"value": value, "low": ends[0], "high": ends[1]}
    known = {name: each if math.isfinite(each) else None for name, each in numbers.items()}
    texts = {"name": entry.name, "unit": row["unit"], "verdict": verdict, "reason": reason}
    found = {**line, **known, **texts}
    return {name: found[name] for name in COLUMNS}


def _unless_unseen(entry: Entry, most: float | None, findings: Findings) -> tuple[str, str] | None:
    """Return that a figure is not decided if pores too small to be found could exceed its limit."""
    a90, unit = findings.totals.get("detection_limit"), findings.volume.unit
    size = most if entry.smallest == "max" else float(entry.smallest or math.inf)
    if a90 is None or unit not in METRES or size is None or most is None:
        return None
    seen = a90 * METRES[unit] / METRES["mm"]
    if size >= seen:
        return None
    return NOT_DECIDED, f"Pores below {readable_number(seen)} mm (a90) may have been missed."


def columns_of(result: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the judged limits of a record as the columns of ``limits.csv``."""
    lines = result["acceptance"]["lines"]
    return {name: [line[name] for line in lines] for name in COLUMNS}


def remark_on(result: Mapping[str, Any]) -> Note:
    """Return the remark on the acceptance limits of a record: figures that did not pass, first."""
    acceptance, verdict = result["acceptance"], result["limits"]
    parts = []
    for each in VERDICTS:
        own = [line for line in acceptance["lines"] if line["verdict"] == each]
        if own:
            words = [line["symbol"] if each == PASSED else in_words(line) for line in own]
            parts.append(f"{each.capitalize()}: {'; '.join(words)}.")
    text = f"Acceptance limits ({acceptance['file']}): {verdict}. {' '.join(parts)}"
    return Note(text, verdict != PASSED, "result")


def in_words(line: Mapping[str, Any]) -> str:
    """Return a figure with its limits and the reason for its verdict.

    >>> line = {"symbol": "P", "value": 2.1, "low": 1.8, "high": 2.6, "unit": "%", "min": None,
    ...         "max": 2.5, "reason": "A limit is inside the 90 % interval."}
    >>> in_words(line)
    'P 2.1 % (at most 2.5; 90 % interval 1.8 to 2.6)'
    """
    accepted = {"at least": line["min"], "at most": line["max"]}
    facts = [f"{word} {limit:g}" for word, limit in accepted.items() if limit is not None]
    if line["low"] is not None:
        ends = (readable_number(line[end]) for end in ("low", "high"))
        facts.append(f"90 % interval {' to '.join(ends)}")
    elif line["reason"]:
        facts.append(line["reason"].rstrip("."))
    value = "" if line["value"] is None else f" {readable_number(line['value'])}"
    unit = f" {line['unit']}" if value and line["unit"] else ""
    return f"{line['symbol']}{value}{unit} ({'; '.join(facts)})"


def titled(line: Mapping[str, Any]) -> str:
    """Return the symbol of a limited figure with its unit, as a heading."""
    return f"{line['symbol']} ({line['unit']})" if line["unit"] else str(line["symbol"])


def figures_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limited figures of a record as columns of the summary of a batch."""
    lines = result.get("acceptance", {}).get("lines", [])
    return {titled(line): line["value"] for line in lines}
