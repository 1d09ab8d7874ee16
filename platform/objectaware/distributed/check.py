"""Whether Ray can be started or reached, and how large it is."""

from __future__ import annotations

import os

import ray

from objectaware.distributed.cluster import ray_cluster
from objectaware.errors import InputError
from objectaware.findings import Finding

_NAME = "Ray"
_TASK_SECONDS = 60.0


def check_ray() -> list[Finding]:
    """Starts the local Ray that every command starts, or connects to `RAY_ADDRESS`, and runs one task on it.

    Returns:
        How it went; with a cluster also that its other nodes were not looked at.
    """
    address = os.environ.get("RAY_ADDRESS")
    try:
        with ray_cluster():
            version = ray.get(ray.remote(num_cpus=0)(_version).remote(), timeout=_TASK_SECONDS)
            num_nodes = sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]
            resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
    except InputError as error:
        return [Finding(_NAME, "broken", f"{error.field} = {error.value}: {error.problem}", error.remedy)]
    except Exception as error:  # Ray has no common base for what goes wrong at its start
        text = " ".join(str(error).split())[:300]
        remedy = "See the log in the folder `ray` of RAY_TMPDIR, by default /tmp/ray."
        if address:
            remedy = f"Install Ray {ray.__version__} on the cluster, or the cluster's here; or unset RAY_ADDRESS."
        return [Finding(_NAME, "broken", f"does not run a task ({type(error).__name__}: {text})", remedy)]
    where = f"cluster at {address}, {num_nodes} nodes" if address else "started on this machine"
    gpus = f", {resources['GPU']:g} GPUs" if resources.get("GPU") else ""
    found = Finding(_NAME, "ok", f"{version}, {where}, {resources.get('CPU', 0):g} logical CPUs{gpus}")
    if address is None:
        return [found]
    return [found, Finding("other nodes", "not checked", "storage and memory of the cluster's nodes")]


def _version() -> str:
    return str(ray.__version__)
