"""A Ray head of a test's own, to which jobs are submitted as to a cluster's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ports import free_port

_SECONDS_TO_START = 300.0


@dataclass(frozen=True)
class RayHead:
    """Where it is, and what a client needs.

    Attributes:
        address: Of the dashboard.
        environment: Of processes that submit to it.
    """

    address: str
    environment: dict[str, str]


@contextmanager
def ray_head(
    folder: Path, variables: dict[str, str], *, num_cpus: int = 8, arguments: Sequence[str] = ()
) -> Iterator[RayHead]:
    """Starts `ray start --head`, protected by a token, on free ports of loopback, and ends it.

    Args:
        folder: Its home and temporary files; its path has to be short.
        variables: Environment variables of the head, which its jobs inherit.
        num_cpus: CPUs of the head.
        arguments: Further arguments of `ray start`.
    """
    home = folder / "home"
    home.mkdir(parents=True)
    programs = Path(sys.executable).parent
    dashboard, agent, client = (free_port() for _ in range(3))
    environment = {
        **os.environ,
        "HOME": str(home),
        "RAY_TMPDIR": str(folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "of-the-tests-alone",
        "RAY_USAGE_STATS_ENABLED": "0",
        # As for the local Ray of a command: its workers do not give way to whatever else the machine runs.
        "RAY_worker_niceness": "0",
        # A job's `python` is the first on the head's path.
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    command = [str(programs / "ray"), "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--port=0"]
    command += [f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}", f"--num-cpus={num_cpus}"]
    command += [f"--ray-client-server-port={client}", "--object-store-memory=200000000", f"--temp-dir={folder / 'ray'}"]
    command += arguments
    address = f"http://127.0.0.1:{dashboard}"
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(
            command, env={**environment, **variables}, stdout=log, stderr=log, cwd=home, start_new_session=True
        )
        try:
            _wait_for(head, address, folder / "head.log")
            yield RayHead(address, {**environment, "RAY_API_SERVER_ADDRESS": address})
        finally:
            # With --block it ends what it has started.
            head.send_signal(signal.SIGTERM)
            try:
                head.wait(timeout=180)
            finally:
                with suppress(ProcessLookupError):  # nodes that it did not start itself, or a head that hangs
                    os.killpg(head.pid, signal.SIGKILL)


def _wait_for(head: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < deadline:
        assert head.poll() is None, log.read_text()
        # The dashboard answers before the node is up, which may still fail.
        if b"Ray runtime started" in log.read_bytes() and _answers(address):
            return
        time.sleep(0.2)
    raise AssertionError(f"no head after {_SECONDS_TO_START:g} s: {log.read_text()}")


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/api/version", timeout=5).close()
    except urllib.error.HTTPError:  # it asks for the token
        return True
    except OSError:
        return False
    return True
