"""What files of others say is text, and commands nothing."""

from __future__ import annotations

import os

import pandas as pd
import pytest
from matplotlib.figure import Figure

from hushpore.base.formatting import (
    LONGEST_LINE,
    file_name,
    harmless,
    harmless_table,
    in_figure,
    on_one_line,
    read_table,
    read_text,
    readable_bytes,
    readable_number,
    readable_percent,
    readable_unit,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1350.4, "1,350"),
        (999.6, "1,000"),
        (999.4, "999"),
        (-59.73, "-59.7"),
        (1234567, "1,230,000"),
        (0, "0"),
        (0.5, "0.5"),
        (0.01234, "0.0123"),
        (3e12, "3e+12"),
        (float("nan"), "nan"),
    ],
)
def test_numbers_are_written_as_people_write_them(value: float, text: str) -> None:
    assert readable_number(value) == text


def test_units_are_written_in_signs() -> None:
    units = [readable_unit("um", 3), readable_unit("mm", -1), readable_unit("pixel")]
    assert units == ["µm³", "mm⁻¹", "px"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999_499, "999 kB"),
        (999_600, "1 MB"),
        (14_700_000, "14.7 MB"),
        (1.25e15, "1,250 TB"),
    ],
)
def test_sizes_have_three_digits_and_no_exponent(count: float, text: str) -> None:
    assert readable_bytes(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1, "100 %"),
        (0.9952, "99.5 %"),
        (0.9996, "99.96 %"),
        (-0.99999, "-99.999 %"),
        (1.004, "100 %"),
        (0, "0 %"),
    ],
)
def test_a_share_that_is_not_all_of_it_is_not_written_as_if_it_were(
    share: float, text: str
) -> None:
    assert readable_percent(share) == text


def test_the_largest_share_below_all_of_it_has_a_text() -> None:
    assert readable_percent(1 - 2**-53) == "99.99999999999999 %"


@pytest.mark.parametrize(
    "text", ["\x1b]0;title\x07", "\x9b31m", "a\u202egpj.exe", "\ud800", "a\rb", "\x00"]
)
def test_nothing_that_a_terminal_obeys_is_left(text):
    shown = harmless(text)
    assert shown.isprintable()
    shown.encode("utf-8")


def test_words_of_any_script_and_lines_stay():
    text = "Schwamm, Größe 3 µm³\n多孔 \t 1 × 2"
    assert harmless(text) == text


def test_a_spreadsheet_computes_nothing_and_numbers_stay_numbers():
    table = pd.DataFrame(
        {
            "name": ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-2+3", "scan", "-3.5"],
            "value": [-1.5, 2.0, 3.0, 4.0, 5.0, 6.0],
            "other": [None, 1, "\x1b[31m", "a", "b", "c"],
        }
    )
    made = harmless_table(table)
    assert all(str(cell)[0] == "'" for cell in made["name"][:4])
    assert made["name"].tolist()[4:] == ["scan", "-3.5"]
    assert made["value"].equals(table["value"])
    assert made["other"].tolist()[:2] == [None, 1]
    assert made["other"][2].isprintable()


def test_a_dollar_in_a_figure_is_a_dollar():
    figure = Figure()
    title = figure.suptitle(in_figure(r"$\frac and $\frac"))
    figure.canvas.draw()
    assert title.get_text().replace(r"\$", "$") == r"$\frac and $\frac"


def test_the_name_of_a_file_has_nothing_that_a_system_forbids():
    # those that Windows reserves, by its documentation, and what it does not show
    assert file_name('a<b>c:d"e/f\\g|h?i*j\0k\x1b') == "a_b_c_d_e_f_g_h_i_j_k_"
    assert file_name("Schwamm 多孔 v1.2-a_b") == "Schwamm 多孔 v1.2-a_b"


def test_what_is_too_long_is_cut():
    assert on_one_line("u" * 100_000, 40) == "u" * 39 + "…"
    assert on_one_line("micro\nmetre", 40) == "micro metre"


@pytest.mark.skipif(os.name == "nt", reason="there are no such pipes")
def test_a_pipe_and_what_is_too_long_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for read in (read_text, read_table):
        with pytest.raises(OSError, match="not a regular file"):
            read(tmp_path / "pipe.csv")
    (tmp_path / "long.toml").write_bytes(bytes(11))
    with pytest.raises(OSError, match="larger than 10 bytes"):
        read_text(tmp_path / "long.toml", 10)
    assert read_text(tmp_path / "long.toml") == "\0" * 11


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a," * LONGEST_LINE, "first line is longer"),
        (b"a\0b\n", "zero bytes"),
        (b"", "No columns"),
    ],
)
def test_what_is_no_table_is_told_before_it_is_taken_apart(tmp_path, content, words):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "a.csv")


def test_a_figure_holds_what_can_be_drawn():
    assert in_figure("a\x1b$b") == r"a\x1b\$b"
    assert in_figure("54.4\xa0%") == "54.4\xa0%"
