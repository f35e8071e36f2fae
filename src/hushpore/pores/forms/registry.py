"""The forms that there are, by the names that settings have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hushpore.base.errors import InputError
from hushpore.pores.forms.bone import BONE
from hushpore.pores.forms.bread import BREAD
from hushpore.pores.forms.casting import CASTING
from hushpore.pores.forms.foam import FOAM

if TYPE_CHECKING:
    from hushpore.pores.forms.entries import Findings, Form

#: By the values of the setting ``form``.
FORMS: dict[str, Form] = {"bone": BONE, "foam": FOAM, "casting": CASTING, "bread": BREAD}


def form_columns(name: str, findings: Findings) -> dict[str, list[Any]]:
    """Return the columns of a form, `hushpore.pores.forms.entries.COLUMNS`.

    Parameters
    ----------
    name : str
        Of the form, one of `FORMS`.
    findings : Findings
        The segmentation.

    Returns
    -------
    dict of str to list
        A row for each entry.

    Raises
    ------
    InputError
        If there is no such form.
    """
    if name not in FORMS:
        raise InputError(f"There is no form {name!r}. Available: {', '.join(FORMS)}.")
    return FORMS[name].columns(findings)
