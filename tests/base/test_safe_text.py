"""What files of others say is text, and commands nothing."""

import os

import pandas as pd
import pytest
from matplotlib.figure import Figure

from hushpore.base.safe_text import (
    LONGEST_LINE,
    file_name,
    harmless,
    harmless_table,
    in_figure,
    on_one_line,
    read_table,
    read_text,
)


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
