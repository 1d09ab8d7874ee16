"""Run a function as tasks on the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import ray
from ray.exceptions import RayTaskError

from objectaware.distributed.cluster import cancel_running
from objectaware.distributed.machines import working_on
from objectaware.distributed.room import Need, wait_for_room
from objectaware.errors import ExplainedError
from objectaware.process import restore_collector

if TYPE_CHECKING:
    from ray.util.state.common import TaskState

Result = TypeVar("Result")

_MAX_LISTED = 10_000
# Ray colours the first line of a traceback for terminals; MLflow's page would show the codes.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class NoProgressError(ExplainedError):
    """Report that no task ended for longer than allowed."""


def run_task(
    function: Callable[..., Result],
    *args: object,
    use_gpu: bool = False,
    num_cpus: float = 1.0,
    max_wait_minutes: float | None = None,
) -> Result:
    """Run a function on the cluster and wait for its result; see `run_tasks`."""
    return run_tasks(function, [args], use_gpu=use_gpu, num_cpus=num_cpus, max_wait_minutes=max_wait_minutes)[0]


def run_tasks(
    function: Callable[..., Result],
    arguments: Sequence[tuple[object, ...]],
    *,
    use_gpu: bool = False,
    num_cpus: float = 1.0,
    at_once: int | None = None,
    on_result: Callable[[Result], None] | None = None,
    no_progress_seconds: float | None = None,
    max_wait_minutes: float | None = None,
) -> list[Result]:
    """Run a function on the cluster once for each set of arguments and wait for all results.

    First wait until there is room for one task (`wait_for_room`). A task whose process or node is lost runs again, up
    to three times.

    Args:
        function: The function; it, its arguments and its results are picklable.
        arguments: The arguments, one tuple per task.
        use_gpu: Give each task one GPU.
        num_cpus: Logical CPUs per task.
        at_once: Largest number of tasks that run at the same time; by default as many as fit. The local Ray has more
            logical CPUs than the machine has cores, and every task's process takes memory.
        on_result: Called with each result as it arrives, in any order. With it, an error ends all tasks at once.
        no_progress_seconds: With `on_result`, the longest wait for the next result while a task runs; by default
            without end.
        max_wait_minutes: Longest wait for room; by default without end.

    Returns:
        Results in the order of the arguments.

    Raises:
        InputError: The cluster can have no GPU, or too few CPUs for one task.
        NoRoomError: There was no room for a task within `max_wait_minutes`.
        NoProgressError: No task ended for `no_progress_seconds`.
        Exception: The function's own exception, with its traceback on the worker in its notes.
        KeyboardInterrupt: On Ctrl-C, after the tasks have been stopped.
    """
    name = getattr(function, "__name__", "task")
    wait_for_room(name, [Need("task", 1, num_cpus, float(use_gpu))], max_wait_minutes=max_wait_minutes)
    # Anywhere: otherwise a trial's task would wait for room in the trial's placement group, which has none.
    task = ray.remote(_at_work).options(
        num_cpus=num_cpus, num_gpus=float(use_gpu), name=name, scheduling_strategy="DEFAULT"
    )
    references: list[ray.ObjectRef[Result]] = []
    running: list[ray.ObjectRef[Result]] = []
    try:
        with working_on(lambda: _nodes_of(name, references)):
            for args in arguments:
                if len(running) == at_once:
                    running = _wait(name, running, on_result, no_progress_seconds)
                references.append(task.remote(function, *args))
                running.append(references[-1])
            while on_result is not None and running:
                running = _wait(name, running, on_result, no_progress_seconds)
            return ray.get(references)
    except BaseException as error:
        cancel_running(references, force=True)
        if not isinstance(error, RayTaskError):
            raise
        raise own_error(error) from None


def own_error(error: RayTaskError) -> Exception:
    """Return the exception that a function raised in another process, with its traceback there in its notes."""
    cause: Exception = error.cause
    cause.add_note(_COLOUR.sub("", str(error)))
    return cause


def _at_work(function: Callable[..., Result], *args: object) -> Result:
    """Run the function in the task's process, which has imported the function's modules by now."""
    restore_collector()
    return function(*args)


def _wait(
    name: str, running: list[ray.ObjectRef[Result]], on_result: Callable[[Result], None] | None, seconds: float | None
) -> list[ray.ObjectRef[Result]]:
    """Wait for one of the tasks and return the others. The limit does not count while all tasks wait for room."""
    finished, others = ray.wait(running, timeout=seconds)
    while not finished and not _at_work_now(name, limit=1):
        finished, others = ray.wait(running, timeout=seconds)
    if not finished:
        raise NoProgressError(f"none of {len(running)} running tasks ended within {seconds:g} s; they are cancelled")
    (done,) = finished
    if on_result is not None:
        on_result(ray.get(done))
    return others


def _nodes_of(name: str, references: Sequence[ray.ObjectRef[Result]]) -> list[str]:
    """Return the ids of the nodes on which tasks run now."""
    ids = {reference.task_id().hex() for reference in references}
    return sorted(
        {task.node_id for task in _at_work_now(name, limit=_MAX_LISTED) if task.task_id in ids and task.node_id}
    )


def _at_work_now(name: str, *, limit: int) -> list[TaskState]:
    """Return tasks of this name and driver that run, instead of waiting for resources."""
    from ray.util.state import list_tasks

    context = ray.get_runtime_context()
    return list_tasks(
        address=context.gcs_address,
        filters=[("job_id", "=", context.get_job_id()), ("name", "=", name), ("state", "=", "RUNNING")],
        limit=limit,
        raise_on_missing_output=False,
    )
