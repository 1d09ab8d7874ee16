"""Room on the cluster: the processes of a stage, the resources that a cluster has or can have, and the wait for them.

A stage asks for its resources by a placement group, and gives it back as soon as it has it. An autoscaler starts nodes
for a group that waits. `ray.autoscaler.sdk.request_resources` would do that, too, but a cluster has only one such
request: each call replaces that of other users, of Ray Train and of Ray Data, and it stays after a driver was killed. A
group belongs to its job and adds to the demand of others.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
import ray
import yaml

# Nothing public says which nodes are on their way. `ray.autoscaler.sdk` only asks for nodes.
from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.experimental.internal_kv import _internal_kv_get
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from objectaware.errors import ExplainedError, InputError

ROOM_NAME = "room for "
"""How the names of the placement groups begin, by which stages wait. The id of the waiting actor follows, if any."""

_SECONDS_UNTIL_SAID = 3.0
SECONDS_BETWEEN_LINES = 60.0
"""Seconds between two lines about a wait for room."""
_SECONDS_BETWEEN_LOOKS = 0.2
_RESOURCES = {"CPU": "num_cpus", "GPU": "num_gpus"}
# Ray gives this label to each node that an autoscaler has started, and to the head beside it.
_NODE_GROUP = "ray.io/node-group"
# Ray's first autoscaler names the nodes of a cluster without configuration by their ids.
_UNNAMED_TYPE = "node_"
_GPU_TYPE = "accelerator_type:"

Say = Callable[[str], None]
"""Function that shows a line to the user."""


@dataclass(frozen=True)
class Need:
    """Describe processes of one kind that a stage keeps running at once.

    Attributes:
        name: Their name in the configuration.
        count: Number of processes.
        num_cpus: Logical CPUs per process.
        num_gpus: GPUs per process.
    """

    name: str
    count: int
    num_cpus: float
    num_gpus: float = 0

    def bundle(self) -> dict[str, float]:
        """Return the resources of one process, without those that it does not need."""
        amounts = {resource: getattr(self, attribute) for resource, attribute in _RESOURCES.items()}
        return {resource: amount for resource, amount in amounts.items() if amount}


def total_cpus(needs: Sequence[Need]) -> float:
    """Return the logical CPUs of all processes together."""
    return sum(need.count * need.num_cpus for need in needs)


@dataclass(frozen=True)
class NodeType:
    """Describe nodes of one kind that an autoscaler may start.

    Attributes:
        resources: Resources of one node.
        max_count: Largest number of such nodes.
    """

    resources: Mapping[str, float]
    max_count: int


@dataclass(frozen=True)
class Capacity:
    """Describe the resources that a cluster has now, and those that it can have.

    Attributes:
        nodes: Resources of each living node.
        free: Resources that nobody uses.
        can_grow: Whether an autoscaler may start nodes.
        node_types: Nodes that the autoscaler may start; None if it does not say.
        max_nodes: Largest number of nodes that the autoscaler starts.
        coming: Number of nodes that are being started, by the name of their type.
    """

    nodes: Sequence[Mapping[str, float]]
    free: Mapping[str, float]
    can_grow: bool = False
    node_types: Sequence[NodeType] | None = None
    max_nodes: int = sys.maxsize
    coming: Mapping[str, int] | None = None

    def total(self, resource: str) -> float:
        """Return the amount of a resource that the living nodes have."""
        return sum(node.get(resource, 0) for node in self.nodes)

    def most(self, resource: str) -> float:
        """Return the largest amount of a resource that the cluster can have; infinite if that is not known."""
        if not self.can_grow:
            return self.total(resource)
        if self.node_types is None:
            return math.inf
        left, amount = self.max_nodes, 0.0
        for kind in sorted(self.node_types, key=lambda kind: -kind.resources.get(resource, 0)):
            count = min(kind.max_count, left)
            left, amount = left - count, amount + count * kind.resources.get(resource, 0)
        return max(amount, self.total(resource))

    def holds(self, bundle: Mapping[str, float]) -> bool:
        """Return whether one node, living or still to be started, has all resources of a process."""
        if self.can_grow and self.node_types is None:
            return True
        kinds = [kind.resources for kind in self.node_types or () if kind.max_count and self.can_grow]
        shapes = [*self.nodes, *kinds]
        return any(all(shape.get(name, 0) >= amount for name, amount in bundle.items()) for shape in shapes)

    def has_free(self, needs: Sequence[Need]) -> bool:
        """Return whether nobody uses as much as the processes need."""
        return all(self.free.get(resource, 0) >= sum(_terms(needs, resource)) for resource in _RESOURCES)

    def room(self, needs: Sequence[Need]) -> float:
        """Return how many times the living nodes have room for the processes; infinite if they need nothing."""
        return _times(needs, self.total)

    def most_room(self, needs: Sequence[Need]) -> float:
        """Return how many times the cluster can have room for the processes; infinite if that is not known."""
        return _times(needs, self.most)


def _terms(needs: Sequence[Need], resource: str) -> list[float]:
    return [need.count * need.bundle().get(resource, 0) for need in needs]


def _times(needs: Sequence[Need], amount: Callable[[str], float]) -> float:
    """Return how many times the processes fit into the amounts of all resources; infinite if they need nothing."""
    totals = {resource: sum(_terms(needs, resource)) for resource in _RESOURCES}
    return min((amount(name) // total for name, total in totals.items() if total), default=math.inf)


def refusal(stage: str, needs: Sequence[Need], capacity: Capacity, *, of: str = "") -> InputError | None:
    """Return the error for processes that the cluster could never hold, or None if it can hold them.

    Args:
        stage: Name of the stage.
        needs: All processes that the stage keeps running at once.
        capacity: What the cluster has and can have.
        of: Text before the problem, for the part of a stage that needs them.
    """
    has = "can have at most" if capacity.can_grow else "has"
    for resource in _RESOURCES:
        terms = [(need, amount) for need in needs if (amount := need.bundle().get(resource, 0))]
        total, most = sum(_terms(needs, resource)), capacity.most(resource)
        if total > most:
            arithmetic = " + ".join(f"{need.count} {need.name} × {amount:g}" for need, amount in terms)
            problem = f"{of}needs {arithmetic} = {total:g} {resource}s, the cluster {has} {most:g}"
            return InputError(
                "execution", stage, problem, "Ask for fewer processes in execution, or use a larger cluster."
            )
    for need in needs:
        if need.count and not capacity.holds(need.bundle()):
            problem = f"{of}each of {need.count} {need.name} needs {amounts(need.bundle())}, which no single node has"
            return InputError(
                "execution", stage, problem, "Ask for smaller processes in execution, or for larger nodes."
            )
    return None


def amounts(resources: Mapping[str, float]) -> str:
    """Return resources in words, such as `8 CPUs and 1 GPU`."""
    shown = [
        f"{resources[name]:g} {name}{'' if resources[name] == 1 else 's'}" for name in _RESOURCES if name in resources
    ]
    return " and ".join(shown)


def waiting_line(stage: str, needs: Sequence[Need], capacity: Capacity, seconds: float) -> str:
    """Return the line that says what a stage waits for, what there is, and what is on its way.

    Args:
        stage: Name of the stage.
        needs: All processes that it waits for.
        capacity: What the cluster has and can have.
        seconds: How long the stage has been waiting.
    """
    wanted = {resource: total for resource in _RESOURCES if (total := sum(_terms(needs, resource)))}
    has = {resource: capacity.total(resource) for resource in wanted}
    free = {resource: capacity.free.get(resource, 0) for resource in wanted}
    coming = ", ".join(f"{count} {name}" for name, count in sorted((capacity.coming or {}).items()))
    line = f"{stage} waits for {amounts(wanted)}: the cluster has {amounts(has)}, of which {amounts(free)} are free"
    line += f"; on their way: {coming}" if coming else "; no node is on its way" if capacity.can_grow else ""
    return line if seconds < SECONDS_BETWEEN_LINES else f"{line} ({seconds / 60:.0f} min)"


def show_on_stderr(line: str) -> None:
    """Write a line to the user's terminal."""
    print(line, file=sys.stderr, flush=True)


class NoRoomError(ExplainedError):
    """The cluster had no room for a stage within `execution.max_wait_minutes`."""

    @classmethod
    def after(cls, minutes: float, line: str) -> NoRoomError:
        """Return the error after a wait of some minutes, with the last line about it."""
        return cls(f"{line}. It has waited for execution.max_wait_minutes = {minutes:g}; leave that out to wait on.")


def wait_for_room(
    stage: str,
    needs: Sequence[Need],
    *,
    max_wait_minutes: float | None = None,
    say: Say = show_on_stderr,
) -> bool:
    """Ask the cluster for room, and wait until it is there. Refuse what the cluster could never hold.

    The room is given back on return, for the stage's own processes. If others take it before they do, those wait.

    Args:
        stage: Name of the stage.
        needs: All processes that the stage keeps running at once, and cannot do without.
        max_wait_minutes: Longest wait; by default without end.
        say: Called with a line after three seconds, and then once a minute.

    Returns:
        Whether it had to wait.

    Raises:
        InputError: The processes need more than the cluster can have; the message shows the sum.
        NoRoomError: There was no room within `max_wait_minutes`.
    """
    capacity = require_possible(stage, needs)
    bundles = [need.bundle() for need in needs for _ in range(need.count) if need.bundle()]
    if not bundles or capacity.has_free(needs):
        return False
    group = placement_group(bundles, name=f"{ROOM_NAME}{ray.get_runtime_context().get_actor_id() or ''}")
    try:
        return _wait(stage, needs, group, max_wait_minutes, say)
    finally:
        remove_placement_group(group)


def require_possible(stage: str, needs: Sequence[Need], *, of: str = "") -> Capacity:
    """Refuse processes that the cluster could never hold.

    Args:
        stage: Name of the stage.
        needs: All processes that the stage keeps running at once.
        of: Text before the problem, for the part of a stage that needs them.

    Returns:
        What the cluster has and can have.

    Raises:
        InputError: The processes need more than the cluster can have; the message shows the sum.
    """
    capacity = current_capacity()
    if (error := refusal(stage, needs, capacity, of=of)) is not None:
        raise error
    return capacity


def _wait(stage: str, needs: Sequence[Need], group: PlacementGroup, minutes: float | None, say: Say) -> bool:
    begun = time.monotonic()
    next_line = begun + _SECONDS_UNTIL_SAID
    line = ""
    while placement_group_table(group)["state"] != "CREATED":
        now = time.monotonic()
        is_over = minutes is not None and now - begun >= 60 * minutes
        if now >= next_line or is_over:
            line = waiting_line(stage, needs, current_capacity(), now - begun)
            if is_over:
                assert minutes is not None
                raise NoRoomError.after(minutes, line)
            say(line)
            next_line += SECONDS_BETWEEN_LINES
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    if line:
        say(f"{stage}: there is room")
    return bool(line)


def num_gpus() -> int:
    """Return the number of GPUs that the connected Ray can have or, if that is not known, has now; 0 without Ray."""
    if not ray.is_initialized():
        return 0
    capacity = current_capacity()
    most = capacity.most("GPU")
    return int(capacity.total("GPU") if math.isinf(most) else most)


def gpu_names() -> str:
    """Return the names that Ray gives the GPUs of the living nodes, such as `H100`, or `GPU` if it names none."""
    resources = {name for node in ray_nodes() if node.get("GPU") for name in node} if ray.is_initialized() else set()
    return ", ".join(sorted(name.removeprefix(_GPU_TYPE) for name in resources if name.startswith(_GPU_TYPE))) or "GPU"


def ray_nodes() -> list[dict[str, float]]:
    """Return the resources of each living node."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def free_resources() -> dict[str, float]:
    """Return the resources that nobody uses, over all nodes."""
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return free


def current_capacity() -> Capacity:
    """Return what the connected Ray has and can have."""
    path = _autoscaling_file(ray.get_runtime_context().gcs_address)
    node_types, max_nodes = (None, sys.maxsize) if path is None else configured_types(yaml.safe_load(path.read_text()))
    labelled = any(_NODE_GROUP in node["Labels"] for node in ray.nodes() if node["Alive"])  # type: ignore[no-untyped-call]
    report = first_autoscalers_report(_internal_kv_get(DEBUG_AUTOSCALING_STATUS))
    can_grow = path is not None or labelled or report is not None
    coming: Mapping[str, int] = report or {}
    if can_grow and not coming:
        status = get_cluster_status(ray.get_runtime_context().gcs_address)
        coming = Counter(launch.ray_node_type_name for launch in status.pending_launches for _ in range(launch.count))
        coming += Counter(node.ray_node_type_name for node in status.pending_nodes)
    return Capacity(ray_nodes(), free_resources(), can_grow, node_types, max_nodes, coming)


def configured_types(config: Mapping[str, Any]) -> tuple[list[NodeType] | None, int]:
    """Return the kinds of nodes and the largest number of nodes in the configuration of Ray's cluster launcher.

    Args:
        config: The configuration. Only the launcher's clouds fill in the resources of their machines.

    Returns:
        The kinds, or None if the resources of one are not known; and the largest number, of workers and the head.
    """
    max_workers = int(config.get("max_workers", 2))
    kinds = {
        name: NodeType(
            kind.get("resources", {}), 1 if name == config.get("head_node_type") else _count(kind, max_workers)
        )
        for name, kind in config.get("available_node_types", {}).items()
    }
    is_known = kinds and all(kind.resources for kind in kinds.values())
    return list(kinds.values()) if is_known else None, max_workers + 1


def _count(kind: Mapping[str, Any], max_workers: int) -> int:
    return min(int(kind.get("max_workers", max_workers)), max_workers)


def first_autoscalers_report(status: bytes | None) -> dict[str, int] | None:
    """Return the nodes that Ray's first autoscaler is starting, by type; None if there is no such autoscaler.

    Args:
        status: What it has written to Ray's key-value store. A cluster without autoscaler writes there, too, and names
            its nodes by their ids.
    """
    report = json.loads(status).get("autoscaler_report") if status else None
    if report is None or all(name.startswith(_UNNAMED_TYPE) for name in report["active_nodes"]):
        return None
    coming = Counter(report["pending_launches"]) + Counter(kind for _, kind, _ in report["pending_nodes"])
    return dict(coming)


@lru_cache(maxsize=8)
def _autoscaling_file(gcs_address: str) -> Path | None:
    """Return the file by which an autoscaler on this machine starts nodes of the connected Ray, or None."""
    wanted = f"--gcs-address={gcs_address}"
    option = "--autoscaling-config="
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if wanted in words and any(word.endswith("monitor.py") for word in words):
            paths = [Path(word.removeprefix(option)).expanduser() for word in words if word.startswith(option)]
            return next((path for path in paths if path.is_file()), None)
    return None
