"""Whether Ray can be started or reached, and how large it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import ray

from objectaware.distributed.cluster import ray_cluster
from objectaware.errors import InputError, one_line
from objectaware.findings import Finding

_NAME = "Ray"
_TASK_SECONDS = 60.0


def check_ray(check_nodes: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Starts the local Ray that every command starts, or connects to `RAY_ADDRESS`, and runs one task on it.

    Args:
        check_nodes: Looks at the nodes of a cluster; called while Ray is connected to one.

    Returns:
        How it went, and with a cluster what was found on its nodes.
    """
    address = os.environ.get("RAY_ADDRESS")
    on_nodes: list[Finding] = []
    try:
        with ray_cluster():
            version = ray.get(ray.remote(num_cpus=0)(_version).remote(), timeout=_TASK_SECONDS)
            num_nodes = sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]
            resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
            if address:
                on_nodes.extend(check_nodes())
    except InputError as error:
        return [Finding(_NAME, "broken", f"{error.field} = {error.value}: {error.problem}", error.remedy)]
    except Exception as error:  # Ray has no common base for what goes wrong at its start
        text = one_line(error)[:300]
        remedy = "See the log in the folder `ray` of RAY_TMPDIR, by default /tmp/ray."
        if address:
            remedy = f"Install Ray {ray.__version__} on the cluster, or the cluster's here; or unset RAY_ADDRESS."
        return [Finding(_NAME, "broken", f"does not run a task ({type(error).__name__}: {text})", remedy)]
    where = f"cluster at {address}, {num_nodes} nodes" if address else "started on this machine"
    gpus = f", {resources['GPU']:g} GPUs" if resources.get("GPU") else ""
    found = Finding(_NAME, "ok", f"{version}, {where}, {resources.get('CPU', 0):g} logical CPUs{gpus}")
    return [found, *on_nodes]


def _version() -> str:
    return str(ray.__version__)
