"""The Ray that a command's stages run on, and whether it is large enough for them."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import ray

from objectaware import job
from objectaware.errors import InputError

_KNOCK_SECONDS = 10.0
_MIN_LOGICAL_CPUS = 8
# A group of images on its way through localization is 23 MB at 224 pixels. Ray's default would set aside 30%
# of the machine's memory.
_OBJECT_STORE_BYTES = 2**30

_QUIET_ENVIRONMENT = {
    # Ray's C++ side writes warnings that only its authors can act on into the terminal of the command.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_LOCAL_ENVIRONMENT = {
    # The work is done in Ray's workers; by default they give way to whatever else the machine runs.
    "RAY_worker_niceness": "0",
    # Nobody reclaims this machine; the watcher would be one more process.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


@dataclass(frozen=True)
class Need:
    """Processes of one kind that a stage keeps running at once.

    Attributes:
        name: What they are, in the words of the configuration.
        count: How many.
        num_cpus: Logical CPUs each.
        num_gpus: GPUs each.
    """

    name: str
    count: int
    num_cpus: float
    num_gpus: float = 0


def total_cpus(needs: Sequence[Need]) -> float:
    """Logical CPUs of all processes together."""
    return sum(need.count * need.num_cpus for need in needs)


@contextmanager
def ray_cluster(*, min_cpus: float = 0) -> Iterator[None]:
    """Provides Ray for the stages inside the `with` block.

    Ray that this process has initialised already is used as it is. Otherwise `RAY_ADDRESS` is connected to,
    or, where it is not set, a local Ray is started: dashboard on and bound to loopback, at least 8 logical
    CPUs (a stage's processes wait for each other most of the time), its files in `RAY_TMPDIR` if that is set.
    On leaving, only what was started or connected here is ended. SIGTERM inside is a `KeyboardInterrupt`.

    Args:
        min_cpus: Logical CPUs that the stages need (`total_cpus`); a local Ray gets at least as many.

    Raises:
        InputError: No Ray answers at `RAY_ADDRESS`.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    if address:
        _connect(address)
    else:
        _start(min_cpus)
    try:
        with _termination_as_interrupt():
            yield
    finally:
        ray.shutdown()


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Makes of SIGTERM, which `ray job stop` sends, what Ctrl-C is; Ray's own handler aborts the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _connect(address: str) -> None:
    _set_defaults(_QUIET_ENVIRONMENT)
    remedy = "Start one with `ray start --head`, or unset RAY_ADDRESS to run on this machine alone."
    try:
        _knock(address)
        ray.init(address=address, runtime_env=_uploaded_package(), log_to_driver=False, logging_level=logging.WARNING)
    except OSError as error:  # ConnectionError and time-outs among them
        raise InputError("RAY_ADDRESS", address, "no Ray cluster answers there", remedy) from error


def _uploaded_package() -> dict[str, dict[str, str]]:
    """Runtime environment in which a job's workers find this package where its driver did: in what was uploaded."""
    source_root = Path(__file__).resolve().parents[2]
    if job.submission_id() is None or "PYTHONPATH" in job.environment_variables():
        return {}
    if not source_root.is_relative_to(Path.cwd()):
        return {}
    # Relative: every node unpacks the upload to a place of its own, where its workers start.
    return {"env_vars": {"PYTHONPATH": str(source_root.relative_to(Path.cwd()))}}


def _knock(address: str) -> None:
    """Opens a connection to a `host:port` address and closes it: Ray itself tries a dead one for minutes."""
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if separator and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()


def _start(min_cpus: float) -> None:
    _set_defaults(_QUIET_ENVIRONMENT | _LOCAL_ENVIRONMENT)
    # It warns that it protects the local Ray by a token.
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    ray.init(
        address="local",
        num_cpus=max(_MIN_LOGICAL_CPUS, os.cpu_count() or 1, math.ceil(min_cpus)),
        object_store_memory=_OBJECT_STORE_BYTES,
        # Ray Train cleans up after itself through the dashboard's interface.
        include_dashboard=True,
        dashboard_host="127.0.0.1",
        log_to_driver=False,
        logging_level=logging.WARNING,
    )


def _set_defaults(variables: dict[str, str]) -> None:
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def has_gpus() -> bool:
    """Whether the Ray that this process is connected to has GPUs; it has none where there is no Ray."""
    return num_gpus() > 0


def num_gpus() -> int:
    """How many GPUs the Ray that this process is connected to has; none where there is no Ray."""
    if not ray.is_initialized():
        return 0
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("GPU", 0))


def require_resources(stage: str, needs: Sequence[Need]) -> None:
    """Refuses a stage that the cluster could never run, instead of waiting for it for ever.

    Args:
        stage: Name of the stage.
        needs: All processes that it keeps running at once.

    Raises:
        InputError: They need more CPUs or GPUs than the cluster has; the message shows the sum.
    """
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for resource, attribute in (("CPU", "num_cpus"), ("GPU", "num_gpus")):
        terms = [(need, getattr(need, attribute)) for need in needs if getattr(need, attribute)]
        total = sum(need.count * amount for need, amount in terms)
        available = resources.get(resource, 0)
        if total > available:
            arithmetic = " + ".join(f"{need.count} {need.name} × {amount:g}" for need, amount in terms)
            problem = f"needs {arithmetic} = {total:g} {resource}s, the cluster has {available:g}"
            remedy = "Ask for fewer processes in execution, or use a larger cluster."
            raise InputError("execution", stage, problem, remedy)
