"""Addresses of Ray that do not lead to one: refused in a line, without the minutes that Ray itself takes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import pytest

from objectaware.cli import run
from objectaware.distributed import cluster
from objectaware.distributed import submit as jobs
from replaced_ray import replace_ray

MALFORMED = ["localhost", "6379", "ray://", "ray://localhost", "http://127.0.0.1:8265", "h:0", "h:99999", "a b:1", " "]
MALFORMED_DASHBOARDS = ["http://", "http://:8265", "ftp://h:1", "::1:8265", "/tmp/x", "ray://127.0.0.1:10001"]


class _Web(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"version": 3}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own start and connection fail the test, and what the code sets goes with it."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")

    def unexpected(**_: object) -> None:
        raise AssertionError("Ray was asked")

    replace_ray(monkeypatch, unexpected)
    monkeypatch.setattr(jobs, "JobSubmissionClient", unexpected)


@pytest.fixture
def web_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def other_grpc_server() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture
def silent_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Takes connections and says nothing; nobody waits long for that."""
    monkeypatch.setattr(cluster, "_KNOCK_SECONDS", 0.2)
    monkeypatch.setattr(jobs, "_SECONDS_TO_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _refusal_of_cluster(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(cluster.InputError) as refused, cluster.ray_cluster():
        pass
    assert refused.value.field == "RAY_ADDRESS"
    assert "\n" not in str(refused.value)
    return refused.value.problem


@pytest.mark.parametrize("address", MALFORMED)
def test_what_is_no_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is not HOST:PORT" in _refusal_of_cluster(address, monkeypatch)


@pytest.mark.parametrize(
    ("scheme", "server"),
    [
        ("", "web_server"),
        ("", "silent_server"),
        ("", "other_grpc_server"),
        ("ray://", "web_server"),
        ("ray://", "silent_server"),
    ],
)
def test_a_server_that_is_not_ray_is_refused(
    scheme: str, server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(cluster, "_KNOCK_SECONDS", 1.0)
    address = request.getfixturevalue(server)
    assert "no Ray cluster answers" in _refusal_of_cluster(scheme + address, monkeypatch)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid", "h" * 70])
def test_nobody_there_is_refused(host: str, closed_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no Ray cluster answers" in _refusal_of_cluster(f"{host}:{closed_port}", monkeypatch)


class _Refusing(grpc.GenericRpcHandler):
    """Answers every call as a Ray that asks for a token."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def refuse(request: bytes, context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken: no token, or a wrong one")

        return grpc.unary_unary_rpc_method_handler(refuse)


@pytest.mark.parametrize(
    ("sends_token", "problem"),
    [(False, "none is sent while RAY_AUTH_MODE is not"), (True, "refuses the token")],
)
def test_a_token_that_is_missing_or_wrong_is_named_with_the_mode(
    sends_token: bool, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[_Refusing()])
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    # Without the token that the process itself would send: the answer is the same.
    monkeypatch.setattr(cluster, "init_grpc_channel", grpc.insecure_channel)
    monkeypatch.setattr(cluster.authentication_utils, "is_token_auth_enabled", lambda: sends_token)
    monkeypatch.setenv("RAY_ADDRESS", address)
    try:
        with pytest.raises(cluster.InputError, match=problem) as refused, cluster.ray_cluster():
            pass
    finally:
        server.stop(None).wait()
    assert "RAY_AUTH_MODE=token" in refused.value.remedy
    assert "~/.ray/auth_token" in refused.value.remedy


def test_auto_where_no_ray_runs_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none_found(address: str) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(cluster, "canonicalize_bootstrap_address", none_found)
    assert "no Ray cluster answers" in _refusal_of_cluster("auto", monkeypatch)


def _submit(address: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["submit", "--address", address, "--", "demo"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("address", MALFORMED_DASHBOARDS)
def test_what_is_no_dashboards_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not http://HOST:PORT" in _submit(address, capsys)


@pytest.mark.parametrize("address", ["no-such-host.invalid:8265", "127.0.0.1:99999", "a b:1", "h" * 70 + ".invalid:1"])
def test_a_dashboard_that_is_not_there_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no Ray dashboard answers there" in _submit(address, capsys)


@pytest.mark.parametrize("server", ["web_server", "other_grpc_server", "silent_server"])
def test_a_server_that_is_no_dashboard_is_refused(
    server: str, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    assert "no Ray dashboard answers there" in _submit(request.getfixturevalue(server), capsys)


def test_submit_refuses_a_cluster_that_is_not_there(
    closed_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for address, problem in [("localhost", "is not HOST:PORT"), (f"127.0.0.1:{closed_port}", "no Ray cluster")]:
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert run(["submit", "--", "demo"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert problem in line
