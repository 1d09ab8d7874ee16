"""Trials on Ray Tune, each of which starts its own trainings and localizations in the same Ray."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import optuna
import ray
from ray import tune
from ray.tune.callback import Callback
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from objectaware.distributed.abandoned import placement_groups, remove_abandoned_groups, wait_and_remove_new_groups
from objectaware.distributed.cluster import Need
from objectaware.errors import InputError
from objectaware.process import CONFIG_VARIABLE

Mode = Literal["max", "min"]
TrialStatus = Literal["finished", "stopped", "failed"]
Values = Mapping[str, Any]
Report = Callable[[int, Mapping[str, float]], None]
"""Called with the number of an epoch, from 0, and its metrics; raises SystemExit where that has stopped the trial."""

_TRIAL = "trial"
_SCORE = "score"
_EPOCH = "epoch"
_METRICS = "metrics"
_SECONDS_TO_DIE = 60.0
_SECONDS_BETWEEN_CLEANINGS = 2.0
_LONGEST = 10**6  # epochs; ASHA counts its rungs from the bottom

_ENVIRONMENT = {
    # Ctrl-C is an ordinary KeyboardInterrupt; Tune's own handler ends the search as if it were done.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Trials are recorded by their events; CSV and TensorBoard files in a temporary folder are nobody's.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # With its new display Tune writes tables and paths in a temporary folder, whatever `verbose` says.
    "RAY_AIR_NEW_OUTPUT": "0",
    # Epochs have no score yet, and the score comes with no epoch.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}


class TrialEvents(Protocol):
    """Who is told of trials, on the driver."""

    def started(self, trial: Values) -> None:
        """A trial starts."""

    def reported(self, trial: Values, epoch: int, metrics: Mapping[str, float]) -> None:
        """An epoch of the training that the scheduler watches has ended."""

    def ended(self, trial: Values, status: TrialStatus, error: str | None) -> None:
        """A trial has returned, was stopped by the scheduler, or has raised an exception."""


class Halving(Protocol):
    """When trials are stopped: asynchronous successive halving."""

    @property
    def metric(self) -> str:
        """The metric of epochs that is compared."""

    @property
    def mode(self) -> Mode:
        """Which direction of it is better."""

    @property
    def grace_period(self) -> int:
        """Epochs that every trial gets."""

    @property
    def reduction_factor(self) -> int:
        """At each rung, one in this many trials continues."""


@dataclass(frozen=True)
class Estimator:
    """A search that looks at results: Optuna's tree-structured Parzen estimator.

    Attributes:
        choices: Values to choose from, by parameter.
        ranges: Lower and upper limit, and whether the logarithm counts, by parameter.
        mode: Which direction of the score is better.
        seed: Decides what is drawn.
        num_trials: How many to run.
        known: Parameters and score of trials that were run before.
        fields: Further fields of every trial, beside its `values`.
    """

    choices: Mapping[str, Sequence[Any]]
    ranges: Mapping[str, tuple[float, float, bool]]
    mode: Mode
    seed: int
    num_trials: int
    known: Sequence[tuple[Values, float]]
    fields: Values


def num_concurrent(needs: Sequence[Sequence[Need]], *, wanted: int | None) -> int:
    """How many trials the cluster has room for at once.

    Args:
        needs: What each stage of a trial keeps running; one stage runs at a time.
        wanted: How many the user wants at most.

    Returns:
        At least 1.

    Raises:
        InputError: There is no room for one; the message shows the sum.
    """
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    limits = [wanted] if wanted is not None else []
    for resource, attribute in (("CPU", "num_cpus"), ("GPU", "num_gpus")):
        sums = [sum(need.count * getattr(need, attribute) for need in stage) for stage in needs]
        most = max(sums, default=0)
        if not most:
            continue
        available = resources.get(resource, 0)
        limits.append(int(available // most))
        if available < most:
            terms = [(need, getattr(need, attribute)) for need in needs[sums.index(most)] if getattr(need, attribute)]
            arithmetic = " + ".join(f"{need.count} {need.name} × {amount:g}" for need, amount in terms)
            problem = f"one trial needs {arithmetic} = {most:g} {resource}s, the cluster has {available:g}"
            remedy = "Ask for fewer processes in the stages' execution, or use a larger cluster."
            raise InputError("execution", "sweep", problem, remedy)
    return min(limits, default=1)


def run_trials(
    run_trial: Callable[[Values, Report], float],
    search: Sequence[Values] | Estimator,
    events: TrialEvents,
    *,
    max_concurrent: int,
    halving: Halving | None = None,
) -> None:
    """Runs trials under Ray Tune until all have ended; one that fails does not keep the others from running.

    Needs an initialised Ray (`ray_cluster`) with its dashboard, without which Ray Train leaves placement groups of
    stopped trials behind. A trial's own process runs on the driver's node and takes no CPU; the stages that it starts
    take theirs.

    Args:
        run_trial: Runs a trial and returns its score; picklable. It is run in the driver's working directory.
        search: The trials to run, or how they are found.
        events: Told of every trial, on the driver.
        max_concurrent: Trials at once.
        halving: Stops trials that are behind; None lets all run to the end.

    Raises:
        KeyboardInterrupt: On Ctrl-C; trials' processes end with Ray or with the driver.
    """
    for variable, value in _ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failures are told by their events
    folder = Path.cwd()
    # By these a trial's stages tell MLflow which job they are of; Ray hands them to the job's driver alone.
    of_job = {CONFIG_VARIABLE: os.environ[CONFIG_VARIABLE]} if CONFIG_VARIABLE in os.environ else {}

    def trainable(config: dict[str, Any]) -> dict[str, float]:
        os.chdir(folder)
        os.environ.update(of_job)

        def report(epoch: int, metrics: Mapping[str, float]) -> None:
            tune.report({_METRICS: dict(metrics), _EPOCH: epoch + 1})

        return {_SCORE: run_trial(config[_TRIAL], report)}

    searcher: Searcher | None = None
    space: dict[str, Any] = {}
    if isinstance(search, Estimator):
        searcher, num_samples = _Optuna(search), search.num_trials
    else:
        space, num_samples = {_TRIAL: tune.grid_search([dict(trial) for trial in search])}, 1
    groups_before = placement_groups()
    with tempfile.TemporaryDirectory(prefix="objectaware-tune-") as scratch:
        tuner = tune.Tuner(
            tune.with_resources(trainable, tune.PlacementGroupFactory([{_this_node(): 0.001}])),
            param_space=space,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=None if halving is None else _scheduler(halving),
                num_samples=num_samples,
                max_concurrent_trials=max_concurrent,
            ),
            run_config=tune.RunConfig(name="trials", storage_path=scratch, verbose=0, callbacks=[_Listener(events)]),
        )
        tuner.fit()
    if halving is not None:
        wait_and_remove_new_groups(groups_before, _SECONDS_TO_DIE)


def _this_node() -> str:
    """The resource that only the driver's node has: there lie the spools of MLflow's records."""
    node_id = ray.get_runtime_context().get_node_id()
    (node,) = [node for node in ray.nodes() if node["NodeID"] == node_id]  # type: ignore[no-untyped-call]
    return next(name for name in node["Resources"] if name.startswith("node:") and "__internal" not in name)


def _scheduler(halving: Halving) -> ASHAScheduler:
    return ASHAScheduler(
        time_attr=_EPOCH,
        metric=f"{_METRICS}/{halving.metric}",
        mode=halving.mode,
        max_t=_LONGEST,
        grace_period=halving.grace_period,
        reduction_factor=halving.reduction_factor,
    )


class _Optuna(OptunaSearch):
    """Optuna's search, which goes on from what is known, and takes no notice of epochs."""

    def __init__(self, search: Estimator) -> None:
        space: dict[str, Any] = {
            name: optuna.distributions.CategoricalDistribution(list(values)) for name, values in search.choices.items()
        }
        for name, (low, high, is_log) in search.ranges.items():
            space[name] = optuna.distributions.FloatDistribution(low, high, log=is_log)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Another seed, or a search that goes on would draw what it drew first once more.
        sampler = optuna.samplers.TPESampler(seed=search.seed + len(search.known))
        super().__init__(space, metric=_SCORE, mode=search.mode, sampler=sampler)
        for values, score in search.known:
            self.add_evaluated_point(dict(values), score)
        self._fields = dict(search.fields)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """A trial to run."""
        values = super().suggest(trial_id)
        return None if values is None else {_TRIAL: {"values": values, **self._fields}}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Nothing: an epoch has no score."""


class _Listener(Callback):
    """Passes on what Tune tells of its trials."""

    def __init__(self, events: TrialEvents) -> None:
        self._events = events
        self._cleans_until = self._cleaned = 0.0

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:  # noqa: ANN401
        """For a while after a trial was stopped: trials that wait need what its training held."""
        now = time.monotonic()
        if now < self._cleans_until and now - self._cleaned > _SECONDS_BETWEEN_CLEANINGS:
            self._cleaned = now
            remove_abandoned_groups()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ANN401
        self._events.started(trial.config[_TRIAL])

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Any],
        trial: Any,  # noqa: ANN401
        result: dict[str, Any],
        **info: Any,  # noqa: ANN401
    ) -> None:
        if _METRICS in result:
            self._events.reported(trial.config[_TRIAL], int(result[_EPOCH]) - 1, result[_METRICS])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ANN401
        finished = _SCORE in (trial.last_result or {})
        if not finished:
            self._cleans_until = time.monotonic() + _SECONDS_TO_DIE
        self._events.ended(trial.config[_TRIAL], "finished" if finished else "stopped", None)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ANN401
        error = trial.get_error()
        self._events.ended(trial.config[_TRIAL], "failed", None if error is None else str(error))
