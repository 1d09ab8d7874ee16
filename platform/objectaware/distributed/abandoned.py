"""Placement groups that a training left behind when its trial was stopped.

Ray Train has an actor that removes them, which asks for its controller without saying in which Ray: where several Rays
run on a machine it gets no answer, and the group keeps its CPUs and GPUs until the driver ends.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.state import list_actors, list_placement_groups
from ray.util.state.common import ActorState, PlacementGroupState

_SECONDS_BETWEEN_LOOKS = 2.0
_MAX_LISTED = 10_000


def remove_abandoned_groups() -> bool:
    """Removes the placement groups of this driver's trainings whose workers are all dead.

    A training that goes on never comes back to such a group: it makes another one for its next workers.

    Returns:
        Whether workers of a training are alive still.
    """
    workers = _training_workers()
    living = {worker.placement_group_id for worker in workers if worker.state != "DEAD"}
    for name in {worker.placement_group_id for worker in workers if worker.placement_group_id} - living:
        _remove(name)
    return bool(living)


def wait_and_remove_abandoned_groups(seconds: float) -> None:
    """The same once no training runs any more, since what was stopped takes a moment to die.

    Args:
        seconds: How long to wait for that.
    """
    deadline = time.monotonic() + seconds
    while remove_abandoned_groups() and time.monotonic() < deadline:
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def placement_groups() -> set[str]:
    """Return the names of the placement groups of this driver that hold resources, or wait for them."""
    context = ray.get_runtime_context()
    filters: list[Any] = [("creator_job_id", "=", context.get_job_id()), ("state", "!=", "REMOVED")]
    found: list[PlacementGroupState] = list_placement_groups(
        address=context.gcs_address, filters=filters, limit=_MAX_LISTED, raise_on_missing_output=False
    )
    return {group.placement_group_id for group in found}


def wait_and_remove_new_groups(before: set[str], seconds: float) -> None:
    """Remove all placement groups that this driver did not have before, once no training runs any more.

    A training that was stopped between the making of its group and the start of its workers leaves one that no worker
    names.

    Args:
        before: What `placement_groups` returned.
        seconds: How long to wait for trainings to end.
    """
    wait_and_remove_abandoned_groups(seconds)
    for name in placement_groups() - before:
        _remove(name)


def _remove(name: str) -> None:
    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))


def _training_workers() -> Sequence[ActorState]:
    context = ray.get_runtime_context()
    filters: list[Any] = [("class_name", "=", "RayTrainWorker"), ("job_id", "=", context.get_job_id())]
    found: list[ActorState] = list_actors(
        address=context.gcs_address, filters=filters, detail=True, limit=_MAX_LISTED, raise_on_missing_output=False
    )
    return found
