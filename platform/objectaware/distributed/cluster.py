"""The Ray that a command uses: reach it, check it, and see that it is large enough."""

from __future__ import annotations

import logging
import math
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import psutil
import ray

# Nothing public asks an address whether a Ray answers there and takes the token. `ray.init` tries for minutes.
from ray._private.authentication import authentication_utils
from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
from ray._private.grpc_utils import init_grpc_channel
from ray._private.services import canonicalize_bootstrap_address
from ray.core.generated.gcs_service_pb2 import GetClusterIdRequest  # type: ignore[attr-defined]
from ray.core.generated.gcs_service_pb2_grpc import NodeInfoGcsServiceStub
from ray.exceptions import AuthenticationError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from objectaware.distributed.local_ray import local_ray
from objectaware.distributed.room import ROOM_NAME
from objectaware.errors import Finding, InputError, one_line
from objectaware.process import job_variables, submission_id

if TYPE_CHECKING:
    from ray.util.state.common import ActorState, PlacementGroupState

_KNOCK_SECONDS = 10.0
_MIN_LOGICAL_CPUS = 8
_ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):(?P<port>\d{1,5})")
_MAX_PORT = 65535
_REMEDY = "Start one with `ray start --head`, or unset RAY_ADDRESS to run on this machine alone."

Result = TypeVar("Result")

_TASK_SECONDS = 60.0
_SECONDS_BETWEEN_LOOKS = 2.0
_MAX_LISTED = 10_000

_logger = logging.getLogger(__name__)


@contextmanager
def ray_cluster(*, min_cpus: float = 0) -> Iterator[None]:
    """Provide Ray for the stages inside the `with` block.

    If this process has already initialised Ray, use that. Otherwise connect to `RAY_ADDRESS`. If that is not set or is
    `local`, start a Ray on this machine (`local_ray`) with at least 8 logical CPUs, since a stage's processes wait for
    each other most of the time. On leaving, disconnect from or stop only what was connected to or started here. Inside
    the block, SIGTERM raises `KeyboardInterrupt`.

    Args:
        min_cpus: Logical CPUs that the stages need (`room.total_cpus`); a local Ray gets at least as many.

    Raises:
        InputError: No Ray answers at `RAY_ADDRESS`.
        ExplainedError: The local Ray did not start.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS")
    num_cpus = max(_MIN_LOGICAL_CPUS, os.cpu_count() or 1, math.ceil(min_cpus))
    with _connected(address) if address and address != "local" else local_ray(num_cpus), termination_as_interrupt():
        yield


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGTERM, which `ray job stop` sends; Ray's own handler aborts the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """Connect to a cluster for the `with` block.

    Ray forwards what it and the job's processes print, for example that a process was killed for its memory, or that no
    node has room for a request.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    require_answer(address)
    with _refusing(address):
        ray.init(address=address, runtime_env=_uploaded_package(), log_to_driver=True, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _refusing(address: str) -> Iterator[None]:
    """Turn the errors that Ray raises while it connects into an `InputError` about `RAY_ADDRESS`."""
    try:
        yield
    except AuthenticationError as error:
        raise token_refusal("RAY_ADDRESS", address) from error
    except (OSError, UnicodeError, grpc.RpcError, grpc.FutureTimeoutError) as error:  # UnicodeError: a bad host name
        raise InputError("RAY_ADDRESS", address, "no Ray cluster answers there", _REMEDY) from error
    except RuntimeError as error:  # another version of Ray, or of Python
        problem = f"does not take this command ({one_line(error)[:300]})"
        raise InputError("RAY_ADDRESS", address, problem, _REMEDY) from error


def token_refusal(field: str, address: str) -> InputError:
    """Return the error for a cluster that wants another token than this process has sent, or wants one at all."""
    problem = "refuses the token"
    if not authentication_utils.is_token_auth_enabled():  # `ray start --head` has it on, clients have it off
        problem = "asks for a token, and none is sent while RAY_AUTH_MODE is not `token`"
    places = "RAY_AUTH_TOKEN, the file of RAY_AUTH_TOKEN_PATH, or ~/.ray/auth_token"
    remedy = f"Set RAY_AUTH_MODE=token, and put the cluster's token into {places} (docs/cluster.md)."
    return InputError(field, address, problem, remedy)


def require_answer(address: str) -> None:
    """Check that Ray answers at an address, because Ray itself tries for minutes and then ends the process.

    Args:
        address: Value of `RAY_ADDRESS`.

    Raises:
        InputError: Ray does not take such an address, no Ray answers there, or the token is not the cluster's.
    """
    with _refusing(address):
        parts = _ADDRESS.fullmatch(_found_address() if address == "auto" else address)
        if parts is None or not 1 <= int(parts["port"]) <= _MAX_PORT:
            raise InputError("RAY_ADDRESS", address, "is not HOST:PORT, such as 10.0.0.1:6379", _REMEDY)
        host, port = parts["host"], int(parts["port"])
        socket.create_connection((host.strip("[]"), port), timeout=_KNOCK_SECONDS).close()
        _ask(f"{host}:{port}", is_client_server=parts["client"] is not None)


def _found_address() -> str:
    """Return the address of the Ray that runs on this machine, for `auto`."""
    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)  # as `ray.init` does for `auto`
    return canonicalize_bootstrap_address("auto") or ""


def _ask(server: str, *, is_client_server: bool) -> None:
    with init_grpc_channel(server) as channel:
        if is_client_server:
            grpc.channel_ready_future(channel).result(timeout=_KNOCK_SECONDS)
            return
        service = NodeInfoGcsServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            service.GetClusterId(GetClusterIdRequest(), timeout=_KNOCK_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                raise AuthenticationError(str(error.details())) from error
            raise


def _uploaded_package() -> dict[str, dict[str, str]]:
    """Return the runtime environment with which a job's workers find the uploaded copy of this package."""
    source_root = Path(__file__).resolve().parents[2]
    if submission_id() is None or "PYTHONPATH" in job_variables() or not source_root.is_relative_to(Path.cwd()):
        return {}
    # Relative, since every node unpacks the upload into another folder, in which its workers start.
    return {"env_vars": {"PYTHONPATH": str(source_root.relative_to(Path.cwd()))}}


def node_addresses() -> dict[str, str]:
    """Return the address of each living node by its id, the driver's own node first."""
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    own = ray.get_runtime_context().get_node_id()
    return {own: nodes.pop(own), **nodes}


def interface_of(address: str) -> str | None:
    """Return the name of this machine's network interface with an IP address, such as `eth0`.

    Returns:
        The name, or None if no interface has the address, for example behind address translation.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if address in (known.address for known in addresses):
            return name
    return None


def cancel_running(references: Iterable[ray.ObjectRef[Any]], *, force: bool = False) -> None:
    """Cancel tasks that run or wait, but, as far as is known, no task that has ended.

    Ray delivers a result a moment before it closes the task. Cancelling the task in that moment aborts the whole
    process ("Tried to complete task that was not pending").

    Args:
        references: The tasks.
        force: End the processes of the tasks that run.
    """
    for reference in references:
        _, running = ray.wait([reference], timeout=0, fetch_local=False)
        if running:
            ray.cancel(reference, force=force)


def run_on_nodes(
    function: Callable[..., Result], *args: object, timeout_seconds: float
) -> tuple[dict[str, Result], list[str]]:
    """Run a function once on every node, without reserving a CPU.

    Args:
        function: The function; it, its arguments and its results are picklable.
        args: Its arguments.
        timeout_seconds: How long to wait for all nodes.

    Returns:
        Results by node address, and the addresses of the nodes that did not answer in time.

    Raises:
        Exception: What the function raised on a node.
    """
    references = {}
    for node_id, address in node_addresses().items():
        place = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
        # Two nodes of one machine, as in tests, have one address.
        references[address if address not in references else f"{address} ({node_id[:8]})"] = task.remote(*args)
    _, late = ray.wait(list(references.values()), num_returns=len(references), timeout=timeout_seconds)
    cancel_running(late)
    answers: dict[str, Result] = {}
    for address, reference in references.items():
        if reference in late:
            continue
        try:
            answers[address] = ray.get(reference)
        except RayTaskError:
            raise
        except RayError as error:  # the node has just gone
            _logger.info("%s does not answer: %s", address, error)
    return answers, [address for address in references if address not in answers]


def remove_abandoned_groups() -> bool:
    """Remove the placement groups of this driver's trainings whose workers are all dead.

    Ray Train has an actor that should remove them. It asks for its controller without saying in which Ray. If several
    Rays run on a machine, it gets no answer, and the group keeps its CPUs and GPUs until the driver ends.

    A training that continues never returns to such a group, but makes another one for its next workers.

    Returns:
        Whether workers of a training are still alive.
    """
    # Ray Train's own class: the groups of trainings have no name, and nothing public lists its workers.
    workers = own_actors(("class_name", "=", "RayTrainWorker"), detail=True)
    living = {worker.placement_group_id for worker in workers if worker.state != "DEAD"}
    for name in {worker.placement_group_id for worker in workers if worker.placement_group_id} - living:
        _remove(name)
    return bool(living)


def remove_abandoned_rooms() -> None:
    """Remove the placement groups by which trials of this driver waited for room when they were stopped."""
    waiting = {group.placement_group_id: group.name.removeprefix(ROOM_NAME) for group in _groups(ROOM_NAME)}
    if not any(waiting.values()):
        return
    living = {actor.actor_id for actor in own_actors(("state", "!=", "DEAD"))}
    for name, actor_id in waiting.items():
        if actor_id and actor_id not in living:
            _remove(name)


def own_actors(wanted: tuple[str, str, str], *, detail: bool = False) -> list[ActorState]:
    """Return the actors of this driver that a filter of Ray's lets through."""
    from ray.util.state import list_actors

    context = ray.get_runtime_context()
    return list_actors(
        address=context.gcs_address,
        filters=[("job_id", "=", context.get_job_id()), wanted],
        detail=detail,
        limit=_MAX_LISTED,
        raise_on_missing_output=False,
    )


def wait_and_remove_abandoned_groups(seconds: float) -> None:
    """Wait until no training runs any more, and remove the groups of all.

    Args:
        seconds: Longest time to wait for trainings to end.
    """
    deadline = time.monotonic() + seconds
    while remove_abandoned_groups() and time.monotonic() < deadline:
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def placement_groups() -> set[str]:
    """Return the names of the placement groups of this driver that hold resources, or wait for them."""
    return {group.placement_group_id for group in _groups()}


def _groups(name: str = "") -> list[PlacementGroupState]:
    """Return the placement groups of this driver that are not removed, and whose names begin with a text."""
    from ray.util.state import list_placement_groups

    context = ray.get_runtime_context()
    found = list_placement_groups(
        address=context.gcs_address,
        filters=[("creator_job_id", "=", context.get_job_id()), ("state", "!=", "REMOVED")],
        limit=_MAX_LISTED,
        raise_on_missing_output=False,
    )
    return [group for group in found if group.name.startswith(name)]


def wait_and_remove_new_groups(before: set[str], seconds: float) -> None:
    """Remove all placement groups that this driver did not have before, once no training runs any more.

    A training that was stopped after its group was made and before its workers started leaves a group that no worker
    names.

    Args:
        before: Result of `placement_groups` at an earlier time.
        seconds: Longest time to wait for trainings to end.
    """
    wait_and_remove_abandoned_groups(seconds)
    for name in placement_groups() - before:
        _remove(name)


def _remove(name: str) -> None:
    remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))


def check_ray(check_nodes: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Start the local Ray as every command does, or connect to `RAY_ADDRESS`, and run one task on it.

    Args:
        check_nodes: Checks the nodes of a cluster. It is called while Ray is connected to one.

    Returns:
        The finding about Ray, and for a cluster the findings about its nodes.
    """
    address = os.environ.get("RAY_ADDRESS")
    try:
        with ray_cluster():
            version = ray.get(ray.remote(num_cpus=0)(lambda: str(ray.__version__)).remote(), timeout=_TASK_SECONDS)
            num_nodes = len(node_addresses())
            resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
            on_nodes = list(check_nodes()) if address else []
    except InputError as error:
        return [Finding("Ray", "broken", f"{error.field} = {error.value}: {error.problem}", error.remedy)]
    except Exception as error:  # Ray has no common base class for errors at its start
        text = one_line(error)[:300]
        remedy = "See the log in the folder `ray` of RAY_TMPDIR, by default /tmp/ray."
        if address:
            remedy = f"Install Ray {ray.__version__} on the cluster, or the cluster's here; or unset RAY_ADDRESS."
        return [Finding("Ray", "broken", f"does not run a task ({type(error).__name__}: {text})", remedy)]
    where = f"cluster at {address}, {num_nodes} nodes" if address else "started on this machine"
    gpus = f", {resources['GPU']:g} GPUs" if resources.get("GPU") else ""
    found = f"{version}, {where}, {resources.get('CPU', 0):g} logical CPUs{gpus}"
    return [Finding("Ray", "ok", found), *on_nodes]
