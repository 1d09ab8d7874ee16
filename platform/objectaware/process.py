"""This process: machine and user, its Ray job as Ray's supervisor describes it, modules, garbage collector, threads."""

from __future__ import annotations

import gc
import getpass
import importlib
import json
import os
import pkgutil
import platform
import threading
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable in which Ray passes a job's runtime environment and metadata to its driver.

It is Ray's own. The public runtime context has neither the job's id nor its metadata, and nothing before `ray.init`.
"""
USER_KEY = "user"
"""Key of the submitter's name in a job's metadata."""

# Importing PyTorch, Ray and MLflow makes a million objects that stay. With Python's default thresholds the collector
# scans them again and again, which takes half of the start: `import objectaware.stages.localize` took 17 s and takes
# 9 s now, on two cores of 2.6 GHz. mypy and Black do the same for their own start, in a stronger form.
_COLLECTING_AT_WORK = gc.get_threshold()
_COLLECTING_AT_START = (50_000, 10, 10)


def submission_id() -> str | None:
    """Return the id of the job, as `ray job list` shows it; None outside a job."""
    return _section("metadata").get("job_submission_id")


def submitted_commit() -> str | None:
    """Return the Git commit that `objectaware submit` uploaded, or None. The uploaded copy has no repository."""
    return _section("metadata").get("git_commit")


def submitter() -> str | None:
    """Return the name of the user who submitted the job; None outside a job, or if the job's metadata do not say it."""
    return _section("metadata").get(USER_KEY)


def system_user() -> str:
    """Return the name of the user that this process runs as, or the number of one without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a container may run under a number without a name


def user_name() -> str | None:
    """Return the name of the user whose work this process does.

    In a job this is its submitter: all jobs of a cluster run as one user of the system. None if that is not known.
    """
    return submitter() if submission_id() is not None else system_user()


def processor_name() -> str:
    """Return the name of this machine's processor."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor() or platform.machine()


def job_variables() -> dict[str, str]:
    """Return the environment variables of the job's runtime environment, which the job's workers have too."""
    return _section("runtime_env").get("env_vars", {})


def _section(name: str) -> dict[str, Any]:
    return json.loads(os.environ.get(CONFIG_VARIABLE, "{}")).get(name) or {}


@cache  # `runs` and sweeps ask for every address and every trial, and the folder would be listed each time
def import_modules(package: str) -> list[ModuleType]:
    """Import and return all modules of a package, by its full name. They may register themselves with it."""
    path = importlib.import_module(package).__path__
    return [importlib.import_module(found.name) for found in pkgutil.iter_modules(path, f"{package}.")]


def relax_collector() -> None:
    """Make the garbage collector run less often while a process imports its modules.

    Thresholds that somebody else has changed stay.
    """
    if gc.get_threshold() == _COLLECTING_AT_WORK:
        gc.set_threshold(*_COLLECTING_AT_START)


def restore_collector() -> None:
    """Make the collector run as often as before, once work begins, and only on objects that are made from now on.

    Cycles that hold large tensors must not wait for tens of thousands of objects. Call this before allocating such
    tensors: the collector never again looks at objects that exist now. Processes that do little need not call it.
    """
    if gc.get_threshold() == _COLLECTING_AT_START:
        gc.freeze()
        gc.set_threshold(*_COLLECTING_AT_WORK)


class Background(ABC):
    """A thread that works while a `with` block runs. It has ended when the block ends.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Do the thread's work until `_stop` is set."""
