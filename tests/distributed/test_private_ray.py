"""What is used of Ray though it is private: why pyproject.toml bounds Ray, and what to look at before it is raised."""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import ray
from packaging.requirements import Requirement
from packaging.version import Version
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray.train.torch import TorchConfig
from ray.train.v2._internal import constants
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker

from objectaware.distributed import ENVIRONMENT, cluster, train
from objectaware.process import CONFIG_VARIABLE

ROOT = Path(__file__).parents[2]
PRIVATE = {
    "ray._private.authentication": "a token that is missing or wrong is named before Ray ends the process",
    "ray._private.authentication.authentication_token_setup": "the same, for the address `auto`",
    "ray._private.grpc_utils": "an address is asked for an answer with the token, within seconds",
    "ray._private.services": "the address `auto` is looked up before Ray does",
    "ray._private.ray_constants": "the key under which the first autoscaler writes its report",
    "ray.autoscaler.v2.sdk": "the nodes that are on their way; the public `ray.autoscaler.sdk` asks for nodes alone",
    "ray.core.generated.gcs_service_pb2": "the question that is asked of an address",
    "ray.core.generated.gcs_service_pb2_grpc": "the same",
    "ray.experimental.internal_kv": "the first autoscaler's report",
    "ray.train.v2._internal.exceptions": "a wait for room is told from workers that die while they start",
    "ray.train.v2._internal.execution.callback": "there is no public callback for the time before workers run",
    "ray.train.v2._internal.execution.controller.state": "the same",
}
"""Modules that may change in any release of Ray, each with what would break."""


def _is_private(module: str) -> bool:
    parts = module.split(".")
    return parts[0] == "ray" and (
        any(part.startswith("_") for part in parts)
        or parts[1:2] == ["core"]
        or parts[1:3] == ["autoscaler", "v2"]
        or "internal_kv" in parts
    )


def _imported() -> dict[str, set[str]]:
    """Names that the package imports from private modules of Ray, by module."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "platform" / "objectaware" / "distributed").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and _is_private(node.module):
                found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def test_every_use_of_something_private_is_listed_with_what_would_break() -> None:
    assert set(_imported()) == set(PRIVATE)


@pytest.mark.parametrize("module", PRIVATE)
def test_it_is_still_there(module: str) -> None:
    there = importlib.import_module(module)
    for name in _imported()[module]:
        assert hasattr(there, name) or importlib.import_module(f"{module}.{name}"), (
            f"{module}.{name}: {PRIVATE[module]}"
        )


NAMES = {
    "its list of checkpoints, which a kill leaves half written": (
        train._SNAPSHOT,
        constants.CHECKPOINT_MANAGER_SNAPSHOT_FILENAME,
    ),
    "the class of its workers, by which lost ones are found": ("RayTrainWorker", RayTrainWorker.__name__),
    "how often its controller looks": (train._HEALTH_CHECK_SECONDS, constants.HEALTH_CHECK_INTERVAL_S_ENV_VAR),
    "a driver's description of its job": (CONFIG_VARIABLE, RAY_JOB_CONFIG_JSON_ENV_VAR),
    "how long workers may take to start": (
        next(name for name in ENVIRONMENT if name.endswith("GROUP_START_TIMEOUT_S")),
        constants.WORKER_GROUP_START_TIMEOUT_S_ENV_VAR,
    ),
    "prints that are not doubled": (
        next(name for name in ENVIRONMENT if name.endswith("PRINT_PATCH")),
        constants.ENABLE_PRINT_PATCH_ENV_VAR,
    ),
}
"""Names that are written out, each beside Ray's own."""


@pytest.mark.parametrize("used", NAMES)
def test_names_that_are_written_out_are_still_rays(used: str) -> None:
    ours, rays = NAMES[used]
    assert ours == rays


def test_what_is_overridden_or_called_is_still_there() -> None:
    """And `DataParallelTrainer._register_sigint_handler`, in test_train.py."""
    assert "RayTrainWorker" in inspect.getsource(cluster.remove_abandoned_groups)
    assert inspect.iscoroutinefunction(TrainController.abort)
    assert list(inspect.signature(TorchConfig().backend_cls.on_start).parameters) == [
        "self",
        "worker_group",
        "backend_config",
    ]
    assert '"_temp_dir"' in inspect.getsource(ray.init)


def test_the_package_takes_no_other_minor_release_than_the_one_that_was_read() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [one.specifier for one in map(Requirement, dependencies) if one.name == "ray"]
    installed = Version(version("ray"))
    assert installed in bound
    assert Version(f"{installed.major}.{installed.minor + 1}") not in bound
    assert Version(f"{installed.major}.{installed.minor - 1}") not in bound
