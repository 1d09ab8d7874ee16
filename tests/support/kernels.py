"""Count the kernels that a GPU would be given, without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")


class KernelCount(TorchDispatchMode):
    """Count the operations on tensors of the device `meta`, which stands for a GPU. Views and allocations are none.

    A tensor there has no values. So code that waits for a value of the device, to print it, to branch by it or to
    choose by it, raises an exception. So does a transfer to the device that waits for it.

    Attributes:
        kernels: Number of each operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        result = operation(*args, **(kwargs or {}))
        name = operation.overloadpacket.__name__
        is_view = any(out.alias_info and not out.alias_info.is_write for out in operation._schema.returns)
        on_device = any(isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in tree_leaves(result))
        from_host = any(
            isinstance(leaf, torch.Tensor) and leaf.dim() and not leaf.is_meta for leaf in tree_leaves(args)
        )
        if on_device and from_host and name in ("_to_copy", "copy_"):
            assert (kwargs or {}).get("non_blocking") or args[-1] is True, "PyTorch waits after a transfer that blocks"
        if on_device and not is_view and name not in _ALLOCATIONS:
            self.kernels[name] += 1
        return result
