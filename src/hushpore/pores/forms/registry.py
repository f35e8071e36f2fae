"""Registry of the forms, by the values of the setting ``report_form``."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.pores.flow import path_columns
from hushpore.pores.forms.bone import BONE
from hushpore.pores.forms.bread import BREAD
from hushpore.pores.forms.casting import CASTING
from hushpore.pores.forms.electrode import ELECTRODE
from hushpore.pores.forms.entries import NotMeasuredError
from hushpore.pores.forms.foam import FOAM
from hushpore.pores.forms.rock import ROCK
from hushpore.pores.forms.size_tables import size_classes, size_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from hushpore.base.arrays import Float64s
    from hushpore.pores.forms.entries import Findings, Form

#: By the values of the setting ``report_form``.
FORMS: dict[str, Form] = {
    "bone": BONE,
    "foam": FOAM,
    "casting": CASTING,
    "bread": BREAD,
    "rock": ROCK,
    "electrode": ELECTRODE,
}


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
        ``form``: the columns `hushpore.pores.forms.entries.COLUMNS`, a row for each entry;
        ``size_classes`` and ``size_statistics``: see `hushpore.pores.forms.size_tables`;
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
    form = FORMS[name]
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
        `hushpore.pores.forms.entries.COLUMNS`; ``missing`` says for which figures that form has to
        be chosen.
    """

    def table(name: str) -> pd.DataFrame:
        import pandas as pd

        choice = f"{name.capitalize()} (--report-form {name})"
        known = dataclasses.replace(findings, form_to_choose=choice)
        return pd.DataFrame(FORMS[name].columns(known))

    return {name: partial(table, name) for name in FORMS if name != chosen}


def has_profiles(name: str) -> bool:
    """Whether a form has profiles by depth, and its table of pores their ``surface_distance``."""
    return name in FORMS and FORMS[name].has_profiles


def depth_column(name: str, findings: Findings) -> dict[str, Float64s]:
    """Return ``surface_distance`` of the pores, by its name; empty if the form has none."""
    if has_profiles(name):
        with suppress(NotMeasuredError):
            findings.require_all_void()
            findings.require_3d()
            return {"surface_distance": findings.depths()}
    return {}


def path_table(name: str, findings: Findings) -> dict[str, list[Any]]:
    """Return the breakthrough paths of a form of flow, see `path_columns`; else nothing."""
    if name not in FORMS or not FORMS[name].has_drainage:
        return {}
    with suppress(NotMeasuredError):
        return path_columns(findings.network, findings.pores, findings.volume)
    return {}
