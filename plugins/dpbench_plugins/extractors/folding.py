"""Fold batch normalisation in evaluation mode into the convolutions before it.

It registers nothing. The folded network gives the same numbers, up to rounding. It consists of torch's own convolutions
with a bias, activations that do not write in place, and pooling; none of these can use batch statistics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpbench import SpecError

if TYPE_CHECKING:
    from torch import nn


def fold_batch_norm(network: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Fold the batch normalisation of a network in evaluation mode into its convolutions, in place; return the network.

    Inputs are (c, *shape). Padding that depends on the size of the input is made constant, for this shape.

    Raises:
        SpecError: a batch normalisation does not directly follow a convolution, or has another input.
    """
    import torch
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    called: list[tuple[str, nn.Module, torch.Size]] = []
    named = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d | nn.BatchNorm2d)]

    def record_input_shape(name: str) -> Any:
        return lambda module, inputs: called.append((name, module, inputs[0].shape))

    handles = [module.register_forward_pre_hook(record_input_shape(name)) for name, module in named]
    trial = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network(trial)
    for handle in handles:
        handle.remove()
    following = [*called[1:], ("", nn.Identity(), torch.Size())]
    for (name, module, seen), (after, norm, _) in zip(called, following, strict=True):
        if not isinstance(module, nn.Conv2d):
            continue
        folded = fuse_conv_bn_eval(module, norm) if isinstance(norm, nn.BatchNorm2d) else module
        if folded is not module:
            _replace_module(network, after, getattr(norm, "act", nn.Identity()))
        _replace_module(network, name, _convert_to_plain_convolution(folded, seen))
    for module in network.modules():
        if isinstance(module, nn.ReLU | nn.ReLU6):
            module.inplace = False  # a layer's outcome stays what it gave: gradients are asked by it
    if left := [name for name, layer in network.named_modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]:
        raise SpecError(f"Expected each batch normalisation to follow a convolution, which {left[0]} does not.")
    with torch.no_grad():
        same = torch.allclose(network(trial), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().mean()))
    if not same:
        raise SpecError("A network computes otherwise once its batch normalisation is folded: one reads another input.")
    return network.requires_grad_(False)


def _convert_to_plain_convolution(convolution: Any, input_shape: tuple[int, ...]) -> nn.Module:
    """Convert a convolution to `nn.Conv2d`; TensorFlow's padding becomes a constant padding before it."""
    from torch import nn

    plain = nn.Conv2d(
        convolution.in_channels, convolution.out_channels, convolution.kernel_size, convolution.stride,
        convolution.padding, convolution.dilation, convolution.groups, convolution.bias is not None,
    )  # fmt: skip
    plain.load_state_dict(convolution.state_dict())
    if type(convolution) is nn.Conv2d:
        return plain
    pads: list[int] = []
    for size, kernel, stride in zip(
        reversed(input_shape[2:]), reversed(plain.kernel_size), reversed(plain.stride), strict=True
    ):
        whole = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        pads += [whole // 2, whole - whole // 2]
    return nn.Sequential(nn.ZeroPad2d(tuple(pads)), plain)  # type: ignore[arg-type]


def _replace_module(network: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(network.get_submodule(parent), own, module)
