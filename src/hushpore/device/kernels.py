"""CUDA kernels from source files, compiled by CuPy for the GPU that is there."""

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
    """Return what is compiled of a source file: behind what all files of its folder share."""
    files = (source.with_name("common.cuh"), source)
    return "".join(file.read_text(encoding="utf-8") for file in files)


class Kernels:
    """The compiled kernels of a source file, on the current CUDA device; see `load_kernels`."""

    def __init__(self, source: Path, definitions: tuple[str, ...] = ()) -> None:
        import cupy

        text = text_of(source)
        self._module = cupy.RawModule(code=text, options=OPTIONS + definitions)
        # now, and not when a kernel is first timed
        self._module.compile()

    def launch(self, name: str, count: int, *arguments: Any) -> None:
        """Run a kernel with at least `count` threads.

        `count`: how many threads have something to do. ``*arguments``: arrays in C order, and NumPy
        scalars of the very types that the kernel takes.
        """
        self.launch_blocks(name, (count + _BLOCK - 1) // _BLOCK, *arguments)

    def launch_blocks(self, name: str, blocks: int, *arguments: Any) -> None:
        """Run a kernel whose threads know how many blocks there are, and work together in each.

        ``*arguments``: as for `launch`.
        """
        self._module.get_function(name)((blocks,), (_BLOCK,), arguments)


@lru_cache
def load_kernels(source: Path, device: str, definitions: tuple[str, ...] = ()) -> Kernels:
    """Return the kernels of a file on the current CUDA device, loaded once a device.

    CuPy keeps what it has compiled on the disk, so that later processes load it.

    `source`: a ``.cu`` file. `definitions`: options of the compiler that define macros,
    ``-DNAME=VALUE``.
    """
    return Kernels(source, definitions)
