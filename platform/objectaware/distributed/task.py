"""A function as tasks on the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import ray
from ray.exceptions import RayTaskError

from objectaware import collector
from objectaware.distributed.cluster import Need, require_resources
from objectaware.errors import ExplainedError

Result = TypeVar("Result")


class NoProgressError(ExplainedError):
    """Tasks that run for longer than they may."""


def run_task(function: Callable[..., Result], *args: object, use_gpu: bool = False, num_cpus: float = 1.0) -> Result:
    """Runs a function on the cluster and waits for its result; see `run_tasks`."""
    return run_tasks(function, [args], use_gpu=use_gpu, num_cpus=num_cpus)[0]


def run_tasks(
    function: Callable[..., Result],
    arguments: Sequence[tuple[object, ...]],
    *,
    use_gpu: bool = False,
    num_cpus: float = 1.0,
    at_once: int | None = None,
    on_result: Callable[[Result], None] | None = None,
    no_progress_seconds: float | None = None,
) -> list[Result]:
    """Runs a function on the cluster once for each set of arguments and waits for all.

    A task whose process or node is lost is run again, up to three times.

    Args:
        function: Picklable, as are its arguments and results.
        arguments: What is passed to the function, a tuple a task.
        use_gpu: Give each task one GPU.
        num_cpus: Logical CPUs that each takes.
        at_once: Tasks that run at the same time, at most; by default as many as fit. The local Ray has more logical
            CPUs than the machine has cores, and every task's process takes memory.
        on_result: Called with each result as it comes, in whatever order; an error ends all at once then.
        no_progress_seconds: With `on_result`, how long it may take until the next task is done; by default for ever.

    Returns:
        What the function returns, in the order of the arguments.

    Raises:
        InputError: The cluster has no GPU, or too few CPUs for one task.
        NoProgressError: No task was done for `no_progress_seconds`.
        Exception: What the function raised, as itself; its traceback on the worker stands in its notes.
        KeyboardInterrupt: On Ctrl-C, after the tasks have been stopped.
    """
    name = getattr(function, "__name__", "task")
    require_resources(name, [Need("task", 1, num_cpus, float(use_gpu))])
    # Anywhere: in a trial of a sweep it would else wait for a place in the trial's own placement group, which has none.
    task = ray.remote(_at_work).options(
        num_cpus=num_cpus, num_gpus=float(use_gpu), name=name, scheduling_strategy="DEFAULT"
    )
    references: list[ray.ObjectRef[Result]] = []
    running: list[ray.ObjectRef[Result]] = []
    try:
        for args in arguments:
            if len(running) == at_once:
                running = _wait(running, on_result, no_progress_seconds)
            references.append(task.remote(function, *args))
            running.append(references[-1])
        while on_result is not None and running:
            running = _wait(running, on_result, no_progress_seconds)
        return ray.get(references)
    except BaseException as error:
        _cancel(references)
        if not isinstance(error, RayTaskError):
            raise
        cause = error.cause
        cause.add_note(str(error))
        raise cause from None


def _cancel(references: list[ray.ObjectRef[Result]]) -> None:
    """Ends the tasks that run or wait, and leaves the others alone as far as that can be known.

    Ray hands a result over a moment before it has done with the task, and one that is cancelled in that moment takes
    the whole process with it ("Tried to complete task that was not pending").
    """
    for reference in references:
        _, running = ray.wait([reference], timeout=0, fetch_local=False)
        if running:
            ray.cancel(reference, force=True)


def _at_work(function: Callable[..., Result], *args: object) -> Result:
    """What a task's process runs; the function was imported with it."""
    collector.restore()
    return function(*args)


def _wait(
    running: list[ray.ObjectRef[Result]], on_result: Callable[[Result], None] | None, seconds: float | None
) -> list[ray.ObjectRef[Result]]:
    """Waits for one of the tasks and gives the others."""
    finished, others = ray.wait(running, timeout=seconds)
    if not finished:
        raise NoProgressError(f"none of {len(running)} running tasks was done for {seconds:g} s: they are ended")
    (done,) = finished
    if on_result is not None:
        on_result(ray.get(done))
    return others
