"""Advice names only flags that the command has."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pytest
from scipy import ndimage

import hushpore as library
from hushpore.base.volume import Volume
from hushpore.cli.commands import hushpore
from hushpore.cli.flags import in_flags
from hushpore.jobs import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hushpore.base.events import Note

_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?![\w=-])")
SOURCE = Path(library.__file__).parent


def commands() -> dict[str, click.Command]:
    """Return all commands by name."""
    context = click.Context(hushpore)
    found = {name: hushpore.get_command(context, name) for name in hushpore.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def flags_of(command: click.Command) -> set[str]:
    """Return the flags of a command."""
    params = [each for each in command.params if isinstance(each, click.Option)]
    return {flag for each in params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}


def void(shape: tuple[int, ...] = (24, 40, 44), share: float = 0.25) -> np.ndarray:
    smooth = ndimage.gaussian_filter(np.random.default_rng(3).random(shape), 2)
    return np.asarray(smooth < np.quantile(smooth, share))


def grey(noise: float, share: float = 0.25) -> np.ndarray:
    values = np.where(void(share=share), 300, 1000.0)
    return (values + np.random.default_rng(1).normal(0, noise, values.shape)).astype(np.float32)


def in_air(noise: float) -> np.ndarray:
    _, y, x = np.ogrid[:24, :40, :44]
    sample = (y - 20) ** 2 + (x - 22) ** 2 < 15**2
    return np.where(sample, grey(noise), grey(noise) - grey(0) + 300).astype(np.float32)


def with_grains() -> np.ndarray:
    values = grey(20)
    values[4:8, 4:9, 4:9] = 9000
    return values


def scenes() -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    """Yield inputs that call for advice, with the settings of their job."""
    labels = ndimage.label(void())[0].astype(np.int32)
    yield "pores", grey(20), {}
    yield "pores", grey(400), {}
    yield "pores", grey(20, 0.97), {}
    yield "pores", grey(20, 0.6), {"pores_are": "bright"}
    yield "pores", grey(20, 0.001), {}
    yield "pores", np.random.default_rng(0).normal(900, 50, (20, 30, 30)).astype(np.float32), {}
    yield "pores", in_air(20), {}
    yield "pores", in_air(20), {"exterior": "keep"}
    yield "pores", in_air(20), {"pores_are": "bright"}
    yield "pores", with_grains(), {}
    yield "pores", labels, {}
    yield "pores", np.where(void(), 0.94, 0.03).astype(np.float32), {}
    yield "pores", np.where(void(), 2, 1).astype(np.uint8), {}
    yield "pores", void(), {}
    yield "pores", ~void(share=0.01), {}
    yield "pores", void(), {"threshold": "sauvola", "edge_pores": "sizes"}
    yield "pores", grey(20), {"intervals": True, "edge_pores": "sizes"}
    yield "measure", labels, {}
    yield "measure", 3 * labels, {"edge_pores": "sizes"}
    yield "measure", void(), {}
    yield "measure", ~void(share=0.01), {}
    yield "measure", np.ones((9, 10, 11), np.bool_), {}
    yield "measure", np.zeros((9, 10, 11), np.uint8), {}
    yield "measure", np.where(void(share=0.98), 2, 1).astype(np.uint8), {"values": "labels"}
    yield "measure", np.where(void(), 2, 1).astype(np.uint8), {"pores_are": "dark"}
    yield "measure", np.where(void(), 0.94, 0.03).astype(np.float32), {}
    yield "measure", np.eye(20, dtype=np.uint8).reshape(1, 20, 20), {}
    yield "phases", grey(20), {}
    yield "phases", in_air(20), {"thresholds": "600, 5000"}
    yield "phases", void() + np.uint8(1), {"are_labels": True}


def advice() -> Iterator[tuple[str, Note]]:
    """Yield each remark on the scenes, with the job that it is of."""
    for job, values, settings in scenes():
        volume = Volume(values, spacing=2, unit="um", name="scan")
        for note in library.run(job, volume, settings).remarks:
            yield job, note


def test_every_remedy_is_accepted_by_the_command_that_it_is_for() -> None:
    labels, known = set(), commands()
    for job, note in advice():
        command = known[job]
        message = in_flags(note.message, command)
        assert set(_FLAG.findall(message)) <= flags_of(command), message
        if note.remedy is None:
            continue
        labels.add(note.remedy.label)
        words = shlex.split(note.remedy.flags)
        if note.remedy.job:
            assert words[:2] == ["hushpore", note.remedy.job]
            command, words = known[note.remedy.job], words[2:]
        # raises an error for an unknown flag or a value that it does not take
        command.make_context(job, ["scan.tif", "-o", "out", *words])
    # the scenes call for much of the advice that there is
    assert len(labels) >= 10, labels


@pytest.fixture(scope="module")
def nodes() -> list[tuple[str, ast.AST]]:
    """Return all nodes of the syntax trees of the code, with the names of their files."""
    files = sorted(SOURCE.rglob("*.py"))
    trees = [(path.name, ast.parse(path.read_text(encoding="utf-8"))) for path in files]
    return [(name, node) for name, tree in trees for node in ast.walk(tree)]


def texts(nodes: list[tuple[str, ast.AST]]) -> Iterator[tuple[str, str]]:
    """Yield the file and each text in the code, without docstrings, and with {} for values."""
    parts = set()
    for _, node in nodes:
        inside = node.values if isinstance(node, ast.JoinedStr) else ()
        docstring = (node.value,) if isinstance(node, ast.Expr) else ()
        parts |= {id(part) for part in (*inside, *docstring)}
    for name, node in nodes:
        if isinstance(node, ast.JoinedStr):
            pieces = (getattr(part, "value", "") for part in node.values)
            yield name, "".join(each if isinstance(each, str) else "{}" for each in pieces)
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in parts:
            yield name, node.value


def test_every_flag_that_a_text_names_is_one_of_a_command(nodes: list[tuple[str, ast.AST]]) -> None:
    flags = {name: flags_of(command) for name, command in commands().items()}
    every = set().union(*flags.values(), flags_of(hushpore))
    found = 0
    for file, text in texts(nodes):
        # the first part of a flag that is composed ends in a hyphen
        named = {flag for flag in _FLAG.findall(text) if not flag.endswith("-")}
        found += len(named)
        assert named <= every, f"{file}: {text}"
        for name, words in re.findall(r"hushpore ([a-z]+)((?: [^\s,;:]+)*)", text):
            if name in flags:
                assert set(_FLAG.findall(words)) <= flags[name], f"{file}: {text}"
    assert found > 30


def test_every_remedy_in_the_code_names_settings_of_a_job(nodes: list[tuple[str, ast.AST]]) -> None:
    """Also those that none of the scenes above calls for."""
    options = {name: {each.name for each in kind.settings.options()} for name, kind in JOBS.items()}
    found = 0
    for file, node in nodes:
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Remedy"):
            continue
        if len(node.args) < 2 or not isinstance(node.args[1], ast.Dict):
            continue
        names = {key.value for key in node.args[1].keys if isinstance(key, ast.Constant)}
        job = node.args[2].value if len(node.args) > 2 else ""
        assert any(names <= options[each] for each in ([job] if job else options)), (file, names)
        found += 1
    assert found > 8


@pytest.mark.parametrize("command", ["pores", "measure"])
def test_errors_about_values_name_flags_of_their_command(command: str) -> None:
    constant = Volume(np.full((9, 10, 11), 137, np.uint8), name="scan")
    with pytest.raises(library.InputError) as caught:
        library.run(command, constant)
    known = commands()[command]
    assert set(_FLAG.findall(in_flags(str(caught.value), known))) <= flags_of(known)
