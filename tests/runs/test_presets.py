from __future__ import annotations

import pytest

from hushpore import InputError
from hushpore.jobs import JOBS
from hushpore.runs import presets

DENOISE, PORES = JOBS["denoise"].settings, JOBS["pores"].settings


def test_a_preset_is_saved_listed_loaded_and_deleted() -> None:
    assert presets.list_presets() == []
    presets.save_preset("Snow, quick".replace(",", ""), "pores", PORES(h=1.5))
    presets.save_preset("bread", "denoise", DENOISE(steps=50))
    assert presets.list_presets() == ["bread", "Snow quick"]
    assert presets.list_presets("pores") == ["Snow quick"]
    assert presets.load_preset("Snow quick", "pores") == PORES(h=1.5)
    presets.delete_preset("bread")
    presets.delete_preset("bread")
    assert presets.list_presets() == ["Snow quick"]


def test_one_name_holds_the_settings_of_several_jobs() -> None:
    presets.save_preset("bread", "denoise", DENOISE(steps=50))
    presets.save_preset("bread", "pores", PORES(h=2))
    presets.save_preset("bread", "pores", PORES(h=3))
    assert presets.read_preset("bread") == {"denoise": DENOISE(steps=50), "pores": PORES(h=3)}


def test_the_defaults_are_always_there() -> None:
    assert presets.load_preset(presets.DEFAULT, "pores") == PORES()
    with pytest.raises(InputError, match="not 'Default'"):
        presets.save_preset(presets.DEFAULT, "pores", PORES())


@pytest.mark.parametrize(
    "name", ["", " ", "../x", "a/b", "a\\b", ".hidden", "nul", "x" * 61, "a:b"]
)
def test_a_name_that_cannot_be_a_file_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a preset"):
        presets.save_preset(name, "pores", PORES())
    assert not presets.presets_folder().exists()


def test_what_is_not_there_is_said() -> None:
    presets.save_preset("bread", "denoise", DENOISE())
    with pytest.raises(InputError, match=r"no preset 'bred'\. Saved are: 'bread'"):
        presets.load_preset("bred", "denoise")
    with pytest.raises(InputError, match="no settings for 'segment pores', but for denoise"):
        presets.load_preset("bread", "pores")


def test_a_damaged_preset_is_left_out_of_the_list() -> None:
    presets.save_preset("bread", "pores", PORES())
    (presets.presets_folder() / "broken.toml").write_text("[pores")
    assert presets.list_presets("pores") == ["bread"]
    with pytest.raises(InputError, match="not TOML"):
        presets.read_preset("broken")


def test_the_folder_is_in_the_configuration_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUSHPORE_CONFIG")
    assert presets.presets_folder().parts[-2:] == ("hushpore", "presets")
