"""Denoising for Apple's GPU: what is asked of it is what PyTorch has there."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import hushpore
from hushpore import Volume
from hushpore.base.rescaled import Scaled
from hushpore.denoising.inference import volumes
from hushpore.denoising.training.step import Learner
from hushpore.device.backend import Backend

pytestmark = pytest.mark.usefixtures("small_network")


@dataclass(frozen=True)
class PretendedMac(Backend):
    """A CPU that is taken for the GPU of a Mac."""

    name: str = "Apple GPU"

    @property
    def is_apple(self) -> bool:
        return True

    def release(self) -> None:
        pass


@cache
def kernels() -> dict[str, str]:
    """Return PyTorch's own list of operations, each with what it is implemented for."""
    spec = importlib.util.find_spec("torchgen")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "packaged" / "ATen" / "native"
    text = (folder / "native_functions.yaml").read_text(encoding="utf-8")
    entries = re.split(r"^- func: ", text, flags=re.M)[1:]
    return {entry[: entry.index("(")]: entry for entry in entries}


def is_there(name: str) -> bool:
    """Whether MPS has an operation, or it is made of others for every device."""
    entry = kernels()[name]
    other = re.search(r"structured_delegate: (\S+)", entry)
    if other:
        entry = kernels()[other[1]]
    return "dispatch:" not in entry or re.search(r"\bMPS\b|Composite", entry) is not None


class Mac(TorchDispatchMode):
    """Refuses what MPS does not have."""

    done: ClassVar[set[str]] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.name().removeprefix("aten::")
        assert is_there(name), f"{name} is not there on a Mac"
        found = function(*args, **(kwargs or {}))
        for each in tree_leaves((args, kwargs, found)):
            if isinstance(each, torch.Tensor):
                assert each.dtype not in (torch.float64, torch.complex128), f"{name} in 64 bits"
        self.done.add(name)
        return found


def test_it_is_seen_what_a_mac_does_not_have() -> None:
    assert [is_there(name) for name in ("sort", "_fft_r2c", "take")] == [True, True, False]
    with Mac(), pytest.raises(AssertionError, match="in 64 bits"):
        torch.ones(3).double()


@pytest.mark.parametrize(("method", "dimensions"), [("r2r", 2), ("r2r", 3), ("n2v2", 2)])
def test_a_mac_has_all_that_a_job_asks_of_its_gpu(
    method: str, dimensions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, names in (
        (Learner, ("_train", "validate", "fit_correction_and_shares")),
        (volumes, ("predict_tile",)),
    ):
        for name in names:
            plain = getattr(place, name)

            def on_mac(*args: Any, plain: Any = plain, **how: Any) -> Any:
                with Mac():
                    return plain(*args, **how)

            monkeypatch.setattr(place, name, on_mac)
    Mac.done.clear()
    noisy = np.random.default_rng(0).normal(1000, 50, (8, 40, 40)).astype(np.uint16)
    scan = Volume(Scaled(noisy, 0.5, -7.0))
    how = {"steps": 3, "batch_size": 2, "patch_size": 16, "patch_depth": 8}
    how |= {"method": method, "dimensions": dimensions}
    found = hushpore.run("denoise", scan, how, PretendedMac())
    assert found.provenance["device"].startswith("Apple GPU")
    assert Mac.done >= {"convolution_backward", "_fused_adam_", "native_batch_norm", "sub.Tensor"}
    assert ("_fft_c2r" in Mac.done) == (method == "r2r")
    expected = hushpore.run("denoise", scan, how, "cpu")
    np.testing.assert_array_equal(found.volume.data, expected.volume.data)


def test_places_of_a_training_are_drawn_by_the_cpu() -> None:
    values = np.random.default_rng(0).normal(size=(2, 40, 40)).astype(np.float32)
    scan = Volume(values, auxiliary={"where": values > 0})
    how = {"steps": 1, "batch_size": 1, "patch_size": 16, "train_at": "where"}
    found = hushpore.run("denoise", scan, how, PretendedMac())
    assert "training regions need 64-bit numbers" in found.provenance["device"]
