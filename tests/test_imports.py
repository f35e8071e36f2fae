"""The house: which part may import which, and what must not be needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hushpore"

#: What each part may import of hushpore, beside itself. Imports run one way.
ALLOWED = {
    "base": set(),
    "device": {"base"},
    "patches": {"base", "device"},
    "figures": {"base"},
    "scan": {"base", "device"},
    "denoising": {"base", "device", "scan", "patches", "figures"},
    "pores": {"base", "device", "scan"},
    "io": {"base", "device"},
    "sample_data": {"base", "io"},
}
ALLOWED["jobs"] = {"base", "device", "scan", "patches", "figures", "denoising", "pores"}
ALLOWED["runs"] = ALLOWED["jobs"] | {"io", "jobs"}
ALLOWED["cluster"] = ALLOWED["runs"] | {"runs"}
# a front end may use all that lies below it, but not the other one
ALLOWED |= {"cli": set(ALLOWED), "viewer": set(ALLOWED)}

#: What some files name and do not import: the other front end, and what is run with a job.
BY_NAME = {
    "base/display.py": {"viewer"},
    "cli/commands.py": {"viewer"},
    "jobs/__init__.py": {"runs", "cluster"},
}

#: Packages that only the viewer may import.
DESKTOP = {"napari", "qtpy", "magicgui", "superqt", "PyQt6", "PySide6", "npe2", "app_model"}


def imports_of(path: Path, *, by_name: bool = True) -> set[str]:
    """All module names imported by a file, anywhere in it; also later, by a name in a string."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in {path}"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif by_name and isinstance(node, ast.Constant) and str(node.value).startswith("hushpore."):
            found.add(str(node.value).partition(":")[0])
    return found


def circles(imports: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of files each of which imports, perhaps through others, all others of its group."""
    reached = {}
    for start in imports:
        found, left = set(), [start]
        while left:
            new = imports[left.pop()] - found
            found |= new
            left += new
        reached[start] = found
    return {
        frozenset(other for other in found if start in reached[other])
        for start, found in reached.items()
        if start in found
    }


def test_a_circle_is_found_however_long_it_is() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {frozenset("abc")}
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def test_no_file_imports_one_that_imports_it() -> None:
    """Not in a function either, nor for its types alone."""
    files = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path
        for path in SOURCE.rglob("*.py")
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    imports = {}
    for name, path in files.items():
        # a registry names what it does not know
        used = imports_of(path, by_name=False)
        # what is imported from a file, or the file itself
        found = {each if each in files else each.rpartition(".")[0] for each in used}
        imports[name] = (found & set(files)) - {name}
    assert not circles(imports)


@pytest.mark.parametrize("part", ALLOWED)
def test_imports_run_one_way(part: str) -> None:
    allowed = ALLOWED[part] | {part, "_version", "__version__"}
    for path in (SOURCE / part).rglob("*.py"):
        used = {
            name.split(".")[1]
            for name in imports_of(path)
            if name.startswith("hushpore.") and not name.endswith(".yaml")
        }
        extra = BY_NAME.get(path.relative_to(SOURCE).as_posix(), set())
        assert used <= allowed | extra, f"{path} imports {sorted(used - allowed)}"


def test_every_part_has_its_place_in_the_order() -> None:
    parts = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name[0] != "_"}
    assert parts == set(ALLOWED)


@pytest.mark.parametrize("part", sorted(set(ALLOWED) - {"viewer"}))
def test_only_the_viewer_knows_the_desktop(part: str) -> None:
    for path in (SOURCE / part).rglob("*.py"):
        assert not {name.split(".")[0] for name in imports_of(path)} & DESKTOP, path


#: Begins a program in which some packages are not installed.
WITHOUT = """
import sys

class Blind:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *more):
        if name.split(".")[0] not in {packages}:
            return self.finder.find_spec(name, *more)

sys.meta_path[:] = map(Blind, sys.meta_path)
"""

OPTIONAL = {"napari", "qtpy", "magicgui", "superqt", "npe2", "PyQt5", "PyQt6", "PySide6", "cupy"}

WITHOUT_OPTIONAL_PACKAGES = """
import numpy as np
import hushpore
import hushpore.cli

z, y, x = np.ogrid[:8, :64, :64]
ball = (z - 4) ** 2 + (y - 30) ** 2 + (x - 30) ** 2 < 12
scan = np.where(ball, 0.0, 100.0) + np.random.default_rng(0).normal(0, 10, ball.shape)
quick = {"patch_size": 16, "batch_size": 1, "test_time_augmentation": False}
clean = hushpore.denoise(scan, steps=1, device="cpu", **quick)
assert clean.volume.shape == scan.shape
hushpore.denoise(scan, steps=1, device="cpu", method="r2r", **quick)
pores = hushpore.segment_pores(scan, threshold=50, device="cpu")
assert len(pores.pores) == 1
assert hushpore.sample_patches(scan, n_patches=3, patch_size=16).patches.shape == (3, 16, 16)
print(*sys.modules)
"""


def test_library_runs_without_napari_qt_cupy_pydicom_and_a_compiler() -> None:
    code = WITHOUT.format(packages=OPTIONAL | {"pydicom"}) + WITHOUT_OPTIONAL_PACKAGES
    command = [sys.executable, "-W", "error", "-c", code]
    imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    # among them PyTorch's compiler, which takes seconds to import
    spec = (SOURCE.parents[1] / "packaging" / "hushpore.spec").read_text("utf-8")
    found = re.search(r"^UNUSED = (\[.*?\])", spec, re.M | re.S)
    assert found is not None
    unused = ast.literal_eval(found[1])
    assert "torch._dynamo" in unused
    names = {".".join(each.split(".")[:depth]) for each in imported for depth in (1, 2, 3)}
    assert not names & set(unused)


WITHOUT_TORCH = """
import numpy as np, pytest
import hushpore
from hushpore.base.errors import DeviceError, MissingPackageError
from hushpore.cli import main
from hushpore.device.backend import choose_backend

solid = np.hypot(*np.ogrid[-9:10, -9:10]) + np.zeros((8, 1, 1)) > 6
scan = np.where(solid, 100.0, 0.0) + np.random.default_rng(0).normal(0, 10, solid.shape)
np.save("scan.npy", scan)
assert len(hushpore.segment_pores(scan, threshold=50).pores) == 1
assert len(hushpore.measure_labels(~solid).pores) == 1
assert len(hushpore.measure_phases(scan, phases=2).phases) == 2
assert hushpore.transport(~solid)
backend = choose_backend()
assert backend.reason == "no usable GPU: PyTorch is not installed"
assert any("hushpore[denoise]" in line for line in backend.details())
for device in ("cuda", "mps"):
    with pytest.raises(DeviceError, match="PyTorch is not installed"):
        choose_backend(device)
strokes = 1 + solid.astype(np.uint8)
textured = {"strokes": strokes, "texture": "model.safetensors"}
for work, how in (
    (hushpore.denoise, {}), (hushpore.sample_patches, {}), (hushpore.measure_phases, textured)
):
    with pytest.raises(MissingPackageError, match=r"pip install 'hushpore\\[denoise\\]'"):
        work(scan, **how)
with pytest.raises(SystemExit):
    sys.argv = ["hushpore", "run", "scan.npy", "-o", "result"]
    main()
"""


def test_all_but_denoising_and_patches_runs_without_pytorch(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = WITHOUT.format(packages=OPTIONAL | {"torch"}) + WITHOUT_TORCH
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=tmp_path)
    assert "pip install 'hushpore[denoise]'" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["scan.npy"]


def test_import_loads_no_heavy_library() -> None:
    heavy = "{'torch', 'numba', 'scipy', 'skimage', 'pandas', 'matplotlib', 'pydicom', 'napari'}"
    code = f"import sys, hushpore; assert not {heavy} & set(sys.modules), sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
