from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from hushpore import InputError
from hushpore.jobs import JOBS
from hushpore.runs.settings_file import read_settings, settings_text, write_settings

if TYPE_CHECKING:
    from pathlib import Path

    from hushpore.base.settings import Option

DENOISE, PORES = JOBS["denoise"].settings, JOBS["pores"].settings


def some_value(opt: Option) -> st.SearchStrategy[Any]:
    """Any value that a setting accepts."""
    kinds = [st.none()] if opt.optional else []
    low, high = opt.minimum, opt.maximum
    if opt.choices:
        kinds.append(st.sampled_from(opt.choices))
    elif str in opt.types:
        kinds.append(st.text())
    if bool in opt.types:
        kinds.append(st.booleans())
    elif float in opt.types:
        kinds.append(st.floats(low, high, allow_nan=False, allow_infinity=False))
    elif int in opt.types:
        whole = st.integers(int(low or 0), int(high or 10**9))
        kinds.append(whole.map(lambda n: n // 4 * 4) if "patch" in opt.name else whole)
    return st.one_of(kinds)


@pytest.mark.parametrize("job", ["denoise", "pores"])
def test_any_settings_survive_their_file(
    job: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind = JOBS[job].settings
    file = tmp_path_factory.mktemp("settings") / "s.toml"

    @given(st.fixed_dictionaries({}, optional={o.name: some_value(o) for o in kind.options()}))
    def check(values: dict[str, Any]) -> None:
        try:
            settings = kind.of(values)
        except InputError:
            # accepted one by one, but not together
            reject()
        write_settings(file, {job: settings}, overwrite=True)
        assert read_settings(file) == {job: settings}

    check()


def test_the_defaults_are_comments_that_explain() -> None:
    text = settings_text({"denoise": DENOISE(), "pores": PORES()})
    assert tomllib.loads(text) == {"denoise": {}, "pores": {}}
    for job in ("denoise", "pores"):
        for opt in JOBS[job].settings.options():
            assert f"# {opt.name} = " in text
            assert opt.help.split()[0] in text
    # without the marks of comments it says the same
    bare = "\n".join(
        line.removeprefix("# ") if " = " in line and "'" not in line else line
        for line in text.splitlines()
    )
    assert tomllib.loads(bare)["pores"]["mode"] == "all"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[pores]\nhh = 1", r"s\.toml, \[pores\]: There is no setting 'hh' here. Available: thre"),
        ("[pores]\nmode = 'opn'", "mode must be 'all', 'open', 'closed'; got 'opn'"),
        ("[pore]\nh = 1", r"'pore' is not a table of settings. Available: \[denoise\], \[pores\]"),
        ("h = 1", "'h' is not a table"),
        ("[pores]\nh = ", "are not TOML"),
        ("[pores]\nh = true", "h must be 'auto' or a number"),
        ("[denoise]\npatch_size = 'none'", "patch_size must be a whole number"),
    ],
)
def test_a_mistake_in_a_file_is_explained(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        read_settings(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.toml cannot be read: No such file"):
        read_settings(tmp_path / "gone.toml")


def test_none_is_a_word(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[denoise]\ntime_budget = "none"\nsteps = 5')
    assert read_settings(file) == {"denoise": DENOISE(steps=5)}
