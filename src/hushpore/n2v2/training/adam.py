"""Adam (https://arxiv.org/abs/1412.6980), as one operation over all weights.

PyTorch's own class comes to the same operation. On its first use it imports PyTorch's compiler,
which takes as long as PyTorch itself, before the first step of a training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable


class Adam:
    """The optimiser of some weights.

    Parameters
    ----------
    parameters : iterable of torch.nn.Parameter
        On one device.

    Attributes
    ----------
    parameters : list of torch.nn.Parameter
        The weights.
    moments : list of dict of str to torch.Tensor
        For each of them what is kept: "step", "exp_avg" and "exp_avg_sq", as PyTorch names them.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.moments = [
            {
                "step": torch.zeros((), device=each.device),
                "exp_avg": torch.zeros_like(each),
                "exp_avg_sq": torch.zeros_like(each),
            }
            for each in self.parameters
        ]

    def zero_grad(self) -> None:
        """Let go of the gradients of the step before."""
        for each in self.parameters:
            each.grad = None

    @torch.no_grad()
    def step(self, rate: float | torch.Tensor) -> None:
        """Change the weights by their gradients, all of which there must be.

        Parameters
        ----------
        rate : float or torch.Tensor
            Learning rate; on the device it can change while the step is replayed.
        """
        counts, first, second = (
            [each[name] for each in self.moments] for name in ("step", "exp_avg", "exp_avg_sq")
        )
        weights: list[torch.Tensor] = list(self.parameters)
        gradients = [each.grad for each in self.parameters if each.grad is not None]
        update: Any = torch._fused_adam_  # two signatures, of which one is described
        torch._foreach_add_(counts, 1)
        update(
            weights, gradients, first, second, [], counts, lr=rate, beta1=0.9, beta2=0.999,
            weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip
