"""The Ray job whose driver this process is, as Ray's job supervisor describes it."""

from __future__ import annotations

import json
import os
from typing import Any

CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Environment variable in which Ray passes a job's runtime environment and metadata to its driver."""


def submission_id() -> str | None:
    """Return the id of the job, as `ray job list` shows it; None outside a job."""
    return _section("metadata").get("job_submission_id")


def submitted_commit() -> str | None:
    """Return the Git commit that `objectaware submit` uploaded, or None. The uploaded copy has no repository."""
    return _section("metadata").get("git_commit")


def environment_variables() -> dict[str, str]:
    """Return the environment variables of the job's runtime environment. The job's workers have them too."""
    return _section("runtime_env").get("env_vars", {})


def _section(name: str) -> dict[str, Any]:
    section: dict[str, Any] = json.loads(os.environ.get(CONFIG_VARIABLE, "{}")).get(name) or {}
    return section
