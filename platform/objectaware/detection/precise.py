"""Batch norm's statistics taken anew when the weights are final."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from objectaware.detection.loader import Batch


@torch.no_grad()
def take_statistics(network: nn.Module, batches: Iterator[Batch], number: int) -> None:
    """Sets every batch norm's running statistics to their mean over some batches of one set of weights.

    Args:
        network: In training mode, on all workers.
        batches: This worker's share of each batch, on the network's device.
        number: Batches, at least 1.

    Source:
        detectron2's TEST.PRECISE_BN, which MoCo's configuration turns on; fvcore, nn/precise_bn.py.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    before = [norm.momentum for norm in norms]
    for place in range(number):
        for norm in norms:
            norm.momentum = 1 / (place + 1)  # a running mean of all batches so far
        network(*next(batches))
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
