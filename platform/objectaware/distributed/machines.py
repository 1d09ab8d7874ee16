"""Measure how busy a stage's machines are while it runs, under the names of MLflow's system metrics.

A cluster has machines that work for others, so the code that starts processes says on which nodes they are
(`working_on`). The number of metrics does not grow with the number of machines.

MLflow's own `SystemMetricsMonitor` is not used. It sees one machine, so each node would need a process with a client of
the server. It sends its samples at once, while ours go to the spool and arrive even if the server was away.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean

import psutil
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray.util.state.exception import RayStateApiException

from objectaware.distributed.cluster import cancel_running, node_addresses
from objectaware.process import Background

_SECONDS_TO_FIRST = 1.0
_SECONDS_BETWEEN = 10.0
# Thin out: several weeks on many GPUs would otherwise log millions of values.
_SHARE_BETWEEN = 0.005
_SECONDS_OF_REMOTE_CPU = 1.0
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_TO_ANSWER = 10.0
_SECONDS_FOR_GPUS = 10.0
_GPU_FIELDS = {
    "utilization.gpu": ("utilization_percentage", 1.0),
    "memory.used": ("memory_usage_megabytes", 2**20 / 1e6),
    "power.draw": ("power_usage_watts", 1.0),
}
"""Fields of nvidia-smi, each with MLflow's name and the factor to its unit."""

_SUMMARIES: Mapping[str, Callable[[list[float]], float]] = {"mean": fmean, "min": min, "max": max}

_logger = logging.getLogger(__name__)

_sources: list[Callable[[], Iterable[str]]] = []


@contextmanager
def working_on(nodes: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Let the `MachineWatch` of this process sample the nodes that work for it, during the `with` block.

    Args:
        nodes: Returns the ids of the nodes, the most important one first. It is called for each sample.
    """
    _sources.append(nodes)
    try:
        yield
    finally:
        _sources.remove(nodes)


class MachineWatch(Background):
    """Sample a stage's machines from a thread, as a context manager.

    On one machine, this is the machine. On a cluster, these are the machines of `working_on`.

    The first sample comes after one second, the others every ten seconds, in long runs after each 200th of the elapsed
    time. A machine that does not answer in time, for example because it is being removed, is left out.

    Args:
        on_sample: Called with the metrics of a sample: `system/NAME` of the stage's first machine, and
            `system/others/NAME_mean`, `_min` and `_max` over all others that have the metric. It is not called after
            the `with` block has ended.
    """

    def __init__(self, on_sample: Callable[[Mapping[str, float]], None]) -> None:
        super().__init__("machines")
        self._on_sample = on_sample

    def _run(self) -> None:
        started = time.monotonic()
        psutil.cpu_percent()  # the next call measures the time since this one
        seconds = _SECONDS_TO_FIRST
        while not self._stop.wait(seconds):
            try:
                sample = self._sample()
            except Exception as error:  # of any of Ray's services; the next sample may succeed
                _logger.info("the machines are not sampled: %s", error)
                sample = {}
            if sample and not self._stop.is_set():
                self._on_sample(sample)
            seconds = max(_SECONDS_BETWEEN, (time.monotonic() - started) * _SHARE_BETWEEN)

    def _sample(self) -> dict[str, float]:
        """Return the metrics of the stage's machines; empty while it has none."""
        addresses = node_addresses() if ray.is_initialized() else {}
        if len(set(addresses.values())) <= 1:
            return {f"system/{name}": value for name, value in reading(None).items()}
        machines: dict[str, str] = {}
        for node_id in _nodes_at_work():
            if node_id in addresses:
                machines.setdefault(addresses[node_id], node_id)
        readings = self._readings(machines, here=next(iter(addresses.values())))
        first = readings.pop(next(iter(machines), ""), {})
        values = defaultdict(list)
        for others in readings.values():
            for name, value in others.items():
                values[name].append(value)
        return {f"system/{name}": value for name, value in first.items()} | {
            f"system/others/{name}_{summary}": summarise(found)
            for name, found in values.items()
            for summary, summarise in _SUMMARIES.items()
        }

    def _readings(self, machines: Mapping[str, str], *, here: str) -> dict[str, Mapping[str, float]]:
        """Return the reading of each machine that answers, by address.

        Args:
            machines: A node of each machine, by address.
            here: Address of this process's machine.
        """
        readings: dict[str, Mapping[str, float]] = {here: reading(None)} if here in machines else {}
        task = ray.remote(reading)
        waiting = {}
        for address, node_id in machines.items():
            if address != here:
                there = NodeAffinitySchedulingStrategy(node_id, soft=False)
                options = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there, name="machine")
                waiting[options.remote(_SECONDS_OF_REMOTE_CPU)] = address
        deadline = time.monotonic() + _SECONDS_TO_ANSWER
        while waiting and not self._stop.is_set() and time.monotonic() < deadline:
            done, _ = ray.wait(list(waiting), timeout=_SECONDS_BETWEEN_LOOKS)
            for reference in done:
                address = waiting.pop(reference)
                try:
                    readings[address] = ray.get(reference)
                except RayError as error:
                    _logger.info("%s does not report its metrics: %s", address, error)
        cancel_running(waiting)
        return readings


def _nodes_at_work() -> list[str]:
    """Return the ids of the nodes that work for this process, as far as they are known."""
    nodes: list[str] = []
    for source in [*_sources]:  # other threads change it
        try:
            nodes += source()
        except RayStateApiException as error:  # such as a dashboard that is busy
            _logger.info("it is not known which machines work: %s", error)
    return nodes


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
