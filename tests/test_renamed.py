"""What the reference documented under another name is found under it for one version more."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from hushpore._renamed import RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_module_is_found_by_its_name_of_before_with_a_warning(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    now = import_module(new)
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new} now"):
        before = import_module(old)
    names = [name for name in vars(now) if name[0] != "_"]
    assert names
    assert all(getattr(before, name) is getattr(now, name) for name in names)


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("hushpore.nothing")
