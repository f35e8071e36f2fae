"""Tensors and JSON facts in one safetensors file; reading it runs no code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushpore.base.atomic import new_file
from hushpore.base.errors import InputError, OutputError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import torch


#: Exceptions that a header with unexpected content may raise.
ODD = (KeyError, ValueError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError)

#: Name of the header entry with the checksum of everything else.
_SUM = "blake2b"


def write_tensors(
    target: Path, tensors: dict[str, torch.Tensor], facts: dict[str, dict[str, Any]]
) -> None:
    """Write tensors and JSON facts to one safetensors file, atomically.

    Raises OutputError if it cannot be written; an older file is then unchanged.
    """
    from safetensors.torch import save

    header = {name: json.dumps(each) for name, each in facts.items()}
    known = {**header, _SUM: sum_of_tensors(tensors, facts)}
    with new_file(target, overwrite=True) as part:
        part.write_bytes(save(tensors, known))


def sum_of_tensors(tensors: dict[str, torch.Tensor], facts: dict[str, dict[str, Any]]) -> str:
    """Return the checksum of tensors and JSON facts, 32 hexadecimal digits."""
    from safetensors.torch import save

    header = {name: json.dumps(each) for name, each in facts.items()}
    return _sum_of(header, _values_of(save(tensors)))


def check_file_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Check that a file can be written, before hours of computing.

    `overwrite`: whether an existing file may be replaced.
    Raises OutputError if the file cannot be written, or if it exists and may not be replaced.
    """
    target = Path(path).expanduser()
    if not target.parent.is_dir():
        raise OutputError(f"Cannot write {target}: there is no folder {target.parent}.")
    if target.is_dir() or (target.exists() and not overwrite):
        raise OutputError(f"{target} already exists. Choose another name, or allow overwriting.")
    return target


def read_tensors(
    path: str | os.PathLike[str], entry: str, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Read tensors and the facts of one entry of a safetensors file.

    `entry`: name of the facts in the header. `wanted`: selects the tensors to read by name. Raises
    InputError if there is no such file, if it is a pickle, if it is damaged, or if it lacks these
    facts.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    source = Path(path).expanduser()
    if source.is_dir():
        raise InputError(f"{source.resolve()} is a folder; expected a .safetensors file.")
    if not source.is_file():
        raise InputError(f"The model file {source} does not exist.")
    with source.open("rb") as file:
        start = file.read(9)
    # the length of the header, at the start of a safetensors file, may look like either signature
    if start[8:] != b"{" and (start[:2] == b"PK" or start[:1] == b"\x80"):
        raise InputError(
            f"{source.name} is a pickled PyTorch file, which can run code when it is read. "
            "Expected a .safetensors file written by hushpore."
        )
    try:
        # not memory-mapped: if the file were shortened meanwhile, the program would crash
        content = source.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        known = header["__metadata__"]
        facts = json.loads(known[entry])
        if known[_SUM] != _sum_of(known, _values_of(content)):
            raise ValueError("its sum is another")
        tensors = {name: value for name, value in load(content).items() if wanted(name)}
        return dict(facts), tensors
    except (SafetensorError, *ODD) as error:
        raise not_whole(source, error) from error


def _values_of(content: bytes) -> memoryview:
    """Return the tensor data of a safetensors file, which follow the header."""
    return memoryview(content)[8 + int.from_bytes(content[:8], "little") :]


def _sum_of(facts: dict[str, str], values: memoryview) -> str:
    """Return the checksum of facts and tensors."""
    told = json.dumps({name: text for name, text in facts.items() if name != _SUM}, sort_keys=True)
    digest = hashlib.blake2b(told.encode(), digest_size=16)
    digest.update(values)
    return digest.hexdigest()


def not_whole(path: str | os.PathLike[str], error: Exception) -> InputError:
    """Return the error for a damaged file, or a file with unexpected content."""
    return InputError(
        f"{Path(path).name} is not a hushpore model, or it is damaged ({type(error).__name__}). "
        "Copy the original file again, or train a new model."
    )
