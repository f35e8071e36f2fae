from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushpore import InputError
from hushpore.base.settings import Settings, option
from hushpore.jobs import JOBS, run

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Example(Settings):
    count: int = option(3, "How many.", minimum=1, maximum=9)
    width: float = option(0.5, "How wide.", unit="mm", minimum=0)
    limit: float | None = option(None, "At most this.")
    method: str | float = option("otsu", "Which, or a value.", choices=("otsu", "li"))
    fast: bool = option(False, "Whether to hurry.", more="Speed")
    title: str = option("", "What to call it.")
    model: str = option("", "What was trained.", path="file")


OPTIONS = {opt.name: opt for opt in Example.options()}


def test_options_tell_a_front_end_everything() -> None:
    assert list(OPTIONS) == ["count", "width", "limit", "method", "fast", "title", "model"]
    assert OPTIONS["width"].flag == "--width"
    assert OPTIONS["width"].unit == "mm"
    assert OPTIONS["limit"].optional
    assert OPTIONS["method"].types == (str, float)
    assert OPTIONS["fast"].more
    assert OPTIONS["count"].label == "Count"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("count", 0, "a whole number from 1 to 9"),
        ("count", 2.5, "a whole number from 1 to 9"),
        ("count", True, "a whole number"),
        ("count", "3", "a whole number"),
        ("width", -1, "a number of at least 0"),
        ("width", float("nan"), "a number of at least 0"),
        ("width", None, "a number"),
        ("method", "yen", "'otsu', 'li' or a number"),
        ("method", [1], "'otsu', 'li' or a number"),
        ("method", 10**400, "'otsu', 'li' or a number; got one of 1329 bits"),
        ("fast", 1, "True or False"),
        ("title", 3, "text; got 3"),
        ("model", ["x" * 999] * 999, "the path of a file; got .{,300}$"),
    ],
)
def test_a_value_not_accepted_is_refused_with_what_is(
    name: str, value: object, expected: str
) -> None:
    with pytest.raises(InputError, match=f"{name} must be .*{expected}"):
        Example(**{name: value})


def test_a_path_is_the_same_file_wherever_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    written = ("m.safetensors", "sub/../m.safetensors", str(tmp_path / "m.safetensors"))
    assert {Example(model=name).model for name in written} == {str(tmp_path / "m.safetensors")}
    assert Example(model="~/m").model == str(tmp_path / "home" / "m")
    assert Example(model="").model == ""


def test_numpy_scalars_and_whole_floats_become_plain_numbers() -> None:
    made = Example(count=np.int64(4), width=np.float32(0.25), fast=np.bool_(True))
    assert made.to_dict() == {
        "count": 4, "width": 0.25, "limit": None, "method": "otsu", "fast": True, "title": "",
        "model": "",
    }  # fmt: skip
    assert type(Example(count=4.0).count) is int


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1])
def test_whole_numbers_keep_all_their_digits_from_text_too(number: int) -> None:
    seed = next(opt for opt in JOBS["denoise"].settings.options() if opt.name == "seed")
    assert seed.check(number) == seed.check(np.int64(number)) == seed.parse(str(number)) == number
    assert OPTIONS["count"].parse("4.0") == 4


@pytest.mark.parametrize("job", ["denoise", "patches"])
def test_a_seed_is_accepted_as_far_as_a_job_can_use_it(job: str) -> None:
    kind, scan = JOBS[job].settings, np.random.default_rng(0).normal(size=(2, 64, 64))
    for number in (2**63, 2**64, 10**400, -1):
        with pytest.raises(
            InputError, match="seed must be a whole number from 0 to 9223372036854775807"
        ):
            kind(seed=number)
    quick = {"denoise": {"steps": 1}, "patches": {"n_patches": 1}}[job]
    result = run(job, scan, {**quick, "seed": 2**63 - 1}, "cpu")
    assert result.provenance["settings"]["seed"] == 2**63 - 1


def test_the_word_none_stands_for_none_where_that_is_accepted() -> None:
    assert Example(limit="none").limit is None
    with pytest.raises(InputError, match="width must be"):
        Example(width="none")
    assert Example(title="none").title == "none"


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        InputError, match=r"setting 'widht' does not exist. Available: count, width"
    ):
        Example.of({"widht": 1})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Example().count = 5  # type: ignore[misc]


@given(st.sampled_from(sorted(OPTIONS)), st.data())
def test_text_reads_back_as_the_value_it_shows(name: str, data: st.DataObject) -> None:
    values = {
        "count": st.integers(1, 9),
        "width": st.floats(0, 1e6),
        "limit": st.none() | st.floats(-1e6, 1e6),
        "method": st.sampled_from(["otsu", "li"]) | st.floats(-1e6, 1e6),
        "fast": st.booleans(),
        "title": st.text(),
        "model": st.text(),
    }
    value = OPTIONS[name].check(data.draw(values[name]))
    assert OPTIONS[name].parse(str(value)) == value


@pytest.mark.parametrize("text", ["", "many", "1e999"])
def test_text_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="count must be a whole number"):
        OPTIONS["count"].parse(text)


@pytest.mark.parametrize(("text", "value"), [("0,35", 0.35), ("-3,5", -3.5), ("0,500", 0.5)])
def test_a_number_may_have_a_decimal_comma(text: str, value: float) -> None:
    threshold = next(each for each in JOBS["pores"].settings.options() if each.name == "threshold")
    assert threshold.parse(text) == value


@pytest.mark.parametrize("text", ["1,500", "12,000", "1,2,3", "1.5,2"])
def test_a_comma_that_may_separate_thousands_or_numbers_is_refused(text: str) -> None:
    threshold = next(each for each in JOBS["pores"].settings.options() if each.name == "threshold")
    with pytest.raises(InputError, match="threshold must be"):
        threshold.parse(text)


@pytest.mark.parametrize("job", JOBS)
def test_every_setting_of_every_job_explains_itself(job: str) -> None:
    for opt in JOBS[job].settings.options():
        assert opt.help.endswith("."), opt.name
        assert opt.check(opt.default) == opt.default


def test_what_was_kept_fits_where_a_setting_depends_on_a_later_one() -> None:
    patches = JOBS["patches"].settings
    kept = {"sampler": "weights", "weights": "mask", "n_patches": 7}
    assert patches.of_valid(kept) == patches(**kept)
    assert patches.of_valid({"sampler": "weights", "n_patches": 7}) == patches(n_patches=7)


@pytest.mark.parametrize(
    ("job", "message", "expected"),
    [
        ("pores", "Let it count as pore (exterior='keep').", "('Exterior air' = Count as pore)"),
        ("pores", "Leave it out (tortuosity=False).", "('Geodesic tortuosity' = off)"),
        ("pores", "The sample_mask 'a' is empty.", "The 'Sample mask' 'a' is empty."),
        ("pores", "or use otsu_classes=2.", "or use 'Otsu classes' = 2."),
        (
            "denoise",
            "method must be 'auto'; got 'n2v'.",
            "'Method' must be 'Automatic'; got 'N2V'.",
        ),
        ("denoise", "pair: a is too small.", "'Paired scan': a is too small."),
        ("denoise", "context=4 needs 9 slices.", "'Context slices' = 4 needs 9 slices."),
        # words that are names of settings, too
        ("pores", "The window of phases h is outside.", "The window of phases h is outside."),
    ],
)
def test_a_message_names_settings_as_the_form_does(job: str, message: str, expected: str) -> None:
    assert expected in JOBS[job].settings.as_in_a_form(message)


@pytest.mark.parametrize(
    ("job", "message", "expected"),
    [
        ("pores", "Count it as pore (exterior='keep').", "Count it as pore (--exterior keep)."),
        ("pores", "To swap them, use pores_are=bright.", "To swap them, use --pores-are bright."),
        ("pores", "Leave it out (tortuosity=False).", "Leave it out (--no-tortuosity)."),
        ("phases", "Set are_labels=True.", "Set --are-labels."),
        ("pores", "The sample_mask 'a' is empty.", "The --sample-mask 'a' is empty."),
        ("pores", "or use otsu_classes=2.", "or use --otsu-classes 2."),
        ("denoise", "Train longer (steps).", "Train longer (--steps)."),
        ("denoise", "steps must be 8 or None; got 0.", "--steps must be 8 or none; got 0."),
        ("denoise", "method must be 'auto'; got 'n2v'.", "--method must be 'auto'; got 'n2v'."),
        ("denoise", "context=4 needs 9 slices.", "--context 4 needs 9 slices."),
        # names that are also common words
        ("pores", "The window of phases h is outside.", "The window of phases h is outside."),
    ],
)
def test_a_message_names_settings_by_their_flags(job: str, message: str, expected: str) -> None:
    assert JOBS[job].settings.as_flags(message) == expected
