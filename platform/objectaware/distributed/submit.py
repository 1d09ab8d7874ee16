"""Run a command as a Ray job: upload, follow and stop it."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import requests
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient
from ray.util.state import list_nodes

from objectaware.distributed.cluster import require_answer, token_refusal
from objectaware.errors import InputError, one_line

_ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")
_DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_REMEDY = "Open a tunnel with `ray dashboard cluster.yaml`, start a head, or give --address."
_TOKEN_REFUSED = (401, 403)
_SECONDS_TO_ANSWER = 10.0
_SECONDS_AWAY = 300.0
_SECONDS_BETWEEN_TRIES = 1.0
# A stopped pretraining first saves a checkpoint. Ray's default is 3 s.
_SECONDS_TO_STOP = 60

EXCLUDES = (
    # A leading slash limits a pattern to the working directory: platform/objectaware/data is code.
    *("/data", "/runs", "/ray_results", "/mlruns", "/mlartifacts", "mlflow.db*", "*.log", ".env"),
    *(".git", ".venv", "venv", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis", "node_modules"),
)
"""Patterns of .gitignore for files that are never uploaded, besides those in .gitignore and .rayignore."""


def connect_jobs(address: str | None) -> JobSubmissionClient:
    """Connect to a cluster's dashboard, which takes jobs.

    Args:
        address: Address of the dashboard; by default RAY_API_SERVER_ADDRESS, RAY_ADDRESS, or port 8265 of this machine,
            where `ray dashboard cluster.yaml` opens a tunnel.

    Raises:
        InputError: No dashboard answers there, or the token is not the cluster's.
    """
    if address is None and not any(os.environ.get(name) for name in _ADDRESS_VARIABLES):
        address = _DEFAULT_ADDRESS
    if address is not None:
        # Ray gives the environment precedence over its arguments.
        os.environ[_ADDRESS_VARIABLES[0]] = address if "://" in address else f"http://{address}"
    variable = next(name for name in _ADDRESS_VARIABLES if os.environ.get(name))
    shown = os.environ[variable]
    if variable == _ADDRESS_VARIABLES[0] or shown.startswith("http"):
        _require_dashboard(shown)
    else:
        require_answer(shown)  # a cluster's address, from which Ray finds the dashboard
    try:
        return JobSubmissionClient()
    except AuthenticationError as error:
        raise token_refusal("address", shown) from error
    except (ConnectionError, RuntimeError, requests.RequestException) as error:
        raise _no_dashboard(shown, f" ({one_line(error)[:300]})") from error


def _require_dashboard(address: str) -> None:
    """Refuse an address where no Ray dashboard answers, since Ray's client waits for minutes or fails unclearly.

    Raises:
        InputError: The address is not http://HOST:PORT, or nothing or something else answers there.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("address", address, "is not http://HOST:PORT", _REMEDY)
    try:
        answer = requests.get(f"{address.rstrip('/')}/api/version", timeout=_SECONDS_TO_ANSWER)
    except (requests.RequestException, ValueError) as error:  # ValueError: an invalid host name
        raise _no_dashboard(address) from error
    if answer.status_code not in _TOKEN_REFUSED and "ray_version" not in answer.text:
        raise _no_dashboard(address, ", but something else")


def _no_dashboard(address: str, detail: str = "") -> InputError:
    return InputError("address", address, f"no Ray dashboard answers there{detail}", _REMEDY)


def is_this_machine() -> bool:
    """Ask the dashboard that `connect_jobs` found whether all of a job's work runs on this machine."""
    alive = [node for node in list_nodes(detail=True) if node.state == "ALIVE"]
    head = next(node for node in alive if node.is_head_node)
    # A head without CPUs has an autoscaler, which adds nodes for the job.
    if len(alive) > 1 or not head.resources_total.get("CPU"):
        return False
    try:
        # The head's address may be one that no interface lists, such as 127.0.1.1 or a host's name.
        with socket.socket(socket.AF_INET6 if ":" in head.node_ip else socket.AF_INET) as probe:
            probe.bind((head.node_ip, 0))
    except OSError:
        return False
    return True


def submit_job(
    client: JobSubmissionClient,
    submission_id: str,
    entrypoint: str,
    *,
    working_dir: Path,
    environment: Mapping[str, str],
    excludes: Sequence[str],
    metadata: dict[str, str],
) -> None:
    """Upload the working directory and start a job.

    Args:
        client: Connection to the cluster.
        submission_id: Name of the job, unique in a cluster.
        entrypoint: Shell command that the job runs in a copy of the working directory.
        working_dir: Folder that is uploaded.
        environment: Environment variables of the job's processes. Ray logs them, so they must not hold secrets.
        excludes: Further patterns of files that are not uploaded.
        metadata: Notes that Ray keeps with the job.

    Raises:
        InputError: The id is taken, or the directory cannot be uploaded.
    """
    if submission_id in {job.submission_id for job in client.list_jobs()}:
        remedy = f"See `ray job logs {submission_id}`, or give another --submission-id."
        raise InputError("submission-id", submission_id, "is already a job of this cluster", remedy)
    runtime_env = {
        "working_dir": str(working_dir),
        "excludes": [*EXCLUDES, *excludes],
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_SECONDS_TO_STOP), **environment},
    }
    try:
        client.submit_job(
            entrypoint=entrypoint, submission_id=submission_id, runtime_env=runtime_env, metadata=metadata
        )
    except (ValueError, RuntimeError) as error:  # the package is too large, or the dashboard refuses it
        remedy = "Name what the job does not need in .rayignore; Ray takes 100 MiB."
        raise InputError("working-dir", str(working_dir), f"is not taken ({error})", remedy) from error


def follow_job(client: JobSubmissionClient, submission_id: str, write: Callable[[str], object]) -> int:
    """Write a job's log until the job has ended. On Ctrl-C stop the job and wait for its end.

    Args:
        client: Connection to the cluster.
        submission_id: The job.
        write: Called with each piece of the log.

    Returns:
        Exit status of the job's command; 128 + n if signal n ended it; 1 if Ray could not run it or it was stopped.

    Raises:
        KeyboardInterrupt: On Ctrl-C, after the job has ended; on a second one, at once.
    """
    num_written = 0

    async def follow() -> None:
        """Write the log until the job has ended, each character once, even if the connection breaks."""
        nonlocal num_written
        deadline = time.monotonic() + _SECONDS_AWAY
        while True:
            try:
                position = 0
                async for text in client.tail_job_logs(submission_id):
                    position += len(text)
                    new = position - num_written
                    if new > 0:
                        write(text[-new:])
                        num_written = position
                if client.get_job_status(submission_id).is_terminal():
                    return
                deadline = time.monotonic() + _SECONDS_AWAY
            except (RuntimeError, OSError, aiohttp.ClientError, requests.RequestException):
                # The dashboard or its tunnel is unreachable. The job continues without them.
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_SECONDS_BETWEEN_TRIES)

    try:
        asyncio.run(follow())
    except KeyboardInterrupt:
        client.stop_job(submission_id)
        write(f"\nstopping {submission_id}\n")
        asyncio.run(follow())
        raise
    details = client.get_job_info(submission_id)
    if details.status == JobStatus.SUCCEEDED:
        return 0
    status = details.driver_exit_code
    if status is None and details.message:
        # Ray itself could not start or keep the command, and its log does not say why.
        write(f"{details.message}\n")
    # As shells report a command that a signal ended.
    return 128 - status if status is not None and status < 0 else status or 1
