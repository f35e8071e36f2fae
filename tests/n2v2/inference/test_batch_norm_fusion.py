from __future__ import annotations

import pytest
import torch
from torch import nn

from hushpore.n2v2.inference.batch_norm_fusion import fuse_batch_norm
from hushpore.n2v2.model import Architecture, UNet, build_network


def trained_like(architecture: Architecture) -> UNet:
    """Return a network whose normalisations have statistics and weights of their own."""
    generator = torch.Generator().manual_seed(0)
    network = build_network(architecture, generator)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d | nn.BatchNorm3d):
            for values in (module.weight.data, module.bias.data, module.running_mean):
                values.normal_(generator=generator)
            module.running_var.uniform_(0.1, 3, generator=generator)
    return network.eval()


@pytest.mark.parametrize(
    "architecture",
    [
        Architecture(2),
        Architecture(2, "n2v", inputs=3, outputs=2, features=8),
        Architecture(3, features=8),
        Architecture(3, flat=True, features=8),
    ],
    ids=["2D", "N2V", "3D", "flat"],
)
def test_a_folded_network_computes_the_same(architecture: Architecture) -> None:
    network = trained_like(architecture)
    size = (8, 16, 12)[-architecture.dimensions :]
    x = torch.randn(2, architecture.inputs, *size, generator=torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        # in float64 the truth, which both approach alike
        exact = UNet(architecture).eval().double()
        exact.load_state_dict(network.state_dict())
        truth = exact(x.double()).float()
        scale = float(truth.std())
        torch.testing.assert_close(fuse_batch_norm(network)(x), truth, rtol=1e-4, atol=1e-4 * scale)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


def test_nothing_is_left_to_normalise() -> None:
    modules = fuse_batch_norm(trained_like(Architecture(2))).modules()
    assert not any(isinstance(each, nn.BatchNorm2d) for each in modules)
