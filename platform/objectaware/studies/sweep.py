"""A sweep: trials of a study, distributed themselves, recorded under one run, and compared with the paper."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from objectaware.config import Model
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import Need, has_gpus
from objectaware.distributed.sweep import Estimator, Halving, num_concurrent, run_trials
from objectaware.stages.registry import stage_needs
from objectaware.stages.runner import Context
from objectaware.studies.engine import open_study
from objectaware.studies.sweep_config import Parameter, SweepConfig
from objectaware.studies.sweep_identity import data_sets, stage_parts, sweep_identity
from objectaware.studies.sweep_points import Trial, check_trial, planned_trials
from objectaware.studies.sweep_table import best, compare, comparison_rows, metric_column, metric_plot, trial_rows
from objectaware.studies.sweep_trial import BegunStages, Ledger, TrialJob, TrialRecord, TrialStatus
from objectaware.tracking import RunStatus, Tracker, environment_tags

_SECONDS_FOR_STOPPED_TRIALS = 60.0
_RUN_STATUS: dict[TrialStatus, RunStatus] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to.

    Attributes:
        folder: Its folder in the storage.
        rows: A row a combination of values, our numbers beside the paper's.
        trials: A row a trial.
        best: The values whose mean of the metric is best; None where no trial has finished.
        num_run: Trials that this call has run; the others had ended before.
        num_failed: Trials that failed.
        run_id: The parent's MLflow run.
    """

    folder: Storage
    rows: list[dict[str, Any]]
    trials: list[dict[str, Any]]
    best: Mapping[str, Any] | None
    num_run: int
    num_failed: int
    run_id: str | None


def sweep_needs(config: SweepConfig, checked: Sequence[Mapping[str, Model]], *, has_gpus: bool) -> list[Sequence[Need]]:
    """Processes that each stage of each trial keeps running, one stage at a time.

    Args:
        config: The sweep.
        checked: What `check_sweep` gave.
        has_gpus: Whether stages run on GPUs whose configuration leaves that open.
    """
    return [stage_needs(part, has_gpus=has_gpus) for part in stage_parts(config, checked)]


def check_sweep(config: SweepConfig) -> list[dict[str, Model]]:
    """Configurations of the stages of all trials that are known beforehand, with stand-ins for what they compute.

    Raises:
        InputError: One of them is not valid.
    """
    if config.search != "optuna":
        return [check_trial(config, trial) for trial in planned_trials(config)]
    extremes = []
    for place in (0, -1):
        values = {name: _limits(parameter)[place] for name, parameter in config.parameters.items()}
        extremes.append(check_trial(config, Trial(values, config.seeds[0])))
    return extremes


def _limits(parameter: Parameter) -> Sequence[Any]:
    limits = parameter.choice or parameter.uniform or parameter.loguniform
    assert limits is not None
    return limits


def run_sweep(context: Context, config: SweepConfig) -> SweepResult:
    """Runs the trials of a sweep that have not ended yet, under one parent run.

    A trial that failed is run again by the next call; one that the scheduler stopped is not. Where another command is
    at the same sweep, this one waits for it and reuses what it came to. With `context.mode.fresh` all trials run
    again, and each of their stages is computed anew, once for all trials that share it.

    Args:
        context: What the stages share.
        config: The sweep.

    Raises:
        InputError: A trial's configuration is not valid, or the cluster has no room for one.
    """
    checked = check_sweep(config)
    identity = sweep_identity(config, checked, verify=context.mode.verify)
    folder = context.services.storage.child("sweep").child(identity)
    with replace(context, mode=replace(context.mode, waits=True)).lease(folder) as lease:
        guarded = folder.guarded(lease.claim)
        dumped = config.model_dump(mode="json")
        guarded.write_json("sweep.json", {"identity": identity, "config": dumped})
        dataset = next((data.root for data in data_sets(stage_parts(config, checked))), "none")
        opened = open_study(
            context, "sweep", name=config.name, key=identity, dataset=dataset, config=dumped, leased=True
        )
        with opened as (context, parent):
            result = _Sweep(context, config, guarded, identity, parent).run(checked)
    return replace(result, folder=folder)


def _ray_is_there() -> None:
    """Start nothing: for a context that is used after Ray has been started."""


class _Sweep:
    """A sweep while it runs, on the driver: starts trials, and keeps their runs (`TrialEvents`)."""

    def __init__(self, context: Context, config: SweepConfig, folder: Storage, identity: str, parent: Tracker) -> None:
        self._context = context
        self._config = config
        self._folder = folder
        self._identity = identity
        self._parent = parent
        self._ledger = Ledger(folder)
        self._begun = BegunStages(folder)
        self._open_runs: dict[str, Tracker] = {}
        self._num_run = 0

    def run(self, checked: Sequence[Mapping[str, Model]]) -> SweepResult:
        """Runs what has not ended yet and gathers what all trials came to."""
        if self._context.mode.fresh:
            self._ledger.clear()
            self._begun.clear()
        search = self._estimator() if self._config.search == "optuna" else self._pending()
        if search:
            self._run(search, checked)
        return self._gather()

    def _pending(self) -> list[Mapping[str, Any]]:
        """Trials that have neither finished nor been stopped."""
        pending: list[Mapping[str, Any]] = []
        for trial in planned_trials(self._config):
            record = self._ledger.read(trial)
            if record is None or record.status == "failed":
                self._ledger.forget(trial)  # or a process that dies would leave the error of the time before
                pending.append(vars(trial))
        return pending

    def _estimator(self) -> Estimator | None:
        config = self._config
        done = [record for record in self._ledger.all() if record.status != "failed"]
        assert config.num_samples is not None
        if len(done) >= config.num_samples:
            return None
        ranges = {name: (*each.uniform, False) for name, each in config.parameters.items() if each.uniform}
        ranges |= {name: (*each.loguniform, True) for name, each in config.parameters.items() if each.loguniform}
        column, (seed,) = metric_column(config), config.seeds
        return Estimator(
            choices={name: each.choice for name, each in config.parameters.items() if each.choice},
            ranges=ranges,
            mode=config.mode,
            seed=config.search_seed,
            num_trials=config.num_samples - len(done),
            known=[(each.trial.values, each.columns[column]) for each in done if each.status == "finished"],
            fields={"seed": seed},
        )

    def _run(self, search: Sequence[Mapping[str, Any]] | Estimator, checked: Sequence[Mapping[str, Model]]) -> None:
        config, context, services = self._config, self._context, self._context.services
        services.start_ray()
        # Tune pickles this sweep with its callbacks; the function that has started Ray holds the command's contexts.
        services = replace(services, start_ray=_ray_is_there)
        self._context = replace(context, services=services)
        at_once = num_concurrent(
            sweep_needs(config, checked, has_gpus=has_gpus()), wanted=config.execution.max_concurrent
        )
        number = search.num_trials if isinstance(search, Estimator) else len(search)
        services.progress.line(f"{config.name}: {number} trials to run, up to {at_once} at once")
        begun = self._begun if context.mode.fresh else None
        verify = context.mode.verify
        job = TrialJob(config, services.storage, services.tracking, self._parent, self._ledger, verify, begun)
        asha = config.scheduler
        halving = None if asha is None else Halving(asha.metric, asha.mode, asha.grace_period, asha.reduction_factor)
        try:
            run_trials(job, search, self, max_concurrent=at_once, halving=halving)
        finally:
            for tracker in self._open_runs.values():
                tracker.finish("KILLED", error="interrupted", timeout_seconds=0)
        num_open = services.tracking.close_children(self._parent, timeout_seconds=_SECONDS_FOR_STOPPED_TRIALS)
        if num_open:
            services.progress.line(f"{num_open} runs of stopped trials are still open; the next command closes them")

    def started(self, trial: Mapping[str, Any]) -> None:
        """Opens the trial's run."""
        started = Trial(**trial)
        if started.key in self._open_runs:
            return  # Optuna may draw the same values twice
        tags = {**environment_tags("cpu"), "stage": "trial", "sweep": self._config.name}
        tracker = self._context.services.tracking.child_run(
            self._parent,
            name=started.title,
            key=f"{self._identity}-{started.key}",
            tags=tags,
            fresh=self._context.mode.fresh,
            leased=True,
        )
        tracker.log_config({**started.values, "seed": started.seed})
        self._open_runs[started.key] = tracker
        self._num_run += 1
        self._context.services.progress.line(f"trial {started.title} …")

    def reported(self, trial: Mapping[str, Any], epoch: int, metrics: Mapping[str, float]) -> None:
        """Logs an epoch."""
        tracker = self._open_runs.get(Trial(**trial).key)
        if tracker is not None:
            tracker.log_metrics(metrics, step=epoch)

    def ended(self, trial: Mapping[str, Any], status: TrialStatus, error: str | None) -> None:
        """Closes the trial's run, and sees to it that there is a record of the trial."""
        ended = Trial(**trial)
        tracker = self._open_runs.pop(ended.key, None)
        if tracker is None:
            return
        record = self._ledger.read(ended)
        if record is None:  # a trial that is stopped, or whose process dies, cannot write it
            record = TrialRecord(ended, status, {}, error)
            self._ledger.write(record)
        tracker.log_metrics(record.columns)
        tracker.set_tags({f"run.{name}": stage["run_id"] for name, stage in record.stages.items() if stage["run_id"]})
        tracker.set_tags({"trial_status": record.status})
        reason = "stopped by the scheduler" if record.status == "stopped" else record.error
        tracker.finish(_RUN_STATUS[record.status], error=reason, timeout_seconds=0)
        outcome = ", ".join(f"{name} {value:.4g}" for name, value in record.columns.items()) or reason
        self._context.services.progress.line(f"trial {ended.title}: {record.status}: {outcome}")

    def _gather(self) -> SweepResult:
        config, parent = self._config, self._parent
        planned = [] if config.search == "optuna" else [self._ledger.read(trial) for trial in planned_trials(config)]
        records = self._ledger.all() if config.search == "optuna" else [each for each in planned if each is not None]
        comparisons = compare(config, records)
        rows, trials = comparison_rows(config, comparisons), trial_rows(config, records)
        parent.log_table("comparison", rows)
        parent.log_table("trials", trials)
        picture = metric_plot(config, comparisons)
        if picture is not None:
            parent.log_png("metric.png", picture)
            self._folder.write_bytes("metric.png", picture)
        top, num_failed = best(config, comparisons), sum(record.status == "failed" for record in records)
        if top is not None:
            parent.log_metrics({f"best.{metric_column(config)}": top.columns[metric_column(config)].mean})
            parent.set_tags({"best": json.dumps(dict(top.values))})
        self._folder.write_json("result.json", {"rows": rows, "trials": trials})
        best_values = None if top is None else top.values
        return SweepResult(self._folder, rows, trials, best_values, self._num_run, num_failed, parent.run_id)
