"""The Ray job that this process is the driver of, as Ray's job supervisor tells it."""

from __future__ import annotations

import json
import os
from typing import Any

CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable in which Ray hands a job's runtime environment and metadata to its driver."""


def submission_id() -> str | None:
    """Id of the job, as `ray job list` shows it; None outside a job."""
    return _section("metadata").get("job_submission_id")


def submitted_commit() -> str | None:
    """Git commit that `objectaware submit` noted of what it uploaded, which has no repository any more."""
    return _section("metadata").get("git_commit")


def environment_variables() -> dict[str, str]:
    """Environment variables of the job's runtime environment: its workers have them too."""
    return _section("runtime_env").get("env_vars", {})


def _section(name: str) -> dict[str, Any]:
    section: dict[str, Any] = json.loads(os.environ.get(CONFIG_VARIABLE, "{}")).get(name) or {}
    return section
