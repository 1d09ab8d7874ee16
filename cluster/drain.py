"""Drain the Ray node of this machine before the machine is taken away, so that training saves and goes on elsewhere.

`drain.py aws` and `drain.py gcp` watch the cloud's metadata service. `cluster.yaml` and `cluster/gcp.yaml` start them
beside Ray. `drain.py now` drains at once and waits: the `preStop` of `cluster/rayjob.yaml`.

Draining is Ray's own command, `ray drain-node`. Ray starts nothing more on a drained node, and Ray Train tells the
workers of its trainings. They save a checkpoint, and Ray Train starts them on other nodes.

Only the standard library is used.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_REQUEST_SECONDS = 2.0
_DRAIN_SECONDS = 30.0
"""How long one `ray drain-node` may take. It starts Python and connects to the cluster, which takes some seconds."""


@dataclass(frozen=True)
class Notice:
    """What a cloud says about the end of this machine.

    Attributes:
        message: Says why, in Ray's logs and in the list of nodes.
        num_seconds: Until the machine goes.
    """

    message: str
    num_seconds: int


class Aws:
    """The instance metadata service of EC2, in its second version, which takes a token.

    A spot instance gets its notice two minutes before it is interrupted. The recommendation to rebalance comes
    earlier, but says only that an interruption has become more likely. It drains a node only if asked to.

    Args:
        address: Of the metadata service.
        drain_on_rebalance: Whether the recommendation to rebalance counts as a notice.
    """

    address = "http://169.254.169.254"

    def __init__(self, address: str, drain_on_rebalance: bool) -> None:
        self._address = address
        self._drain_on_rebalance = drain_on_rebalance
        self._token = ""

    def look(self) -> Notice | None:
        """Return the notice, or None if there is none."""
        action = self._get("spot/instance-action")
        if action is not None:
            described = json.loads(action)  # {"action": "terminate", "time": "2026-11-30T08:22:00Z"}
            left = datetime.fromisoformat(described["time"]) - datetime.now(UTC)
            return Notice(f"EC2 will {described['action']} this spot instance", max(0, int(left.total_seconds())))
        if self._drain_on_rebalance and self._get("events/recommendations/rebalance") is not None:
            return Notice("EC2 recommends to leave this spot instance", 120)
        return None

    def _get(self, path: str) -> str | None:
        """Return a value, or None if there is none. A token that has ended is made again."""
        url = f"{self._address}/latest/meta-data/{path}"
        for _ in range(2):
            try:
                return _request(url, {"X-aws-ec2-metadata-token": self._token})
            except urllib.error.HTTPError as error:
                if error.code == 404:
                    return None
                if error.code != 401:
                    raise
                lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
                self._token = _request(f"{self._address}/latest/api/token", lifetime, "PUT")
        raise ConnectionError("the metadata service refuses the token that it has just given")


class Gcp:
    """The metadata server of Compute Engine.

    A spot VM gets its notice 30 s before it is stopped. A VM with GPUs cannot move to another host: maintenance of its
    own host stops it, with a notice of at least 60 s. Other VMs move without stopping, which is not a notice.

    Args:
        address: Of the metadata server.
    """

    address = "http://metadata.google.internal"

    def __init__(self, address: str) -> None:
        self._address = address

    def look(self) -> Notice | None:
        """Return the notice, or None if there is none."""
        if self._get("preempted") == "TRUE":
            return Notice("Compute Engine preempts this VM", 30)
        if self._get("maintenance-event") == "TERMINATE_ON_HOST_MAINTENANCE":
            return Notice("Compute Engine stops this VM for maintenance of its host", 60)
        return None

    def _get(self, name: str) -> str:
        return _request(f"{self._address}/computeMetadata/v1/instance/{name}", {"Metadata-Flavor": "Google"})


def _request(url: str, headers: dict[str, str], method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=headers, method=method)
    # No proxy: the service is on this machine's own link, and answers for the machine that asks.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_REQUEST_SECONDS) as answer:
        text: str = answer.read().decode()
        return text.strip()


def wait_for_notice(look: Callable[[], Notice | None], interval: float) -> Notice:
    """Look until there is a notice, and return it. A metadata service that does not answer is asked again.

    Args:
        look: Asks the metadata service.
        interval: Seconds between two looks.
    """
    problem = ""
    while True:
        try:
            notice = look()
        except (OSError, ValueError, KeyError) as error:  # refused, timed out, or an answer that is not understood
            if str(error) != problem:
                problem = str(error)
                _say(f"the metadata service cannot be read, and is asked again: {problem}")
        else:
            problem = ""
            if notice is not None:
                return notice
        time.sleep(interval)


def drain(message: str, num_seconds: int) -> bool:
    """Ask Ray to drain this machine's node, and return whether it has accepted.

    Args:
        message: Why.
        num_seconds: Until the machine goes.
    """
    _say(f"{message} in {num_seconds} s: draining its Ray node")
    command = ["ray", "drain-node", "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
    command += ["--reason-message", message, "--deadline-remaining-seconds", str(num_seconds)]
    try:
        subprocess.run(command, check=True, timeout=_DRAIN_SECONDS, stdin=subprocess.DEVNULL)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        _say(str(error))
        return False
    _say("drained")
    return True


def watch(look: Callable[[], Notice | None], interval: float) -> int:
    """Drain the node when a notice comes, and return the exit status. A second watcher of one machine ends at once.

    Ray is asked again until it accepts or the machine should have gone.
    """
    with (Path(tempfile.gettempdir()) / "objectaware-drain.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process watches this machine already")
            return 0
        notice = wait_for_notice(look, interval)
        end = time.monotonic() + notice.num_seconds
        while not drain(notice.message, max(0, round(end - time.monotonic()))):
            if time.monotonic() >= end:
                return 1
            time.sleep(interval)
        return 0


def leave(num_seconds: int) -> int:
    """Drain the node, and wait until its container ends, which ends this process too, or the time is over.

    A drained node ends as soon as it has nothing to do. If Ray does not accept, there is nothing to wait for: at the
    end of a job, the cluster's head goes together with its workers.
    """
    end = time.monotonic() + num_seconds
    if not drain("Kubernetes takes this pod away", num_seconds):
        return 1
    time.sleep(max(0.0, end - time.monotonic()))
    return 0


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}", flush=True)


def main() -> int:
    """Read the arguments, do what they say, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["aws", "gcp", "now"])
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two looks")
    parser.add_argument("--address", help="of the metadata service (default: the cloud's own)")
    parser.add_argument("--drain-on-rebalance", action="store_true", help="also when EC2 only recommends to leave")
    parser.add_argument("--seconds", type=int, default=75, help="of `now`: until the machine goes")
    arguments = parser.parse_args()
    if arguments.how == "now":
        return leave(arguments.seconds)
    if arguments.how == "aws":
        return watch(Aws(arguments.address or Aws.address, arguments.drain_on_rebalance).look, arguments.interval)
    return watch(Gcp(arguments.address or Gcp.address).look, arguments.interval)


if __name__ == "__main__":
    sys.exit(main())
