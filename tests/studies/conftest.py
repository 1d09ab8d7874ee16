"""An MLflow store for the tests of a file, and what the stages of a command share."""

from stage_fixtures import context, tasks, tracking

__all__ = ["context", "tasks", "tracking"]
