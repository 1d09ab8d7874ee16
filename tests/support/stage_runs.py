"""Run a test's own work as a stage of any kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from objectaware.config import Model
from objectaware.data.storage import Storage
from objectaware.stages.registry import stage_named
from objectaware.stages.runner import Computation, Context, StageResult, StageRun


def run_as(
    context: Context,
    kind: str,
    title: str,
    config: Model,
    inputs: Mapping[str, str],
    compute: Callable[[StageRun, Any], Mapping[str, Any]],
    *,
    tags: Mapping[str, str],
    check: Callable[[Any], object] = lambda config: None,
    out: Storage | None = None,
    networks: Sequence[str] = (),
) -> StageResult:
    """Run `compute` as a stage of a kind, which needs no processes."""
    work = Computation(title, inputs, compute, tags, check, networks=networks)
    stage = replace(stage_named(kind), work=lambda context, config: work)
    return stage(context, config, out=out)
