"""A function on every node of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

Result = TypeVar("Result")


def node_addresses() -> dict[str, str]:
    """Address of each node that is alive, by its id; the driver's own first."""
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    own = ray.get_runtime_context().get_node_id()
    return {own: nodes.pop(own), **nodes}


def run_on_nodes(function: Callable[..., Result], *args: object, timeout_seconds: float) -> dict[str, Result]:
    """Runs a function once on every node, where it needs no CPU of its own.

    Args:
        function: Picklable, as are its arguments and results.
        args: What is passed to it.
        timeout_seconds: How long to wait for all nodes.

    Returns:
        What it returned, by the node's address.

    Raises:
        ray.exceptions.GetTimeoutError: A node did not answer in time.
        Exception: What the function raised on a node.
    """
    references = {}
    for node_id, address in node_addresses().items():
        place = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
        # Two nodes of one machine, as in tests, have one address.
        references[address if address not in references else f"{address} ({node_id[:8]})"] = task.remote(*args)
    return dict(zip(references, ray.get(list(references.values()), timeout=timeout_seconds), strict=True))
