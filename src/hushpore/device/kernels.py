"""CUDA kernels from source files, compiled by CuPy for the current GPU."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

#: Threads of a block.
_BLOCK = 256

#: Fused multiply-add rounds once where a CPU rounds twice, and results would differ.
OPTIONS = ("--std=c++14", "--fmad=false")


def text_of(source: Path) -> str:
    """Return the source text of a file, preceded by the ``common.cuh`` of its folder."""
    files = (source.with_name("common.cuh"), source)
    return "".join(file.read_text(encoding="utf-8") for file in files)


class Kernels:
    """The compiled kernels of a source file, on the current CUDA device; see `load_kernels`."""

    def __init__(self, source: Path, definitions: tuple[str, ...] = ()) -> None:
        import cupy

        text = text_of(source)
        self._module = cupy.RawModule(code=text, options=OPTIONS + definitions)
        # now, so that timings of the first launch exclude the compilation
        self._module.compile()

    def launch(self, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel with at least `count` threads.

        `count`: number of threads needed. ``*arguments``: arrays in C order, and NumPy scalars of
        exactly the types of the kernel.
        """
        self.launch_blocks(name, (count + _BLOCK - 1) // _BLOCK, *arguments)

    def launch_blocks(self, name: str, blocks: int, *arguments: Any) -> None:
        """Run a kernel with a number of blocks.

        ``*arguments``: as for `launch`.
        """
        self._module.get_function(name)((blocks,), (_BLOCK,), arguments)


@lru_cache
def load_kernels(source: Path, device: str, definitions: tuple[str, ...] = ()) -> Kernels:
    """Return the kernels of a file on the current CUDA device, loaded once per device.

    CuPy caches compiled kernels on disk for later processes.

    `source`: a ``.cu`` file. `definitions`: options of the compiler that define macros,
    ``-DNAME=VALUE``.
    """
    return Kernels(source, definitions)
