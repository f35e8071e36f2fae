from __future__ import annotations

import pytest

from hushpore.base.errors import InputError
from hushpore.jobs import JOBS
from hushpore.runs import presets
from hushpore.runs.last_used import forget, remember, remembered, remembered_file

DENOISE, PORES = JOBS["denoise"].settings, JOBS["pores"].settings


def test_each_kind_of_work_begins_with_what_it_was_last_run_with() -> None:
    assert remembered("pores", PORES) is None
    remember("pores", PORES(h=2.5, mode="closed", threshold=300))
    remember("denoise", DENOISE(time_budget=90))
    remember("pores", PORES(h=3.0))
    assert remembered("pores", PORES) == PORES(h=3.0)
    assert remembered("denoise", DENOISE) == DENOISE(time_budget=90)


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
    text = remembered_file().read_text().lower()
    assert "brown" not in text
    assert remembered("denoise", DENOISE) == DENOISE()


@pytest.mark.parametrize("text", ["[pores", "", "pores = 3", "[pores]\nh = 'wide'\nwarp = 9\n"])
def test_a_damaged_file_or_one_of_another_version_does_no_harm(text: str) -> None:
    remember("pores", PORES(h=2.5))
    remembered_file().write_text(text)
    assert remembered("pores", PORES) in (None, PORES())
    remember("pores", PORES(h=1.5))
    assert remembered("pores", PORES) == PORES(h=1.5)


def test_settings_that_do_not_go_together_any_more_are_left_out() -> None:
    remember("denoise", DENOISE(steps=50))
    with remembered_file().open("a") as file:
        file.write("patch_size = 50\nreplacement_window = 7\n")
    assert remembered("denoise", DENOISE) == DENOISE(steps=50, replacement_window=7)


def test_where_nothing_can_be_written_nothing_fails(monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUSHPORE_CONFIG", str(tmp_path / "file"))
    remember("pores", PORES(h=2.5))
    assert remembered("pores", PORES) is None


def test_all_is_forgotten() -> None:
    remember("pores", PORES(h=2.5))
    forget()
    forget()
    assert remembered("pores", PORES) is None


def test_what_was_last_used_is_a_preset_that_cannot_be_saved_over() -> None:
    assert presets.names_to_choose("pores") == ["Default"]
    remember("pores", PORES(h=2.5))
    assert presets.names_to_choose("pores") == ["Default", "Last used"]
    assert presets.names_to_choose("denoise") == ["Default"]
    assert presets.load_preset("Last used", "pores") == PORES(h=2.5)
    with pytest.raises(InputError, match="cannot be the name of a preset"):
        presets.save_preset("Last used", "pores", PORES())


def test_a_grey_value_is_of_one_scan_and_is_not_kept() -> None:
    remember("pores", PORES(threshold=300, hysteresis=250, h=2.0))
    assert remembered("pores", PORES) == PORES(h=2.0)
    remember("pores", PORES(threshold="li"))
    assert remembered("pores", PORES) == PORES(threshold="li")
    # nor taken from a file of an earlier version
    remembered_file().write_text("[pores]\nthreshold = 300.0\nh = 2.0\n")
    assert remembered("pores", PORES) == PORES(h=2.0)
