"""Measure how busy the cluster's machines are while a stage runs, under the names of MLflow's system metrics.

MLflow's own `SystemMetricsMonitor` is not used. It sees one machine, so each node would need a process with a client of
the server. It sends its samples at once, while ours go to the spool and arrive even if the server was away.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping

import psutil
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from objectaware.distributed.cluster import node_addresses
from objectaware.process import Background

_SECONDS_TO_FIRST = 1.0
_SECONDS_BETWEEN = 10.0
# Thin out: several weeks on many GPUs would otherwise log millions of values.
_SHARE_BETWEEN = 0.005
_SECONDS_OF_REMOTE_CPU = 1.0
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_FOR_GPUS = 10.0
_GPU_FIELDS = {
    "utilization.gpu": ("utilization_percentage", 1.0),
    "memory.used": ("memory_usage_megabytes", 2**20 / 1e6),
    "power.draw": ("power_usage_watts", 1.0),
}
"""Fields of nvidia-smi, each with MLflow's name and the factor to its unit."""

_logger = logging.getLogger(__name__)


class MachineWatch(Background):
    """Sample all machines of the cluster from a thread, as a context manager.

    The first sample comes after one second, the others every ten seconds, in long runs after each 200th of the elapsed
    time. A machine that does not answer, for example because it is being removed, is left out.

    Args:
        on_sample: Called with the metrics of a sample: `system/NAME` of the machine that this process runs on,
            `system/ADDRESS/NAME` of any other. It is not called after the `with` block has ended.
    """

    def __init__(self, on_sample: Callable[[Mapping[str, float]], None]) -> None:
        super().__init__("machines")
        self._on_sample = on_sample

    def _run(self) -> None:
        started = time.monotonic()
        psutil.cpu_percent()  # the next call measures the time since this one
        seconds = _SECONDS_TO_FIRST
        while not self._stop.wait(seconds):
            sample = self._sample()
            if not self._stop.is_set():
                self._on_sample(sample)
            seconds = max(_SECONDS_BETWEEN, (time.monotonic() - started) * _SHARE_BETWEEN)

    def _sample(self) -> dict[str, float]:
        """Return the metrics of this machine and of the others."""
        sample = {f"system/{name}": value for name, value in reading(None).items()}
        task = ray.remote(reading)
        waiting = {}
        nodes = node_addresses() if ray.is_initialized() else {}
        machines = {address: node_id for node_id, address in nodes.items()}
        for address, node_id in list(machines.items())[1:]:  # the first is this machine
            there = NodeAffinitySchedulingStrategy(node_id, soft=False)
            options = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there, name="machine")
            waiting[options.remote(_SECONDS_OF_REMOTE_CPU)] = address
        while waiting and not self._stop.is_set():
            done, _ = ray.wait(list(waiting), timeout=_SECONDS_BETWEEN_LOOKS)
            for reference in done:
                address = waiting.pop(reference)
                try:
                    sample |= {f"system/{address}/{name}": value for name, value in ray.get(reference).items()}
                except RayError as error:
                    _logger.info("%s does not report its metrics: %s", address, error)
        return sample


def reading(cpu_seconds: float | None) -> dict[str, float]:
    """Return how busy this process's machine is, by MLflow's names.

    Args:
        cpu_seconds: Time in which the CPUs are measured, while the function waits; None measures the time since this
            thread's last call.
    """
    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(cpu_seconds),
        "system_memory_usage_megabytes": memory.used / 1e6,
        "system_memory_usage_percentage": 100 * memory.used / memory.total,
        **_gpu_reading(),
    }


def _gpu_reading() -> dict[str, float]:
    """Return the metrics of NVIDIA's GPUs; empty if there are none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, f"--query-gpu=index,{','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_FOR_GPUS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        _logger.info("nvidia-smi reports nothing about the GPUs: %s", error)
        return {}
    return parsed_gpus(shown.stdout)


def parsed_gpus(lines: str) -> dict[str, float]:
    """Parse nvidia-smi's lines into metrics; leave out values that a GPU does not report (`[N/A]`)."""
    found = {}
    for line in lines.splitlines():
        index, *cells = (cell.strip() for cell in line.split(","))
        for (name, unit), cell in zip(_GPU_FIELDS.values(), cells, strict=True):
            if cell.replace(".", "", 1).isdigit():
                found[f"gpu_{index}_{name}"] = float(cell) * unit
    return found
