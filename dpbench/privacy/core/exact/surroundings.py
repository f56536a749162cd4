"""Keep the arithmetic of a question independent of the torch settings around it, such as autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.utils import _python_dispatch


@contextmanager
def disable_torch_modes() -> Iterator[None]:
    """Switch off autocast, gradients, inference mode, and modes that redefine torch's functions or operations.

    No operation here depends on other settings: sums are computed in integers, or in an explicit dtype.
    """
    with torch.no_grad(), torch._C.DisableTorchFunction(), ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        if _python_dispatch._get_current_dispatch_mode() is not None:
            stack.enter_context(_python_dispatch._disable_current_modes())
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                torch.set_autocast_enabled(device, False)
                stack.callback(torch.set_autocast_enabled, device, True)
        yield
