from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from hushpore.base.errors import InputError
from hushpore.jobs import JOBS
from hushpore.runs import presets
from hushpore.runs.presets import (
    CUSTOM,
    DEFAULT,
    LAST,
    LAST_USED,
    delete_preset,
    list_presets,
    load_preset,
    names_to_choose,
    presets_folder,
    read_preset,
    read_settings,
    remember,
    remembered,
    save_preset,
    settings_text,
    write_settings,
)

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
    assert tomllib.loads(bare)["pores"]["pore_type"] == "all"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[pores]\nhh = 1",
            r"s\.toml, \[pores\]: The setting 'hh' does not exist. Available: thre",
        ),
        ("[pores]\npore_type = 'opn'", "pore_type must be 'all', 'open', 'closed'; got 'opn'"),
        ("[pore]\nh = 1", r"'pore' is not a job. Available tables: \[denoise\], \[pores\]"),
        ("h = 1", "'h' is not a job"),
        ("[pores]\nmerge_height = ", "is not valid TOML"),
        ("[pores]\nmerge_height = true", "merge_height must be 'auto' or a number"),
        ("[denoise]\npatch_depth = 'none'", "patch_depth must be a whole number"),
    ],
)
def test_a_mistake_in_a_file_is_explained(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "s.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        read_settings(file)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_a_settings_file_may_be_saved_by_programs_of_windows(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes("# für Gestein\r\n[pores]\r\nminimum_voxels = 27\r\n".encode(encoding))
    assert read_settings(file)["pores"].to_dict()["minimum_voxels"] == 27


def test_a_decimal_comma_in_a_settings_file_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[pores]\nthreshold = 0,35\n")
    with pytest.raises(InputError, match="Write decimal numbers with a point"):
        read_settings(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.toml cannot be read: No such file"):
        read_settings(tmp_path / "gone.toml")


def test_none_is_a_word(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[denoise]\ntime_budget = "none"\nsteps = 5')
    assert read_settings(file) == {"denoise": DENOISE(steps=5)}


def test_a_preset_is_saved_listed_loaded_and_deleted() -> None:
    assert list_presets() == []
    save_preset("Snow, quick".replace(",", ""), "pores", PORES(merge_height=1.5))
    save_preset("bread", "denoise", DENOISE(steps=50))
    assert list_presets() == ["bread", "Snow quick"]
    assert list_presets("pores") == ["Snow quick"]
    assert load_preset("Snow quick", "pores") == PORES(merge_height=1.5)
    delete_preset("bread")
    delete_preset("bread")
    assert list_presets() == ["Snow quick"]


def test_one_name_holds_the_settings_of_several_jobs() -> None:
    save_preset("bread", "denoise", DENOISE(steps=50))
    save_preset("bread", "pores", PORES(merge_height=2))
    save_preset("bread", "pores", PORES(merge_height=3))
    assert read_preset("bread") == {"denoise": DENOISE(steps=50), "pores": PORES(merge_height=3)}


def test_the_defaults_are_always_there() -> None:
    assert load_preset(DEFAULT, "pores") == load_preset("default", "pores") == PORES()
    with pytest.raises(InputError, match="'Default' is not a valid name"):
        save_preset(DEFAULT, "pores", PORES())


@pytest.mark.parametrize("name", [DEFAULT, LAST, CUSTOM])
def test_names_of_the_form_are_reserved_in_any_case(name: str) -> None:
    for spelling in (name, name.lower(), name.upper()):
        with pytest.raises(InputError, match="is not a valid name of a preset"):
            save_preset(spelling, "pores", PORES())
    assert not presets_folder().exists()


@pytest.mark.parametrize(
    "name", ["", " ", "../x", "a/b", "a\\b", ".hidden", "nul", "x" * 61, "a:b"]
)
def test_a_name_that_cannot_be_a_file_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not a valid name of a preset"):
        save_preset(name, "pores", PORES())
    assert not presets_folder().exists()


def test_what_is_not_there_is_said() -> None:
    save_preset("bread", "denoise", DENOISE())
    with pytest.raises(InputError, match=r"no preset 'bred'\. Available: .*'bread'"):
        load_preset("bred", "denoise")
    with pytest.raises(InputError, match="no settings for 'segment pores', only for denoise"):
        load_preset("bread", "pores")


def test_a_damaged_preset_is_left_out_of_the_list() -> None:
    save_preset("bread", "pores", PORES())
    (presets_folder() / "broken.toml").write_text("[pores")
    assert list_presets("pores") == ["bread"]
    with pytest.raises(InputError, match="not valid TOML"):
        read_preset("broken")


def test_the_folder_is_in_the_configuration_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHPORE_CONFIG")
    assert presets_folder().parts[-2:] == ("hushpore", "presets")


def test_each_kind_of_work_begins_with_what_it_was_last_run_with() -> None:
    assert remembered("pores", PORES) is None
    remember("pores", PORES(merge_height=2.5, pore_type="closed", threshold=300))
    remember("denoise", DENOISE(time_budget=90, seed=3))
    remember("pores", PORES(merge_height=3.0))
    assert remembered("pores", PORES) == PORES(merge_height=3.0)
    # a time limit is meant for one run
    assert remembered("denoise", DENOISE) == DENOISE(seed=3)


def test_none_is_kept_where_it_is_not_the_default() -> None:
    optional = [opt for opt in PORES.options() if opt.optional and opt.default is not None]
    for opt in optional:
        remember("pores", PORES(**{opt.name: None}))
        assert getattr(remembered("pores", PORES), opt.name) is None


def test_names_of_layers_files_and_people_are_never_kept() -> None:
    remember(
        "denoise",
        DENOISE(model="/scans/Mr Brown/m.safetensors", checkpoint="brown", train_at="Brown's foam"),
    )
    text = LAST_USED.file.read_text().lower()
    assert "brown" not in text
    assert remembered("denoise", DENOISE) == DENOISE()


@pytest.mark.parametrize(
    "text", ["[pores", "", "pores = 3", "[pores]\nmerge_height = 'wide'\nwarp = 9\n"]
)
def test_a_damaged_file_or_one_of_another_version_does_no_harm(text: str) -> None:
    remember("pores", PORES(merge_height=2.5))
    LAST_USED.file.write_text(text)
    assert remembered("pores", PORES) in (None, PORES())
    remember("pores", PORES(merge_height=1.5))
    assert remembered("pores", PORES) == PORES(merge_height=1.5)


def test_settings_that_do_not_go_together_any_more_are_left_out() -> None:
    remember("denoise", DENOISE(steps=50, seed=3))
    with LAST_USED.file.open("a") as file:
        file.write("patch_size = 50\nreplacement_window = 7\n")
    assert remembered("denoise", DENOISE) == DENOISE(seed=3, replacement_window=7)


def test_where_nothing_can_be_written_nothing_fails(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "file"))
    remember("pores", PORES(merge_height=2.5))
    assert remembered("pores", PORES) is None


def test_all_is_forgotten() -> None:
    remember("pores", PORES(merge_height=2.5))
    LAST_USED.forget()
    LAST_USED.forget()
    assert remembered("pores", PORES) is None


def test_what_was_last_used_is_a_preset_that_cannot_be_saved_over() -> None:
    before = names_to_choose("pores")
    assert before[:1] == ["Default"]
    remember("pores", PORES(merge_height=2.5))
    assert names_to_choose("pores") == ["Default", "Last used", *before[1:]]
    assert names_to_choose("denoise") == ["Default"]
    assert load_preset("Last used", "pores") == PORES(merge_height=2.5)
    assert load_preset("last USED", "pores") == PORES(merge_height=2.5)
    with pytest.raises(InputError, match="is not a valid name of a preset"):
        save_preset("Last used", "pores", PORES())


def test_a_grey_value_is_of_one_scan_and_is_not_kept() -> None:
    remember("pores", PORES(threshold=300, hysteresis=250, merge_height=2.0))
    assert remembered("pores", PORES) == PORES(merge_height=2.0)
    remember("pores", PORES(threshold="li"))
    assert remembered("pores", PORES) == PORES(threshold="li")
    # nor taken from a file that holds one
    LAST_USED.file.write_text("[pores]\nthreshold = 300.0\nmerge_height = 2.0\n")
    assert remembered("pores", PORES) == PORES(merge_height=2.0)


SHIPPED = sorted(path.stem for path in presets.SHIPPED.glob("*"))


@pytest.mark.parametrize("name", SHIPPED)
def test_a_preset_that_ships_is_read_and_changes_something_for_each_of_its_jobs(name: str) -> None:
    found = presets.read_preset(name)
    assert found
    for job, settings in found.items():
        assert settings != JOBS[job].settings()
        assert presets.load_preset(name, job) == settings
        assert name in presets.names_to_choose(job)
    # a form can save under such a name, and whoever chooses it finds what it is for
    presets.preset_file(name)
    text = (presets.SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ")


def test_presets_that_ship_stand_before_those_of_the_user() -> None:
    presets.save_preset("aerogel", "pores", PORES(merge_height=3))
    shipped = presets.shipped_presets("pores")
    assert "Bread" in shipped
    assert presets.names_to_choose("pores") == [presets.DEFAULT, *shipped, "aerogel"]
    assert presets.list_presets() == ["aerogel"]


def test_one_of_the_user_takes_the_place_of_one_that_ships_until_it_is_deleted() -> None:
    before = presets.read_preset("Concrete")
    presets.save_preset("Concrete", "pores", PORES(merge_height=3))
    assert presets.read_preset("Concrete") == {**before, "pores": PORES(merge_height=3)}
    assert "Concrete" not in presets.shipped_presets()
    assert presets.names_to_choose("pores").count("Concrete") == 1
    presets.delete_preset("Concrete")
    assert presets.read_preset("Concrete") == before
    assert "Concrete" in presets.shipped_presets()
