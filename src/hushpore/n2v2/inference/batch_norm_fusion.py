"""Batch normalisation put into the convolutions before it, where nothing is trained any more."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

if TYPE_CHECKING:
    from hushpore.n2v2.model import UNet


def fuse_batch_norm(network: UNet) -> UNet:
    """Return a network that computes the same with fewer operations, for prediction alone.

    In evaluation mode a normalisation multiplies each channel by a number and adds another, which
    the convolution before it can do at once. The weights are put together in float64.

    Parameters
    ----------
    network : UNet
        In evaluation mode; stays as it is.
    """
    result = copy.deepcopy(network)
    for block in result.children():
        if isinstance(block, nn.Sequential):
            _fuse(block)
    return result


def _fuse(block: nn.Sequential) -> None:
    for number, normalisation in enumerate(block):
        if isinstance(normalisation, nn.BatchNorm2d | nn.BatchNorm3d):
            before = block[number - 1]
            assert isinstance(before, nn.Conv2d | nn.Conv3d)
            block[number - 1] = fuse_conv_bn_eval(before.double(), normalisation.double()).float()
            block[number] = nn.Identity()
