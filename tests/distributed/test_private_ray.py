"""What is used of Ray though it is private: why pyproject.toml bounds Ray, and what to look at before it is raised."""

from __future__ import annotations

import ast
import importlib
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PRIVATE = {
    "ray._private.authentication": "a token that is missing or wrong is named before Ray ends the process",
    "ray._private.authentication.authentication_token_setup": "the same, for the address `auto`",
    "ray._private.grpc_utils": "an address is asked for an answer with the token, within seconds",
    "ray._private.services": "the address `auto` is looked up before Ray does",
    "ray._private.ray_constants": "the key under which the first autoscaler writes its report",
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
        any(part.startswith("_") for part in parts) or parts[1:2] == ["core"] or "internal_kv" in parts
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


def test_the_package_takes_no_other_minor_release_than_the_one_that_was_read() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [one.specifier for one in map(Requirement, dependencies) if one.name == "ray"]
    installed = Version(version("ray"))
    assert installed in bound
    assert Version(f"{installed.major}.{installed.minor + 1}") not in bound
    assert Version(f"{installed.major}.{installed.minor - 1}") not in bound
