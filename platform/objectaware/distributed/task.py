"""One function as one task on the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import ray
from ray.exceptions import RayTaskError

from objectaware.distributed.cluster import Need, require_resources

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def run_task(function: Callable[..., Result], *args: object, use_gpu: bool = False, num_cpus: float = 1.0) -> Result:
    """Runs a function on the cluster and waits for its result.

    A task whose process or node is lost is run again, up to three times.

    Args:
        function: Picklable, as are its arguments and result.
        args: Passed to the function.
        use_gpu: Give it one GPU.
        num_cpus: Logical CPUs that it takes.

    Returns:
        What the function returns.

    Raises:
        InputError: The cluster has no GPU, or too few CPUs.
        Exception: What the function raised, as itself; its traceback on the worker stands in its notes.
        KeyboardInterrupt: On Ctrl-C, after the task has been stopped.
    """
    name = getattr(function, "__name__", "task")
    require_resources(name, [Need("task", 1, num_cpus, float(use_gpu))])
    task = ray.remote(function).options(num_cpus=num_cpus, num_gpus=float(use_gpu), name=name)
    reference = task.remote(*args)
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        cause.add_note(str(error))
        raise cause from None
    except KeyboardInterrupt:
        ray.cancel(reference, force=True)
        raise
