"""Folding stored batch statistics into convolutions."""

from __future__ import annotations

import pytest
import torch
from dpbench_plugins.extractors.folding import fold_batch_norm
from torch import Tensor, nn

from dpbench import SpecError


def with_statistics(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    draw = torch.Generator().manual_seed(1)
    for values in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
        assert values is not None
        values.copy_(0.5 + torch.rand(values.shape, generator=draw))
    return norm.eval()


def test_a_folded_network_gives_the_same_and_has_no_batch_normalisation() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), with_statistics(nn.BatchNorm2d(4)), nn.ReLU(inplace=True), nn.Conv2d(4, 2, 1)
    ).eval()
    x = torch.randn(5, 3, 6, 6, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = network(x)
        torch.testing.assert_close(fold_batch_norm(network, (3, 6, 6))(x), expected, rtol=1e-4, atol=1e-4)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def test_a_normalisation_without_a_convolution_before_it_is_refused() -> None:
    network = nn.Sequential(with_statistics(nn.BatchNorm2d(3)), nn.Conv2d(3, 2, 1)).eval()
    with pytest.raises(SpecError, match="to follow a convolution"):
        fold_batch_norm(network, (3, 6, 6))


def test_a_normalisation_of_something_else_than_the_convolution_is_refused() -> None:
    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(3, 3, 1), with_statistics(nn.BatchNorm2d(3))

        def forward(self, x: Tensor) -> Tensor:
            outcome: Tensor = self.convolution(x)
            normed: Tensor = self.norm(x)
            return outcome + normed

    with pytest.raises(SpecError, match="computes otherwise"):
        fold_batch_norm(Crossed().eval(), (3, 6, 6))
