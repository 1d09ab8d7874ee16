"""The study engine: stages that feed each other, under one parent run.

A study opens its parent run with `open_study`, runs its steps with `run`, and logs its tables in the parent run. A step
is a stage with a name. It names the earlier steps that it needs and makes its configuration from their results. Steps
can come from a function that sees the results so far, so that a later step can depend on an earlier measurement.

The engine keeps no state of its own. A finished stage is found by its identity. A restarted study therefore resumes,
and a step that several studies share is computed once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from objectaware.config import Model
from objectaware.errors import ExplainedError, is_explained
from objectaware.process import processor_name
from objectaware.stages.registry import stage_named
from objectaware.stages.runner import Context, StageResult
from objectaware.tracking import Tracker, environment_tags

if TYPE_CHECKING:
    from objectaware.report.tables import TableReport

Results = Mapping[Any, StageResult]
"""Results of finished steps, by the steps' names."""


@dataclass(frozen=True)
class Step:
    """A stage of a study.

    Attributes:
        name: Name of the step within its study.
        kind: Kind of the stage.
        config: The stage's configuration, or a function that makes it from the results of `inputs`.
        inputs: Names of the earlier steps that it needs.
        title: Title of the stage in progress and in MLflow. By default the stage chooses it.
    """

    name: Hashable
    kind: str
    config: Model | Callable[[Results], Model]
    inputs: tuple[Hashable, ...] = ()
    title: str | None = None


class StagesFailedError(ExplainedError):
    """Stages of a study failed. The others are finished, and the same command resumes from there.

    Args:
        reasons: Message of each failure, with the stage's title.

    Attributes:
        report: The table without the failed stages, if the study makes a table.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__(f"{len(reasons)} stages failed: {'; '.join(reasons)}")
        self.report: TableReport | None = None


@dataclass
class Outcome:
    """The outcome of a study's steps, by their names.

    Attributes:
        results: Results of the finished steps.
        failures: Messages for the steps that failed, and for those that were skipped because they need a failed one.
        errors: Errors of the steps that failed themselves.
    """

    results: dict[Any, StageResult] = field(default_factory=dict)
    failures: dict[Any, str] = field(default_factory=dict)
    errors: dict[Any, Exception] = field(default_factory=dict)

    def raise_failures(self, report: TableReport | None = None) -> None:
        """Raise an error if any step failed.

        Args:
            report: The table without the failed steps.

        Raises:
            StagesFailedError: A step failed. Its cause is the first error without an explanation of its own, if any.
        """
        if self.errors:
            failed = StagesFailedError([self.failures[name] for name in self.errors])
            failed.report = report
            raise failed from next((error for error in self.errors.values() if not is_explained(error)), None)


def run(
    context: Context, steps: Iterable[Step] | Callable[[Results], Iterable[Step]], *, keep_going: bool = False
) -> Outcome:
    """Run the steps of a study in their order, and reuse those that are finished.

    Args:
        context: Context of the stages.
        steps: The steps, each after those that it needs. A function is called with the results so far, a mapping that
            grows while its steps are taken.
        keep_going: Whether to keep the error of a failed step and run the steps that do not need it. By default the
            first error is raised. If Ray does not start, the error is always raised, since no other step could run.

    Returns:
        The results by step and, with `keep_going`, the failures, which the caller raises.
    """
    outcome = Outcome()
    without_ray: list[Exception] = []

    def start_ray() -> None:
        try:
            context.services.start_ray()
        except Exception as error:
            without_ray.append(error)
            raise

    computing = replace(context, services=replace(context.services, start_ray=start_ray))
    for step in steps(outcome.results) if callable(steps) else steps:
        assert step.name not in outcome.results, f"{step.name} is two steps"
        failed = next((outcome.failures[name] for name in step.inputs if name in outcome.failures), None)
        if failed is not None:
            outcome.failures[step.name] = failed
            continue
        try:
            outcome.results[step.name] = run_step(computing, step, outcome.results)
        except Exception as error:
            if not keep_going or error in without_ray:
                raise
            outcome.errors[step.name] = error
            outcome.failures[step.name] = f"{step.title or step.name}: {type(error).__name__}: {error}"
            context.services.progress.line(f"failed: {outcome.failures[step.name]}")
    return outcome


def run_step(context: Context, step: Step, results: Results) -> StageResult:
    """Run one step, or reuse its finished stage.

    Args:
        context: Context of the stages.
        step: The step.
        results: Results of all steps that it needs.
    """
    config = step.config
    if not isinstance(config, Model):
        config = config({name: results[name] for name in step.inputs})
    return stage_named(step.kind)(context, config, title=step.title)


@contextmanager
def open_study(
    context: Context,
    kind: str,
    *,
    name: str,
    dataset: str,
    config: Mapping[str, Any],
    key: str | None = None,
    leased: bool = False,
) -> Iterator[tuple[Context, Tracker]]:
    """Open the parent run of a study, and close it with its true status.

    Args:
        context: Context of the command's stages.
        kind: Kind of the study, logged as the tag `study`.
        name: Name of the run.
        dataset: Tag of the run.
        config: Configuration of the study, to be logged, as plain values.
        key: Key of the study's run. The same study continues in the run of its key. By default `study_key(config)`.
        leased: Whether the caller keeps all other commands from this study in this storage.

    Yields:
        The context of the stages that run under the parent, and the parent run.
    """
    tags = {**environment_tags(processor_name()), "study": kind, "dataset": dataset}
    parent = context.services.tracking.parent_run(
        name=name, key=key or study_key(config), tags=tags, fresh=context.mode.fresh, leased=leased
    )
    try:
        parent.log_config(config)
        yield replace(context, parent=parent), parent
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        parent.finish("KILLED" if interrupted else "FAILED", error=repr(error))
        raise
    parent.finish("FINISHED")


def study_key(config: Mapping[str, Any]) -> str:
    """Return the key of a study that its configuration determines: 20 hexadecimal digits."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:20]
