"""What the machine is."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def processor_name() -> str:
    """Name of the processor."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


def describe(device: str) -> str:
    """Processor and cores, and the GPU where one computes."""
    machine = f"{processor_name()}, {num_cores()} cores"
    return f"{machine}, {torch.cuda.get_device_name()}" if device == "cuda" else machine
