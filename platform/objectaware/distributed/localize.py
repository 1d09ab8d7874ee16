"""Localize on Ray Data: pass groups of images through a localizer and the CRF into a mask store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
import ray.data
from ray.data import ActorPoolStrategy, Dataset, TaskPoolStrategy
from ray.data.exceptions import ExecutionTimeoutError
from ray.exceptions import RayTaskError

from objectaware.config import LocalizeConfig, LocalizeExecution
from objectaware.data.folder import Manifest
from objectaware.data.images import none_readable
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import own_actors
from objectaware.distributed.local_ray import log_level
from objectaware.distributed.localize_steps import CamActor, CrfActor, GroupPlan, localize_group, read_group
from objectaware.distributed.machines import working_on
from objectaware.distributed.record_sink import Record
from objectaware.distributed.room import Need, current_capacity, wait_for_room
from objectaware.distributed.task import NoProgressError, own_error, run_tasks
from objectaware.localize.mask_store import delete_shards, finished_shards, read_columns

_MAX_FAILURES_LISTED = 100
# Longer than any group takes: 64 images, 10 iterations, a ResNet-50 at 4 times its resolution.
_NO_PROGRESS_SECONDS = 1800.0
_MAX_RETRIES = 3
# Up to this number, groups take less time than Ray Data needs to start actors. Tasks reuse the processes of earlier
# stages.
_MAX_GROUPS_AS_TASKS = 4


@dataclass
class LocalizeSummary:
    """Count the results of a localization.

    Attributes:
        num_images: Images of the data set.
        num_ok: Images whose masks are in the store.
        num_failed: Images that could not be read.
        failures: Id and reason of the first failed images, up to 100.
        waiting_seconds: Total time that localizers waited for the groups computed by this call.
        working_seconds: Total time that they worked on these groups.
    """

    num_images: int
    num_ok: int = 0
    num_failed: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    # Summaries with the same counts are equal, however long the work took.
    waiting_seconds: float = field(default=0.0, compare=False)
    working_seconds: float = field(default=0.0, compare=False)

    def add(self, num_images: int, failures: list[tuple[str, str]]) -> None:
        """Count a finished group."""
        self.num_ok += num_images - len(failures)
        self.num_failed += len(failures)
        self.failures += failures[: _MAX_FAILURES_LISTED - len(self.failures)]


def localize_needs(execution: LocalizeExecution, *, least: bool = False) -> list[Need]:
    """Return the processes that localization keeps running at once.

    Args:
        execution: How localization runs.
        least: Return the processes that it cannot do without, one of each kind.
    """
    num_actors = execution.num_cam_actors
    if execution.use_gpu:
        # Decoding 64 photos takes half a second. ContraCAM on a GPU is several times faster.
        readers, cam = Need("readers", 8 * num_actors, 1), Need("num_cam_actors", num_actors, 0, 1)
    else:
        readers = Need("readers", num_actors, 1)
        cam = Need("num_cam_actors", num_actors, execution.num_compute_threads)
    needs = [readers, cam, Need("num_crf_actors", execution.num_crf_actors, 1)]
    return [replace(need, count=1) for need in needs] if least else needs


def localize(
    config: LocalizeConfig, *, manifest: Manifest, store: Storage, on_record: Callable[[Record], None]
) -> LocalizeSummary:
    """Localize the objects of a data set into a mask store. Resume a localization that was begun there.

    Needs an initialised Ray (`ray_cluster`). The manifest's groups are the unit of work, and the images of a group are
    each other's negatives. A group whose shard is in the store is not computed again. Results do not depend on the
    number of processes. An image that cannot be read becomes a row with `status` failed and is not used as a
    negative. So does an image without negatives if the localizer needs some. Lost processes are replaced, and their
    group is computed again.

    Args:
        config: Configuration of the localization; `config.data` is not used.
        manifest: Images.
        store: Folder of the mask store, which all nodes reach.
        on_record: Called with `{"kind": "progress", "done", "total", "images_per_second"}` after each group, and with
            `{"kind": "waiting", "text"}` while the cluster has no room.

    Returns:
        Counts over the whole store, including the groups that were finished before.

    Raises:
        InputError: The checkpoint does not fit, a finished shard is damaged, the cluster is too small, or no image can
            be read.
        NoRoomError: The cluster had no room within `max_wait_minutes`.
        NoProgressError: No group was done for half an hour, although there was room. Processes that do no group at all
            are started again three times.
        Exception: Any other error of a process, with its traceback in its notes.
    """
    plan = GroupPlan.of(
        manifest, config.localizer, group_size=config.group_size, seed=config.seed, image_size=config.image_size
    )
    summary = LocalizeSummary(num_images=len(manifest))
    finished = finished_shards(store)
    for group in sorted(finished):
        rows = read_columns(store, group, "image_id", "status", "error")
        summary.add(len(rows), [(row["image_id"], row["error"]) for row in rows if row["status"] == "failed"])
    pending = set(range(plan.num_groups)) - set(finished)
    if pending:
        _run(config, plan, pending, store, summary, on_record)
        store.delete_unfinished()  # an actor that is killed while it writes a shard cannot delete it
    assert summary.num_ok + summary.num_failed == summary.num_images, summary
    if not summary.num_ok:
        delete_shards(store)  # so that the same command reads the images again
        raise none_readable(summary.num_images, summary.failures)
    return summary


def _run(
    config: LocalizeConfig,
    plan: GroupPlan,
    pending: set[int],
    store: Storage,
    summary: LocalizeSummary,
    on_record: Callable[[Record], None],
) -> None:
    start, num_before, is_warm = time.perf_counter(), summary.num_ok + summary.num_failed, False

    def count(row: Mapping[str, Any]) -> None:
        nonlocal start, num_before, is_warm
        pending.remove(row["group"])
        summary.add(row["num_images"], list(zip(row["failed_ids"], row["reasons"], strict=True)))
        summary.waiting_seconds += row["waiting_seconds"]
        summary.working_seconds += row["working_seconds"]
        now, done = time.perf_counter(), summary.num_ok + summary.num_failed
        speed = (done - num_before) / (now - start)
        if not is_warm:  # from the second group on, leave out the time in which processes start and load the network
            start, num_before, is_warm = now, done, True
        on_record({"kind": "progress", "done": done, "total": summary.num_images, "images_per_second": speed})

    # Keep the reference for as long as readers ask for the plan.
    plan_reference = ray.put(plan)
    if len(pending) <= _MAX_GROUPS_AS_TASKS and not config.execution.use_gpu:
        run_tasks(
            localize_group,
            [(plan_reference, config, store, group) for group in sorted(pending)],
            num_cpus=config.execution.num_compute_threads,
            at_once=max(config.execution.num_cam_actors, config.execution.num_crf_actors),
            on_result=lambda table: count(table.to_pylist()[0]),
            no_progress_seconds=_NO_PROGRESS_SECONDS,
            max_wait_minutes=config.execution.max_wait_minutes,
        )
        return
    logger = logging.getLogger("ray.data")
    level, is_stuck, num_idle = logger.level, False, 0
    # It warns that its progress display is off, and shows what is raised here.
    logger.setLevel(log_level(logging.CRITICAL))
    least = localize_needs(config.execution, least=True)
    try:
        while pending:
            num_before_this = len(pending)
            all_fit = current_capacity().has_free(localize_needs(config.execution))
            has_waited = wait_for_room(
                "localize",
                least,
                max_wait_minutes=config.execution.max_wait_minutes,
                say=lambda text: on_record({"kind": "waiting", "text": text}),
            )
            if has_waited:
                num_idle = 0
            elif is_stuck:
                times = f", {num_idle} times in a row" if num_idle else ""
                problem = f"no group was done within {_NO_PROGRESS_SECONDS:g} s{times}, although there is room"
                raise NoProgressError(f"{problem}. Ray's dashboard shows what its processes are doing.")
            try:
                results = _pipeline(config, plan_reference, sorted(pending), store, all_fit=all_fit)
                with working_on(_nodes):
                    for row in results.iter_rows():
                        count(row)
            except ExecutionTimeoutError:
                # The clock starts at the first group, before which the processes load the network.
                num_idle = num_idle + 1 if len(pending) == num_before_this else 0
                is_stuck = num_idle in (0, _MAX_RETRIES + 1)
    except RayTaskError as error:
        raise own_error(error) from None
    finally:
        logger.setLevel(level)


def _nodes() -> list[str]:
    """Return the ids of the nodes with localizers of this Ray job, then those with other steps of its pipelines.

    The trials of a sweep are one job: each may also name the machines of the others.
    """
    found = own_actors(("state", "=", "ALIVE"))
    of_step = [[actor.node_id for actor in found if step.__name__ in actor.class_name] for step in (CamActor, CrfActor)]
    return [node for nodes in of_step for node in sorted(filter(None, nodes))]


def _pipeline(
    config: LocalizeConfig,
    plan: Any,  # noqa: ANN401 - Ray's references are Any
    pending: Sequence[int],
    store: Storage,
    *,
    all_fit: bool,
) -> Dataset:
    """Return the results of groups, which are computed as they are read.

    Args:
        config: Configuration of the localization.
        plan: Reference to the `GroupPlan`.
        pending: The groups.
        store: Folder of the mask store.
        all_fit: Whether the cluster has room for all processes. Otherwise each pool begins with one and grows.
    """
    readers, cam, crf = localize_needs(config.execution)
    num_cams, num_crfs = (min(need.count, len(pending)) for need in (cam, crf))  # more would have nothing to do
    # One block per group, so that groups move on one by one.
    groups = ray.data.from_items([{"group": group} for group in pending], override_num_blocks=len(pending))
    groups.context.enable_progress_bars = False
    groups.context.print_on_execution_start = False
    groups.context.raise_original_map_exception = True
    groups.context.execution_no_progress_timeout_s = _NO_PROGRESS_SECONDS
    one_group: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}
    return (
        groups.map_batches(
            read_group,  # type: ignore[arg-type]  # Ray's types know no further arguments
            fn_kwargs={"plan": plan},
            compute=TaskPoolStrategy(size=readers.count),
            num_cpus=readers.num_cpus,
            **one_group,
        )
        .map_batches(
            CamActor,
            fn_constructor_kwargs={"config": config},
            compute=ActorPoolStrategy(min_size=num_cams if all_fit else 1, max_size=num_cams),
            num_cpus=cam.num_cpus or None,
            num_gpus=cam.num_gpus or None,
            **one_group,
        )
        .map_batches(
            CrfActor,
            fn_constructor_kwargs={"config": config, "store": store},
            compute=ActorPoolStrategy(min_size=num_crfs if all_fit else 1, max_size=num_crfs),
            num_cpus=crf.num_cpus,
            **one_group,
        )
    )
