from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from hushpore.n2v2.training.adam import Adam


def weights() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((3, 4), (5,))]


@pytest.mark.parametrize("as_tensor", [False, True])
def test_it_is_pytorchs_adam(as_tensor: bool) -> None:
    ours, theirs = weights(), weights()
    adam, expected = Adam(ours), torch.optim.Adam(theirs)
    for rate in (1e-2, 3e-3, 1e-3):
        for each in (ours, theirs):
            loss = sum((w**3).sum() for w in each)
            for w in each:
                w.grad = None
            loss.backward()
        adam.step(torch.tensor(rate) if as_tensor else rate)
        expected.param_groups[0]["lr"] = rate
        expected.step()
    for w, reference, moments in zip(ours, theirs, adam.moments, strict=True):
        torch.testing.assert_close(w, reference)
        for name, value in expected.state[reference].items():
            torch.testing.assert_close(moments[name], value)


def test_gradients_are_let_go_of() -> None:
    ours = weights()
    adam = Adam(ours)
    ours[0].sum().backward()
    adam.zero_grad()
    assert all(w.grad is None for w in ours)


def test_a_training_step_imports_no_compiler() -> None:
    code = """
import sys, numpy as np, hushpore
hushpore.denoise(np.random.rand(2, 32, 32).astype("f4"), steps=1, patch_size=16, batch_size=1)
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
