"""Starts a stage's task on a cluster of three nodes, and again while one of them does not answer; run as a script.

Usage: silent_node.py STORAGE. Prints a line of JSON: how many seconds each start took, and what `doctor` says of nodes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from ray.cluster_utils import Cluster

from objectaware.commands.common import Common, open_context
from objectaware.distributed.task import run_task
from objectaware.stages import machine
from ports import free_port

_SECONDS_TO_ANSWER = 5.0


def start(storage: str) -> float:
    """Do what a command does before its stage works, and one task of the stage. Return the seconds."""
    started = time.monotonic()
    with open_context(Common(storage=storage)) as context:
        context.services.start_ray()
        assert run_task(abs, -3) == 3
        return time.monotonic() - started


def doctor(storage: str) -> list[str]:
    """Return what `doctor` finds on the nodes."""
    with open_context(Common(storage=storage)) as context:
        context.services.start_ray()
        return [f"{finding.state} {finding.found}" for finding in machine._check_nodes(context.services.storage)]


def main(storage: str) -> None:
    """Measure both, with nodes that are machines of their own to Ray."""
    head = {"num_cpus": 4, "include_dashboard": True, "dashboard_port": free_port()}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    *_, silent = (cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{number}") for number in (2, 3))
    os.environ["RAY_ADDRESS"] = cluster.address
    raylet = silent.all_processes["raylet"][0].process.pid
    seconds = [start(storage)]
    os.kill(raylet, signal.SIGSTOP)
    try:
        seconds.append(start(storage))
        machine._NODE_SECONDS = _SECONDS_TO_ANSWER
        found = doctor(storage)
    finally:
        os.kill(raylet, signal.SIGCONT)
    print(json.dumps({"seconds": seconds, "doctor": found}))
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
