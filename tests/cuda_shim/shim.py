"""CUDA kernels compiled by g++ and run on the CPU, launched like those on a GPU."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock  # of PyTorch

#: Where libraries are built, once for all processes that ask for the same.
BUILT = Path(__file__).parents[2] / "build" / "kernels"

HEADER = Path(__file__).parent / "cuda_shim.h"

#: Orders in which the threads of a launch are run.
ORDERS = ("forward", "reverse", "shuffled", "parallel", "warps")

#: What CuPy 14.2 adds to the options that it is given.
OF_CUPY = ("-ftz=true", "--device-as-default-execution-space")

_SIGNATURE = re.compile(r"__global__ void (\w+)\s*\(([^)]*)\)")
_TYPES = {"int": ctypes.c_int, "long long": ctypes.c_longlong, "float": ctypes.c_float}
_TYPES["double"] = ctypes.c_double

# CuPy passes what it is given as it is, so that it has to be of the very type
_SCALARS = {"int": np.int32, "long long": np.int64, "float": np.float32, "double": np.float64}
_ARRAYS = {"unsigned char": np.uint8, "unsigned short": np.uint16, "unsigned": np.uint32}
_ARRAYS |= {"u64": np.uint64, **_SCALARS}


class ShimKernels:
    """The kernels of a source file; as `Kernels` of the package, for NumPy arrays.

    Parameters
    ----------
    source : Path
        A ``.cu`` file.
    flags : tuple of str
        Further flags of the compiler.
    library : object, optional
        Where they are built already.
    """

    def __init__(self, source: Path, flags: tuple[str, ...] = (), library: Any = None) -> None:
        self.order = "forward"
        self._signatures = _signatures(source)
        self._together = _working_together(source)
        self._library = library or ctypes.CDLL(str(_build([source], flags)))

    def launch(self, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel with at least `count` threads."""
        self.launch_blocks(name, (count + 255) // 256, *arguments)

    def launch_blocks(self, name: str, blocks: int, *arguments: Any) -> None:
        """Run a kernel of so many blocks; of few threads each, where these work together."""
        way = "blocks" if name in self._together else "launch"
        self._run(f"{way}_{name}", name, blocks, arguments)

    @property
    def hops(self) -> int:
        """Pointers that kernels have followed so far."""
        return ctypes.c_longlong.in_dll(self._library, "hops_followed").value

    @property
    def atomics(self) -> int:
        """Atomic operations that kernels have done so far, but for those in a block's memory."""
        return ctypes.c_longlong.in_dll(self._library, "atomics_done").value

    @property
    def additions(self) -> int:
        """Of the atomic operations those that add, in a block's memory, too."""
        return ctypes.c_longlong.in_dll(self._library, "additions_done").value

    def _run(self, function: str, name: str, blocks: int, arguments: tuple[Any, ...]) -> None:
        order = ctypes.c_int(ORDERS.index(self.order))
        types = [_type_of(text) for text in self._signatures[name].split(",")]
        assert len(types) == len(arguments), f"{name} takes {types}"
        values = [_value(kind, given) for kind, given in zip(types, arguments, strict=True)]
        getattr(self._library, function)(ctypes.c_longlong(blocks), order, *values)


def build_together(sources: list[Path], flags: tuple[str, ...] = ()) -> dict[Path, ShimKernels]:
    """Return the kernels of several files, of one library: that is built faster."""
    library = ctypes.CDLL(str(_build(sources, flags)))
    return {source: ShimKernels(source, flags, library) for source in sources}


def _signatures(source: Path) -> dict[str, str]:
    return dict(_SIGNATURE.findall(source.read_text(encoding="utf-8")))


def _working_together(source: Path) -> set[str]:
    """Return the kernels whose threads ask how many blocks there are."""
    _, *texts = re.split(r"__global__ void ", source.read_text(encoding="utf-8"))
    return {
        text.partition("(")[0].strip() for text in texts if re.search("gridDim|_in_block", text)
    }


def _build(sources: list[Path], flags: tuple[str, ...]) -> Path:
    lines = ['#include "cuda_shim.h"']
    for number, source in enumerate(sources):
        # what two files name alike is not the same
        space = f"kernels_{number}"
        common = source.with_name("common.cuh")
        lines.append(f'namespace {space} {{\n#include "{common}"\n#include "{source}"\n}}')
        for name, declared in _signatures(source).items():
            names = ", ".join(re.findall(r"(\w+)\s*(?:,|$)", declared))
            text = declared.replace("u64", "unsigned long long")
            for kind, run in (
                # only threads of a block wait for each other
                ("launch", "run_threads(blocks, 256, order % 4"),
                ("blocks", "run_blocks(blocks, order"),
            ):
                lines.append(
                    f'extern "C" void {kind}_{name}(long long blocks, int order, {text}) '
                    f"{{ {run}, [&] {{ {space}::{name}({names}); }}); }}"
                )
    command = ["g++", "-std=c++20", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-fopenmp"]
    command += [*flags, f"-I{Path(__file__).parent}"]
    text = "\n".join(lines)
    said = [text, *command, *(each.read_text(encoding="utf-8") for each in (HEADER, *sources))]
    name = hashlib.sha256("\0".join(said).encode()).hexdigest()[:20]
    BUILT.mkdir(parents=True, exist_ok=True)
    library = BUILT / f"{name}.so"
    with FileLock(BUILT / f"{name}.lock"):
        if not library.exists():
            path, part = library.with_suffix(".cpp"), library.with_suffix(".part")
            path.write_text(text, encoding="utf-8")
            command += [str(path), "-o", str(part)]
            subprocess.run(command, check=True, capture_output=True, text=True)
            os.replace(part, library)
    return library


def _type_of(text: str) -> str:
    """Return the type of a parameter; of a pointer with an asterisk at its end."""
    text = text.replace("const ", "").replace("__restrict__ ", "")
    kind, _, name = text.strip().rpartition(" ")
    return kind + "*" * name.startswith("*")


def _value(kind: str, given: Any) -> Any:
    if kind.endswith("*"):
        assert isinstance(given, np.ndarray)
        assert given.flags.c_contiguous
        assert given.dtype == _ARRAYS[kind.removesuffix("*")], (kind, given.dtype)
        return ctypes.c_void_p(given.ctypes.data)
    assert type(given) is _SCALARS[kind], (kind, type(given))
    return _TYPES[kind](given)


def nvrtc_problem(source: Path, architecture: str, definitions: tuple[str, ...] = ()) -> str | None:
    """Compile a file as CuPy does, which takes neither GPU nor driver.

    Returns what the compiler complains of, nothing where it does not, and None where there is no
    compiler.
    """
    from hushpore.pores.gpu.engine import OPTIONS, text_of

    library = nvrtc_library()
    if library is None:
        return None
    nvrtc = ctypes.CDLL(str(library))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = text_of(source).encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None)
    words = [f"--gpu-architecture={architecture}", *OPTIONS, *definitions, *OF_CUPY]
    options = (ctypes.c_char_p * len(words))(*[word.encode() for word in words])
    failed = nvrtc.nvrtcCompileProgram(program, len(words), options)
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or ("failed" if failed else "")


def nvrtc_library() -> Path | None:
    """Return the compiler's library, of the packages for CUDA 12 or 13; None without."""
    spec = importlib.util.find_spec("nvidia")
    folders = (spec and spec.submodule_search_locations) or []
    found = [path for folder in folders for path in Path(folder).glob("cu*/lib/libnvrtc.so.[0-9]*")]
    return found[0] if found else None
