"""What a machine can do at best, measured on the spot: its roof, and how long work must take under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from harness import processor_seconds, seconds

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""Precisions by their names in recipes."""

_MATRIX_SIDES = {"cpu": (1024, 2048, 3072), "cuda": (4096, 8192, 16384)}
# Far more than caches hold: of a server's processor up to 480 MiB.
_COPIED_BYTES = 2**30
_TRIES = 5


@dataclass(frozen=True)
class Work:
    """A piece of work, and the least that it costs.

    Attributes:
        case: What it is, with its sizes.
        num_images: Images that it goes through; None where it has none.
        operations: Floating-point operations, a multiplication and its addition counting as two.
        num_bytes: Bytes that must be moved at least once: inputs, weights and outputs, and nothing in between.
        run: Does it.
        precision: `fp32` or `bf16`, in which its operations are.
    """

    case: str
    num_images: int | None
    operations: float
    num_bytes: float
    run: Callable[[], object]
    precision: str = "fp32"


@dataclass(frozen=True)
class Roof:
    """A machine's best rates.

    Attributes:
        operations_per_second: Of a product of large matrices, by precision.
        bytes_per_second: Of a copy of an array far larger than the caches, what is read and written together.
    """

    operations_per_second: dict[str, float]
    bytes_per_second: float

    def floor(self, work: Work) -> tuple[float, str]:
        """Seconds that a piece of work takes at least, and which of `operations` and `bytes` binds."""
        needed = {
            "operations": work.operations / self.operations_per_second[work.precision],
            "bytes": work.num_bytes / self.bytes_per_second,
        }
        binding = max(needed, key=lambda name: needed[name])
        return needed[binding], binding


def clock_of(device: torch.device) -> Callable[[Callable[[], object]], float]:
    """How work is timed: on a CPU the seconds that it computes for in its one thread, on a GPU until it is done."""
    return processor_seconds if device.type == "cpu" else partial(_seconds_on_gpu, device)


def _seconds_on_gpu(device: torch.device, work: Callable[[], object]) -> float:
    def finished() -> None:
        work()
        torch.cuda.synchronize(device)

    torch.cuda.synchronize(device)
    return seconds(finished)


def measure_roof(device: torch.device, *, is_quick: bool) -> Roof:
    """The best of a few products and of a few copies."""
    sides = (256,) if is_quick else _MATRIX_SIDES[device.type]
    precisions = ("fp32",) if device.type == "cpu" else ("fp32", "bf16")
    precision_before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        # Of fp32 cuDNN's convolutions take TF32 by default, which products of matrices must be told to.
        torch.set_float32_matmul_precision("high")
    rates = {name: max(_product_rate(side, DTYPES[name], device) for side in sides) for name in precisions}
    torch.set_float32_matmul_precision(precision_before)
    return Roof(rates, _copy_rate(2**22 if is_quick else _COPIED_BYTES, device))


def _product_rate(side: int, dtype: torch.dtype, device: torch.device) -> float:
    one, other = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    result = torch.empty_like(one)
    return 2 * side**3 / _best(lambda: torch.mm(one, other, out=result), device)


def _copy_rate(num_bytes: int, device: torch.device) -> float:
    source = torch.ones(num_bytes // 4, device=device)
    target = torch.zeros_like(source)
    return 2 * num_bytes / _best(lambda: target.copy_(source), device)


def _best(work: Callable[[], object], device: torch.device) -> float:
    clock = clock_of(device)
    work()
    return min(clock(work) for _ in range(_TRIES))


def counted_operations(run: Callable[[], object]) -> float:
    """Operations of PyTorch's products and convolutions in one run; all others are not counted, a few per cent."""
    counter = _Counter()
    with counter:
        run()
    return counter.operations


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's is not typed
    """Sums up PyTorch's own formulas, without FlopCounterMode's hooks on modules, which `autograd.grad` refuses."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = 0.0

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - PyTorch's operators have no type
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        if formula is not None:
            self.operations += formula(*args, **kwargs, out_val=result)
        return result


def bytes_of(*tensors: Tensor) -> int:
    """Bytes of some tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def bytes_of_weights(*networks: nn.Module) -> int:
    """Bytes of networks' weights and buffers."""
    return sum(bytes_of(*network.parameters(), *network.buffers()) for network in networks)
