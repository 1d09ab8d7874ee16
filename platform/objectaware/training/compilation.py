"""torch.compile for a method's networks."""

from __future__ import annotations

from torch import nn


def compile_networks(method: nn.Module, backend: str = "inductor") -> None:
    """Has each of a method's networks compiled at its first call, in place.

    The networks alone: moving averages, the queue and what workers exchange lie between them, and the names of the
    weights stay as they are.

    Args:
        method: Its children are networks.
        backend: Of torch.compile.
    """
    for network in method.children():
        network.compile(backend=backend)
