"""Pages, and the strings of the code that a user may see, are in plain words of the field."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hushpore.base.preferences import Preferences
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PHRASES = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))["phrase"]

#: Pages that a script writes; the strings that they are made of are checked in their sources.
GENERATED = {"figures.md", "settings.md", "columns.md", "licences.md"}

PAGES = [
    page
    for page in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name not in GENERATED and not {"_build", "build"} & set(page.parts)
]

#: Most lines of a page.
MOST_LINES = 200


def found(text: str) -> list[str]:
    """Return the phrases in a text, each with what to write instead."""
    plain = " ".join(text.split())
    return [
        f"'{match[0]}' ({plain[max(0, match.start() - 40) : match.end() + 40]}): {phrase['say']}"
        for phrase in PHRASES
        for match in re.finditer(phrase["avoid"], plain, re.I)
    ]


def prose(page: str) -> str:
    """Return the text of a page without its code and the targets of its links."""
    page = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.M | re.S)
    lines = [line for line in page.splitlines() if not line.startswith("    ")]
    return re.sub(r"``?[^`]+``?|\]\([^)]*\)", " ", "\n".join(lines))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words_and_not_too_long(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("\n") <= MOST_LINES
    assert found(prose(text)) == []


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the strings of some code that may be shown, docstrings aside.

    Those are the constants of three words or more; in an f-string ``{}`` stands for a value.
    """
    tree = ast.parse(source)
    aside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            aside.add(node.value)
        if isinstance(node, ast.JoinedStr):
            aside.update(node.values)
            parts = (v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
            yield node.lineno, "".join(map(str, parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in aside:
            yield node.lineno, node.value


SOURCE = ROOT / "src" / "hushpore"


@pytest.mark.parametrize("folder", sorted(path.name for path in SOURCE.iterdir() if path.is_dir()))
def test_the_strings_of_a_folder_are_in_plain_words(folder: str) -> None:
    hard = [
        f"{path.relative_to(SOURCE)}:{line}: {each}"
        for path in sorted((SOURCE / folder).rglob("*.py"))
        for line, text in strings(path.read_text("utf-8"))
        if len(text.split()) > 2
        for each in found(text)
    ]
    assert hard == []


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase["example"])
def test_a_phrase_is_found_in_pages_and_strings_but_not_in_code_and_docstrings(
    phrase: dict[str, str],
) -> None:
    def is_found(text: str) -> bool:
        return any(hit.endswith(phrase["say"]) for hit in found(text))

    example = phrase["example"]
    assert is_found(prose(f"A page: {example}."))
    assert not is_found(prose(f"`{example}`\n\n    {example}\n\n```\n{example}\n```\n"))
    code = f'def f(x):\n    """{example}"""\n    show(f"{{x}}", note="{example}")\n'
    assert [text for _, text in strings(code) if is_found(text)] == [example]
    assert found(phrase["say"]) == []


@pytest.mark.parametrize(
    ("name", "label"),
    sorted(
        {
            (option.name, option.label)
            for settings in (*(job.settings for job in JOBS.values()), Preferences)
            for option in settings.options()
        }
    ),
)
def test_label_and_flag_of_a_setting_share_a_noun(name: str, label: str) -> None:
    assert len(label.split()) <= 3
    assert stems(label) & stems(name), f"{label!r} and --{name.replace('_', '-')} share no word"


def stems(words: str) -> set[str]:
    """Return the beginnings of some words: 'sampler' and 'Sampling' share 'samp'."""
    return {word[:4] for word in re.findall(r"[a-z]+", words.lower())}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_fields_that_a_page_names_are_labels_of_settings(page: Path) -> None:
    labels = {option.label for job in JOBS.values() for option in job.settings.options()}
    named = re.findall(r"\*More\*,\s+\*([^*]+)\*", page.read_text("utf-8"))
    assert set(map(" ".join, map(str.split, named))) <= labels
