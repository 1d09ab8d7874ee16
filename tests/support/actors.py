"""The actors and the placement groups of the Ray that this process is connected to."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.state import list_actors
from ray.util.state.common import ActorState


def actors(*filters: tuple[str, str, str], detail: bool = False) -> list[ActorState]:
    """Lists actors, and of this Ray alone: others may run on the machine, among which Ray would not choose."""
    address: Any = ray.get_runtime_context().gcs_address
    found: list[ActorState] = list_actors(address=address, filters=list(filters), limit=1000, detail=detail)
    return found


def placement_groups() -> set[str]:
    """Names of the placement groups that hold resources, or wait for them."""
    groups: dict[str, dict[str, Any]] = ray.util.placement_group_table()
    return {name for name, group in groups.items() if group["state"] in ("CREATED", "PENDING", "RESCHEDULING")}
