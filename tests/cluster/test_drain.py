"""The watcher of notices: against a metadata server of the test's own, and with a stand-in for Ray's command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "cluster" / "drain.py"
AWS = "/latest/meta-data"
GCP = "/computeMetadata/v1/instance"
# Fails as often as FAILURES says, and notes what it was asked for.
RAY = """\
#!/usr/bin/env bash
echo "$*" >>"$LOG"
[ "$(wc -l <"$LOG")" -gt "$FAILURES" ]
"""


class Metadata:
    """What both clouds' services answer. Values may be lists: one answer per look, and the last one stays."""

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}
        self.token = "token-1"
        self.num_tokens = 0
        self.paths: list[str] = []

    def answer(self, handler: BaseHTTPRequestHandler) -> tuple[int, str]:
        self.paths.append(handler.path)
        if handler.command == "PUT":
            if not handler.headers["X-aws-ec2-metadata-token-ttl-seconds"]:
                return 400, ""
            self.num_tokens += 1
            return 200, self.token
        if handler.path.startswith(AWS) and handler.headers["X-aws-ec2-metadata-token"] != self.token:
            return 401, ""
        if handler.path.startswith(GCP) and handler.headers["Metadata-Flavor"] != "Google":
            return 403, ""
        values = self.values.get(handler.path)
        if not values:
            return 404, ""
        value = values.pop(0) if len(values) > 1 else values[0]
        if value == "another token":
            self.token = "token-2"
            return 401, ""
        return (503, "") if value == "broken" else (200, value)


@pytest.fixture
def metadata() -> Iterator[tuple[Metadata, str]]:
    known = Metadata()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            code, text = known.answer(self)
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = answer  # noqa: N815 - names of the standard library

        def log_message(self, *arguments: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield known, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    ray = tmp_path / "bin" / "ray"
    ray.parent.mkdir()
    ray.write_text(RAY)
    ray.chmod(0o755)
    path = f"{ray.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LOG": str(tmp_path / "log"), "FAILURES": "0", "TMPDIR": str(tmp_path)}


def watch(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)


def asked(environment: dict[str, str]) -> list[str]:
    log = Path(environment["LOG"])
    return log.read_text().splitlines() if log.exists() else []


def seconds_left(line: str) -> int:
    return int(line.split("--deadline-remaining-seconds ")[1])


def test_a_spot_instance_of_aws_is_drained_by_its_deadline(
    metadata: tuple[Metadata, str], environment: dict[str, str]
) -> None:
    known, address = metadata
    at = datetime.now(UTC) + timedelta(seconds=118)
    notice = f'{{"action": "terminate", "time": "{at:%Y-%m-%dT%H:%M:%SZ}"}}'
    # The token ends, the service breaks, and is there again.
    known.values[f"{AWS}/spot/instance-action"] = ["another token", "broken", notice]
    done = watch(environment, "aws", "--address", address, "--interval", "0.01")
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = asked(environment)
    assert line.startswith("drain-node --reason DRAIN_NODE_REASON_PREEMPTION --reason-message EC2 will terminate")
    assert 90 <= seconds_left(line) <= 118
    assert known.num_tokens == 2
    assert "503" in done.stdout


@pytest.mark.parametrize("drains", [True, False])
def test_a_recommendation_drains_a_node_only_if_asked_to(
    drains: bool, metadata: tuple[Metadata, str], environment: dict[str, str]
) -> None:
    known, address = metadata
    known.values[f"{AWS}/events/recommendations/rebalance"] = ['{"noticeTime": "2026-11-30T08:22:00Z"}']
    if not drains:  # what ends the watcher is the notice that follows
        late = '{"action": "stop", "time": "2020-01-01T00:00:00Z"}'
        known.values[f"{AWS}/spot/instance-action"] = ["broken", "broken", late]
    arguments = ["aws", "--address", address, "--interval", "0.01", *(["--drain-on-rebalance"] if drains else [])]
    assert watch(environment, *arguments).returncode == 0
    (line,) = asked(environment)
    assert ("recommends" in line) == drains
    assert seconds_left(line) == (120 if drains else 0)
    assert any("rebalance" in path for path in known.paths) == drains


@pytest.mark.parametrize(
    ("preempted", "maintenance", "num_seconds"),
    [
        (["FALSE", "FALSE", "TRUE"], ["NONE"], 30),
        (["FALSE"], ["NONE", "MIGRATE_ON_HOST_MAINTENANCE", "TERMINATE_ON_HOST_MAINTENANCE"], 60),
    ],
)
def test_a_machine_of_google_is_drained(
    preempted: list[str],
    maintenance: list[str],
    num_seconds: int,
    metadata: tuple[Metadata, str],
    environment: dict[str, str],
) -> None:
    known, address = metadata
    known.values = {f"{GCP}/preempted": preempted, f"{GCP}/maintenance-event": maintenance}
    assert watch(environment, "gcp", "--address", address, "--interval", "0.01").returncode == 0
    (line,) = asked(environment)
    assert seconds_left(line) == num_seconds
    assert sum(path.endswith("preempted") for path in known.paths) == 3


def test_ray_is_asked_again_until_it_accepts(metadata: tuple[Metadata, str], environment: dict[str, str]) -> None:
    known, address = metadata
    known.values[f"{GCP}/preempted"] = ["TRUE"]
    environment["FAILURES"] = "2"
    assert watch(environment, "gcp", "--address", address, "--interval", "0.01").returncode == 0
    assert len(asked(environment)) == 3


def test_a_machine_has_one_watcher(metadata: tuple[Metadata, str], environment: dict[str, str]) -> None:
    _, address = metadata
    arguments = [sys.executable, str(SCRIPT), "gcp", "--address", address, "--interval", "0.01"]
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert "404" in first.stdout.readline()  # it looks, so it holds the lock
        second = watch(environment, "gcp", "--address", address)
        first.kill()
    assert second.returncode == 0
    assert "already" in second.stdout
    assert asked(environment) == []


def test_a_pod_drains_its_node_before_it_goes(environment: dict[str, str]) -> None:
    assert watch(environment, "now", "--seconds", "0").returncode == 0
    (line,) = asked(environment)
    assert "Kubernetes" in line


def test_a_pod_does_not_wait_for_a_ray_that_has_gone(environment: dict[str, str]) -> None:
    environment["FAILURES"] = "1"
    assert watch(environment, "now", "--seconds", "600").returncode == 1
    assert len(asked(environment)) == 1


@pytest.mark.slow  # Ray's command line takes seconds to import
def test_rays_command_takes_what_it_is_given() -> None:
    """The command is hidden from `ray --help`: a release of Ray may change it."""
    from ray.scripts.scripts import drain_node

    options = {name: option for option in drain_node.params for name in option.opts}
    assert {"--reason", "--reason-message", "--deadline-remaining-seconds"} <= options.keys()
    assert "DRAIN_NODE_REASON_PREEMPTION" in options["--reason"].type.choices
