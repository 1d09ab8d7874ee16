"""How networks compute: their precision, and torch.compile."""

from __future__ import annotations

import torch
from torch import nn

from objectaware.errors import InputError


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Return the context in which a network's passes have a precision, `fp32` or `bf16`.

    Args:
        precision: The precision in the recipe.
        device: Where the network is.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def require_precision(precision: str, device: torch.device) -> None:
    """Refuse bfloat16 on a processor that emulates it, where it takes about ten times as long as 32 bits.

    Args:
        precision: The precision in the recipe.
        device: A device of this machine.

    Raises:
        InputError: The device has no instructions for the precision.
    """
    if precision == "bf16" and not _computes_bfloat16(device):
        kind = "GPU" if device.type == "cuda" else "CPU"
        raise InputError(
            "precision",
            precision,
            f"this machine's {kind} has no bfloat16 instructions and would take about ten times as long as with fp32",
            "Use precision: fp32 (--precision fp32), which is another training, or a machine that has them.",
        )


def _computes_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # avx512_bf16 and amx_bf16 of x86, and the two of ARM, all end alike.
    capabilities = torch.cpu.get_capabilities()
    return any(bool(value) for name, value in capabilities.items() if name.endswith("bf16"))


def compile_networks(method: nn.Module, backend: str = "inductor") -> None:
    """Compile each of a method's networks in place, at its first call.

    The networks alone: moving averages, the queue and what workers exchange lie between them, and the names of the
    weights stay as they are.

    Args:
        method: Its children are networks.
        backend: Of torch.compile.
    """
    for network in method.children():
        network.compile(backend=backend)
