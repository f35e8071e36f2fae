"""Public modules under the names that they had in the version before, each with a warning."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader
    from types import ModuleType

#: What the reference documents, by its name of before. Goes with the next version.
RENAMED = {
    "hushpore.cluster.connecting": "hushpore.cluster.connection",
    "hushpore.io.ome_zarr": "hushpore.io.zarr",
    "hushpore.runs.workers": "hushpore.runs.batch_workers",
    "hushpore.samples": "hushpore.sample_data",
}


class RenamedModules:
    """Finds and loads a module of an earlier version, whose names are those of the module of now.

    It is no subclass of the finders and loaders in `importlib.abc`, which take long to import.
    """

    def find_spec(
        self, fullname: str, path: object = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to make the module, or None where it is not one of those."""
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in RENAMED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the machinery to make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Let the module answer with what the one of now holds."""
        now = RENAMED[module.__name__]
        warnings.warn(
            f"{module.__name__} is called {now} now; the old name goes with the next version.",
            DeprecationWarning,
            stacklevel=2,
        )

        def answer(name: str) -> Any:
            return getattr(import_module(now), name)

        vars(module)["__getattr__"] = answer


def understand_old_names() -> None:
    """Have modules found under their old names; only asked where there is no such module."""
    sys.meta_path.append(RenamedModules())
