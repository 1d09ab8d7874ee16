"""Trials on Ray Tune, each of which starts its own trainings and localizations in the same Ray."""

from __future__ import annotations

import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import optuna
from ray import tune
from ray.tune.callback import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch
from ray.util.placement_group import NODE_ID_LABEL_KEY

from objectaware.distributed.cluster import (
    node_addresses,
    placement_groups,
    remove_abandoned_groups,
    remove_abandoned_rooms,
    wait_and_remove_new_groups,
)
from objectaware.distributed.local_ray import log_level
from objectaware.distributed.room import Capacity, Need, require_possible
from objectaware.process import CONFIG_VARIABLE

Mode = Literal["max", "min"]
TrialStatus = Literal["finished", "stopped", "failed"]
Values = Mapping[str, Any]
Report = Callable[[int, Mapping[str, float]], None]
"""Function that takes the number of an epoch, from 0, and its metrics; raises SystemExit if the trial is stopped."""

_TRIAL = "trial"
_SCORE = "score"
_EPOCH = "epoch"
_METRICS = "metrics"
_SECONDS_TO_DIE = 60.0
_SECONDS_BETWEEN_CLEANINGS = 2.0
_SECONDS_BETWEEN_LOOKS = 5.0
_LONGEST = 10**6  # epochs; ASHA counts its rungs from the bottom


class TrialEvents(Protocol):
    """Receive the events of trials, on the driver."""

    def started(self, trial: Values) -> None:
        """Take the start of a trial."""

    def reported(self, trial: Values, epoch: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of an epoch of the training that the scheduler watches."""

    def ended(self, trial: Values, status: TrialStatus, error: str | None) -> None:
        """Take the end of a trial that has returned, was stopped by the scheduler, or has raised an exception."""


class Halving(Protocol):
    """Asynchronous successive halving, which stops trials that are behind.

    Attributes:
        metric: Metric of epochs that is compared.
        mode: Whether a larger or a smaller metric is better.
        grace_period: Number of epochs that every trial gets.
        reduction_factor: At each rung, one in this many trials continues.
    """

    metric: str
    mode: Mode
    grace_period: int
    reduction_factor: int


@dataclass(frozen=True)
class Estimator:
    """A search that looks at results: Optuna's tree-structured Parzen estimator.

    Attributes:
        choices: Values to choose from, by parameter.
        ranges: Lower and upper limit, and whether the logarithm counts, by parameter.
        mode: Whether a larger or a smaller score is better.
        seed: Seed of the draws.
        num_trials: Number of trials to run.
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


def require_room_for_one(needs: Sequence[Sequence[Need]]) -> None:
    """Refuse a sweep if the cluster could never hold one of its trials.

    Args:
        needs: Processes that each stage of a trial keeps running; one stage runs at a time.

    Raises:
        InputError: There is no room for one; the message shows the sum.
    """
    for stage in needs:
        require_possible("sweep", stage, of="one trial ")


def num_concurrent(needs: Sequence[Sequence[Need]], capacity: Capacity, *, wanted: int | None) -> int:
    """Return how many trials may run at once.

    A cluster that can grow gets twice as many trials as it has room for. Those without room wait, and their wait makes
    it start nodes.

    Args:
        needs: Processes that each stage of a trial keeps running; one stage runs at a time.
        capacity: What the cluster has and can have.
        wanted: Largest number that the user wants.

    Returns:
        At least 1.
    """
    room = min(map(capacity.room, needs), default=math.inf)
    if capacity.can_grow:
        most = min(map(capacity.most_room, needs), default=math.inf)
        room = min(max(2 * room, 1), most)
    limit = room if wanted is None else min(room, wanted)
    return 1 if math.isinf(limit) else max(int(limit), 1)


def run_trials(
    run_trial: Callable[[Values, Report], float],
    search: Sequence[Values] | Estimator,
    events: TrialEvents,
    *,
    max_concurrent: Callable[[], int],
    halving: Halving | None = None,
) -> None:
    """Run trials under Ray Tune until all have ended. If one fails, the others still run.

    Needs an initialised Ray (`ray_cluster`) with its dashboard, without which Ray Train leaves placement groups of
    stopped trials behind. A trial's own process runs on the driver's node and takes no CPU; the stages that it starts
    take theirs. Without a scheduler, the process runs further trials, unless one failed in it.

    Args:
        run_trial: Runs a trial and returns its score; picklable. It is run in the driver's working directory.
        search: The trials to run, or the search that finds them.
        events: Receiver of every trial's events, on the driver.
        max_concurrent: Returns the largest number of trials at once. It is asked again every few seconds.
        halving: Stops trials that are behind; None lets all run to the end.

    Raises:
        KeyboardInterrupt: On Ctrl-C; trials' processes end with Ray or with the driver.
    """
    logging.getLogger("ray.tune").setLevel(log_level(logging.CRITICAL))  # failures are events
    folder = Path.cwd()
    # A trial's stages report their job to MLflow. Ray describes it to the job's driver only.
    of_job = {CONFIG_VARIABLE: os.environ[CONFIG_VARIABLE]} if CONFIG_VARIABLE in os.environ else {}

    def trainable(config: dict[str, Any]) -> dict[str, float]:
        os.chdir(folder)
        os.environ.update(of_job)

        def report(epoch: int, metrics: Mapping[str, float]) -> None:
            tune.report({_METRICS: dict(metrics), _EPOCH: epoch + 1})

        return {_SCORE: run_trial(config[_TRIAL], report)}

    searcher: ConcurrencyLimiter | BasicVariantGenerator
    space: dict[str, Any] = {}
    if isinstance(search, Estimator):
        searcher, num_samples = ConcurrencyLimiter(_Optuna(search), max_concurrent()), search.num_trials
    else:
        searcher = BasicVariantGenerator(max_concurrent=max_concurrent())
        space, num_samples = {_TRIAL: tune.grid_search([dict(trial) for trial in search])}, 1

    def follow_the_cluster() -> None:
        searcher.max_concurrent = max_concurrent()

    scheduler = None
    if halving is not None:
        scheduler = ASHAScheduler(
            time_attr=_EPOCH,
            metric=f"{_METRICS}/{halving.metric}",
            mode=halving.mode,
            max_t=_LONGEST,
            grace_period=halving.grace_period,
            reduction_factor=halving.reduction_factor,
        )
    groups_before = placement_groups()
    with tempfile.TemporaryDirectory(prefix="objectaware-tune-") as scratch:
        tuner = tune.Tuner(
            tune.with_resources(trainable, _on_this_node()),
            param_space=space,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=scheduler,
                num_samples=num_samples,
                # A trial that the scheduler has stopped still trains in its process, which therefore has to end.
                reuse_actors=halving is None,
            ),
            run_config=tune.RunConfig(
                name="trials", storage_path=scratch, verbose=0, callbacks=[_Listener(events, follow_the_cluster)]
            ),
        )
        tuner.fit()
    if halving is not None:
        wait_and_remove_new_groups(groups_before, _SECONDS_TO_DIE)


def _on_this_node() -> tune.PlacementGroupFactory:
    """Ask for the driver's node, where the spools of MLflow's records are.

    Other nodes of its machine have the same address and resource, and may be taken away.
    """
    node, address = next(iter(node_addresses().items()))
    return tune.PlacementGroupFactory([{f"node:{address}": 0.001}], bundle_label_selector=[{NODE_ID_LABEL_KEY: node}])


class _Optuna(OptunaSearch):
    """Optuna's search, which continues from known trials and ignores epochs."""

    def __init__(self, search: Estimator) -> None:
        space: dict[str, Any] = {
            name: optuna.distributions.CategoricalDistribution(list(values)) for name, values in search.choices.items()
        }
        for name, (low, high, is_log) in search.ranges.items():
            space[name] = optuna.distributions.FloatDistribution(low, high, log=is_log)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        # Another seed, since a search that continues would otherwise repeat its first draws.
        sampler = optuna.samplers.TPESampler(seed=search.seed + len(search.known))
        super().__init__(space, metric=_SCORE, mode=search.mode, sampler=sampler)
        for values, score in search.known:
            self.add_evaluated_point(dict(values), score)
        self._fields = dict(search.fields)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return a trial to run."""
        values = super().suggest(trial_id)
        return None if values is None else {_TRIAL: {"values": values, **self._fields}}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Do nothing, since an epoch has no score."""


class _Listener(Callback):
    """Pass on the events of Tune's trials.

    Args:
        events: Receiver of the events.
        follow_the_cluster: Called every few seconds, between two steps of Tune.
    """

    def __init__(self, events: TrialEvents, follow_the_cluster: Callable[[], None]) -> None:
        self._events = events
        self._follow_the_cluster = follow_the_cluster
        self._cleans_until = self._cleaned = self._followed = 0.0

    def on_step_end(self, iteration: int, trials: list[Trial], **_: object) -> None:
        """Look at the cluster.

        For a while after a trial was stopped, remove abandoned groups, since waiting trials need their resources.
        """
        now = time.monotonic()
        if now - self._followed > _SECONDS_BETWEEN_LOOKS:
            self._followed = now
            self._follow_the_cluster()
        if now < self._cleans_until and now - self._cleaned > _SECONDS_BETWEEN_CLEANINGS:
            self._cleaned = now
            remove_abandoned_groups()
            remove_abandoned_rooms()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **_: object) -> None:
        self._events.started(trial.config[_TRIAL])

    def on_trial_result(self, iteration: int, trials: list[Trial], trial: Trial, result: Values, **_: object) -> None:
        if _METRICS in result:
            self._events.reported(trial.config[_TRIAL], int(result[_EPOCH]) - 1, result[_METRICS])

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **_: object) -> None:
        finished = _SCORE in (trial.last_result or {})
        if not finished:
            self._cleans_until = time.monotonic() + _SECONDS_TO_DIE
        self._events.ended(trial.config[_TRIAL], "finished" if finished else "stopped", None)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **_: object) -> None:
        error = trial.get_error()
        self._events.ended(trial.config[_TRIAL], "failed", None if error is None else str(error))
