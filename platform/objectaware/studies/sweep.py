"""Sweeps: trials of a study for many values of its parameters, under one run, compared with the paper.

A trial is the sweep's stages with one combination of values and one seed. A sweep resumes from the files in its folder,
whose name is the sweep's identity:

- `lease/`: written by the driver while it runs, so that another command waits for it.
- `sweep.json`: written by the driver at the start. `objectaware runs` reads it; a sweep does not resume from it.
- `trials/KEY.json` (`Ledger`): the record of a trial. The trial's process writes it once the trial has finished or
  failed. The driver writes it if the process was stopped or died. The driver reads it: a trial that has finished or was
  stopped is not run again, and Optuna continues from all that have finished.
- `begun/KEY.json` (`BegunStages`): written with `--fresh` by a trial's process before it computes a stage again, and
  read by the processes of all trials, so that a shared stage is computed again only once.
- `metric.png` and `result.json`: written by the driver at the end from the records, for people and `objectaware runs`.

In addition, each stage has its own folder and lease (`objectaware.stages.runner`), and the runs of MLflow have spools
(`objectaware.tracking`). Ray Tune's own folder is temporary: nothing is resumed from it.

A sweep is three files: `sweep_config.py` is the recipe and its trials, `objectaware.distributed.tune` runs trials on
Ray Tune, and this file gives it the trials, keeps their records and compares them.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from objectaware.config import GROUND_TRUTH, Model
from objectaware.data.storage import Storage
from objectaware.distributed.room import current_capacity, num_gpus
from objectaware.distributed.tune import (
    Estimator,
    Report,
    TrialStatus,
    num_concurrent,
    require_room_for_one,
    run_trials,
)
from objectaware.evaluate.linear import paired_differences
from objectaware.model import points_to
from objectaware.paper import Cell, load_table
from objectaware.process import processor_name, user_name
from objectaware.report.figures import ComparedPoint, compared_lines
from objectaware.report.tables import report_of
from objectaware.stages.identity import ADDRESS_HASHES, STAND_IN, SWEEP, data_hash, data_sets
from objectaware.stages.registry import all_stages, stage_needs
from objectaware.stages.run_index import indexed
from objectaware.stages.runner import Context, EpochWatch, StageResult
from objectaware.studies.engine import Step, open_study, run_step
from objectaware.studies.sweep_config import (
    PaperCells,
    SweepConfig,
    Trial,
    check_sweep,
    parameters_of,
    planned_trials,
    stage_config,
    stage_parts,
    value_of,
)
from objectaware.tracking import RunStatus, Tracker, environment_tags

_SECONDS_FOR_STOPPED_TRIALS = 60.0
_RUN_STATUS: dict[TrialStatus, RunStatus] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


def sweep_identity(config: SweepConfig, checked: Sequence[Mapping[str, Model]], *, verify: bool) -> str:
    """Hash all that decides the trials' results: the sweep, its inputs from outside, and the code of its stages.

    Args:
        config: The sweep.
        checked: Configurations of the stages of its trials.
        verify: Whether to hash the images' content instead of their times.

    Returns:
        20 hexadecimal digits.

    Raises:
        InputError: A data set, or a file from outside, is missing.
    """
    described = config.model_dump(mode="json", exclude={"execution", "plot", "paper"})
    for stage in described["stages"].values():
        stage["fields"] = _without_execution(stage["fields"])
    parts = stage_parts(config, checked)
    content = {
        "sweep": described,
        # Include every kind's version, since one kind may run several. A trial still reuses each unchanged stage.
        "versions": {kind: one.version for kind, one in all_stages().items() if one.version is not None},
        "data": [data_hash(data, verify=verify) for data in data_sets(parts)],
        "files": _file_hashes(parts),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]


def _without_execution(value: Any) -> Any:  # noqa: ANN401 - JSON is any value
    if isinstance(value, dict):
        return {key: _without_execution(item) for key, item in value.items() if key != "execution"}
    return value


def _file_hashes(parts: Sequence[Model]) -> dict[str, str]:
    """Return the hashes of checkpoints, classifiers and masks that no stage of the sweep makes, by address."""
    found: dict[str, str] = {}
    for part in parts:
        for content, address in _addresses(part):
            if content in ADDRESS_HASHES and address not in (GROUND_TRUTH, STAND_IN, *found):
                found[address] = ADDRESS_HASHES[content](address)
    return found


def _addresses(config: Model) -> Iterator[tuple[str, str]]:
    """Yield each address in a configuration and its options, preceded by the kind of content it points to."""
    for name, described in type(config).model_fields.items():
        value, content = getattr(config, name), points_to(described)
        if isinstance(value, Model):
            yield from _addresses(value)
        elif content is not None:
            addresses = value.values() if isinstance(value, dict) else (value,)
            yield from ((content, address) for address in addresses if address is not None)


@dataclass(frozen=True)
class TrialRecord:
    """The record of a trial that has ended.

    Attributes:
        trial: Values and seed of the trial.
        status: `finished`, `stopped` by the scheduler, or `failed`.
        columns: The sweep's columns by name, if it finished.
        error: Why it failed.
        stages: Identity, folder and MLflow run of each of its finished stages.
    """

    trial: Trial
    status: TrialStatus
    columns: Mapping[str, float]
    error: str | None = None
    stages: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)


class Ledger:
    """The records of a sweep's trials, one file each, written as soon as a trial has ended.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder.child("trials")

    def write(self, record: TrialRecord) -> None:
        """Write a record, replacing an earlier one of the same trial."""
        self._folder.write_json(f"{record.trial.key}.json", asdict(record))

    def read(self, trial: Trial) -> TrialRecord | None:
        """Return the record of a trial, or None if it has not ended."""
        name = f"{trial.key}.json"
        return self._decode(name) if self._folder.exists(name) else None

    def all(self) -> list[TrialRecord]:
        """Return all records, in the order of their names."""
        return [self._decode(name) for name in self._folder.list_names()]

    def forget(self, trial: Trial) -> None:
        """Delete the record of a trial, if there is one."""
        self._folder.delete(f"{trial.key}.json")

    def _decode(self, name: str) -> TrialRecord:
        content = self._folder.read_json(name)
        return TrialRecord(**{**content, "trial": Trial(**content["trial"])})


class BegunStages:
    """The stages that a fresh sweep has started over, one file each, for all its trials' processes (`runner.Begun`).

    The files have the names of the stages' identities.

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder.child("begun")

    def __contains__(self, key: object, /) -> bool:
        return self._folder.exists(f"{key}.json")

    def add(self, key: str, /) -> None:
        """Record that a stage has been started over."""
        self._folder.write_json(f"{key}.json", key)


@dataclass(frozen=True)
class TrialJob:
    """A job that runs trials. It is sent to the trials' processes.

    Attributes:
        config: The sweep.
        context: Context of the trials' stages.
        ledger: Records of how the trials ended.
    """

    config: SweepConfig
    context: Context
    ledger: Ledger

    def __call__(self, values: Mapping[str, Any], report: Report) -> float:
        """Run a trial's stages. Stages that another trial is computing or has computed are not computed again.

        Args:
            values: Fields of the `Trial`.
            report: Called with the epochs that the scheduler compares.

        Returns:
            The sweep's metric.

        Raises:
            Exception: The error of a stage, after it was recorded.
        """
        trial = Trial(**values)
        stopped = threading.Event()

        def on_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
            try:
                report(epoch, metrics)
            except SystemExit:
                # This exception ends the records' thread. The training's own thread fails shortly after, without Ray.
                stopped.set()
                raise

        results: dict[str, StageResult] = {}
        try:
            for name in self.config.stages:
                is_watched = self.config.scheduler is not None and self.config.scheduler.stage == name
                watch = EpochWatch(on_epoch if is_watched else None, stopped.is_set)
                varied = {parameter: trial.values[parameter] for parameter in parameters_of(self.config, name)}
                config = stage_config(self.config, trial, name, _values(results))
                title = f"{name} {Trial(varied, trial.seed).title}"
                step = Step(name, self.config.stages[name].stage, config, title=title)
                results[name] = run_step(replace(self.context, watch=watch), step, results)
            outcomes = _values(results)
            columns = {name: float(value_of(outcomes, path)) for name, path in self.config.all_columns().items()}
        except Exception as error:
            if stopped.is_set():
                raise  # the driver records the stop
            # Without its notes, which hold the traceback of another process: the stage's own run has them.
            text = f"{type(error).__name__}: {error}"
            self.ledger.write(TrialRecord(trial, "failed", {}, text, _outline(results)))
            raise
        self.ledger.write(TrialRecord(trial, "finished", columns, None, _outline(results)))
        return columns[self.config.metric_column()]


def _values(results: Mapping[str, StageResult]) -> dict[str, Mapping[str, Any]]:
    return {name: result.values for name, result in results.items()}


def _outline(results: Mapping[str, StageResult]) -> dict[str, dict[str, str | None]]:
    return {
        name: {"identity": result.identity, "folder": result.folder.uri, "run_id": result.run_id}
        for name, result in results.items()
    }


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        folder: Its folder in the storage.
        rows: One row per combination of values, with our numbers beside the paper's.
        changes: One row per combination, with its differences over the same seeds (`change_rows`).
        trials: One row per trial.
        best: The values with the best mean of the metric; None if no trial has finished.
        num_run: Number of trials that this call ran. The others had ended before.
        num_failed: Number of trials that failed.
        run_id: The parent's MLflow run.
    """

    folder: Storage
    rows: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    trials: list[dict[str, Any]]
    best: Mapping[str, Any] | None
    num_run: int
    num_failed: int
    run_id: str | None


def run_sweep(context: Context, config: SweepConfig) -> SweepResult:
    """Run the trials of a sweep that have not ended yet, under one parent run.

    The next call runs failed trials again, but not those that the scheduler stopped. If another command is running the
    same sweep, this one waits for it and reuses its results. With `context.mode.fresh`, all trials run again and each
    of their stages is computed again, once for all trials that share it.

    Args:
        context: Context of the stages.
        config: The sweep.

    Raises:
        InputError: A trial's configuration is not valid, or the cluster has no room for a trial.
    """
    checked = check_sweep(config)
    identity = sweep_identity(config, checked, verify=context.mode.verify)
    folder = context.services.storage.child("sweep").child(identity)
    with replace(context, mode=replace(context.mode, waits=True)).lease(folder) as lease, ExitStack() as stack:
        guarded = folder.guarded(lease.claim)
        stack.enter_context(indexed(SWEEP, guarded))
        dumped = config.model_dump(mode="json")
        guarded.write_json("sweep.json", {"identity": identity, "user": user_name(), "config": dumped})
        dataset = next((data.root for data in data_sets(stage_parts(config, checked))), "none")
        opened = open_study(
            context, "sweep", name=config.name, key=identity, dataset=dataset, config=dumped, leased=True
        )
        with opened as (context, parent):
            if context.mode.fresh:
                guarded.child("trials").delete_all()
                guarded.child("begun").delete_all()
            return _Sweep(context, config, guarded, identity, parent, Ledger(guarded)).run(checked)


def _ray_is_there() -> None:
    """Do nothing, in a context that is used after Ray has been started."""


@dataclass
class _Sweep:
    """A sweep while it runs, on the driver. It starts trials and keeps their MLflow runs (`TrialEvents`)."""

    context: Context
    config: SweepConfig
    folder: Storage
    identity: str
    parent: Tracker
    ledger: Ledger
    open_runs: dict[str, Tracker] = field(default_factory=dict)
    num_run: int = 0

    def run(self, checked: Sequence[Mapping[str, Model]]) -> SweepResult:
        """Run the trials that have not ended yet, and gather the results of all trials."""
        search = self._estimator() if self.config.search == "optuna" else self._pending()
        if search:
            self._run(search, checked)
        return self._gather()

    def _pending(self) -> list[Mapping[str, Any]]:
        """Return the trials that have neither finished nor been stopped."""
        pending: list[Mapping[str, Any]] = []
        for trial in planned_trials(self.config):
            record = self.ledger.read(trial)
            if record is None or record.status == "failed":
                self.ledger.forget(trial)  # otherwise a process that dies would leave the previous error
                pending.append(vars(trial))
        return pending

    def _estimator(self) -> Estimator | None:
        config = self.config
        done = [record for record in self.ledger.all() if record.status != "failed"]
        assert config.num_samples is not None
        if len(done) >= config.num_samples:
            return None
        parameters = config.parameters.items()
        ranges = {name: (*each.uniform, False) for name, each in parameters if each.uniform}
        ranges |= {name: (*each.loguniform, True) for name, each in parameters if each.loguniform}
        column, (seed,) = config.metric_column(), config.seeds
        return Estimator(
            choices={name: each.choice for name, each in parameters if each.choice},
            ranges=ranges,
            mode=config.mode,
            seed=config.search_seed,
            num_trials=config.num_samples - len(done),
            known=[(each.trial.values, each.columns[column]) for each in done if each.status == "finished"],
            fields={"seed": seed},
        )

    def _run(self, search: Sequence[Mapping[str, Any]] | Estimator, checked: Sequence[Mapping[str, Model]]) -> None:
        config, context, services = self.config, self.context, self.context.services
        services.start_ray()
        # Tune pickles this sweep with its callbacks, and the original `start_ray` holds the command's contexts.
        self.context = replace(context, services=replace(services, start_ray=_ray_is_there))
        needs = stage_needs(stage_parts(config, checked), has_gpus=(num_gpus() > 0,))
        require_room_for_one(needs)

        def max_concurrent() -> int:
            return num_concurrent(needs, current_capacity(), wanted=config.execution.max_concurrent)

        number = search.num_trials if isinstance(search, Estimator) else len(search)
        services.progress.line(f"{config.name}: {number} trials to run, up to {max_concurrent()} at once")
        waiting = replace(context.mode, waits=True)
        of_trials = replace(self.context, mode=waiting, computed=BegunStages(self.folder))
        try:
            run_trials(
                TrialJob(config, of_trials, self.ledger),
                search,
                self,
                max_concurrent=max_concurrent,
                halving=config.scheduler,
            )
        finally:
            for tracker in self.open_runs.values():
                tracker.finish("KILLED", error="interrupted", timeout_seconds=0)
        num_open = services.tracking.close_children(self.parent, timeout_seconds=_SECONDS_FOR_STOPPED_TRIALS)
        if num_open:
            services.progress.line(f"{num_open} runs of stopped trials are still open; the next command closes them")

    def started(self, trial: Mapping[str, Any]) -> None:
        """Open the trial's run."""
        started = Trial(**trial)
        if started.key in self.open_runs:
            return  # Optuna may draw the same values twice
        tags = {**environment_tags(processor_name()), "stage": "trial", "sweep": self.config.name}
        tracker = self.context.services.tracking.child_run(
            self.parent,
            name=started.title,
            key=f"{self.identity}-{started.key}",
            tags=tags,
            fresh=self.context.mode.fresh,
            leased=True,
        )
        tracker.log_config({**started.values, "seed": started.seed})
        self.open_runs[started.key] = tracker
        self.num_run += 1
        self.context.services.progress.line(f"trial {started.title} …")

    def reported(self, trial: Mapping[str, Any], epoch: int, metrics: Mapping[str, float]) -> None:
        """Log an epoch's metrics."""
        tracker = self.open_runs.get(Trial(**trial).key)
        if tracker is not None:
            tracker.log_metrics(metrics, step=epoch)

    def ended(self, trial: Mapping[str, Any], status: TrialStatus, error: str | None) -> None:
        """Close the trial's run, and make sure that the trial has a record."""
        ended = Trial(**trial)
        record = self.ledger.read(ended)
        if record is None and ended.key not in self.open_runs:
            self.started(trial)  # its process died before the trial began
        tracker = self.open_runs.pop(ended.key, None)
        if tracker is None:
            return
        if record is None:  # a trial that was stopped or whose process died could not write it
            record = TrialRecord(ended, status, {}, error)
            self.ledger.write(record)
        tracker.log_metrics(record.columns)
        tracker.set_tags({f"run.{name}": stage["run_id"] for name, stage in record.stages.items() if stage["run_id"]})
        tracker.set_tags({"trial_status": record.status})
        reason = "stopped by the scheduler" if record.status == "stopped" else record.error
        tracker.finish(_RUN_STATUS[record.status], error=reason, timeout_seconds=0)
        outcome = ", ".join(f"{name} {value:.4g}" for name, value in record.columns.items()) or reason
        self.context.services.progress.line(f"trial {ended.title}: {record.status}: {outcome}")

    def _gather(self) -> SweepResult:
        config, parent = self.config, self.parent
        if config.search == "optuna":
            records = self.ledger.all()
        else:
            records = [one for trial in planned_trials(config) if (one := self.ledger.read(trial)) is not None]
        comparisons = compare(config, records)
        rows, trials = comparison_rows(config, comparisons), trial_rows(config, records)
        parent.log_table("comparison", rows)
        parent.log_table("trials", trials)
        changes = change_rows(config, comparisons)
        if changes:
            parent.log_table("changes", changes)
        picture = metric_plot(config, comparisons)
        if picture is not None:
            parent.log_png("metric.png", picture)
            self.folder.write_bytes("metric.png", picture)
        top, num_failed = best(config, comparisons), sum(record.status == "failed" for record in records)
        if top is not None:
            column = config.metric_column()
            parent.log_metrics({f"best.{column}": top.columns[column].mean})
            parent.set_tags({"best": json.dumps(dict(top.values))})
        parent.log_report(report_of(config.name, {"comparison": rows, "changes": changes}))
        self.folder.write_json("result.json", {"rows": rows, "changes": changes, "trials": trials})
        best_values = None if top is None else top.values
        return SweepResult(self.folder, rows, changes, trials, best_values, self.num_run, num_failed, parent.run_id)


@dataclass(frozen=True)
class Comparison:
    """One combination of values.

    Attributes:
        values: Value of each parameter.
        columns: Mean and deviation of our numbers over the seeds, by column; empty if no trial has finished.
        by_seed: The same numbers of each finished trial, by seed and column.
        paper: The paper's numbers by column, if it has any.
        counts: Number of trials by status.
    """

    values: Mapping[str, Any]
    columns: Mapping[str, Cell]
    by_seed: Mapping[int, Mapping[str, float]]
    paper: Mapping[str, float]
    counts: Counter[TrialStatus]


def comparison_rows(config: SweepConfig, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return the comparison as a table: parameters, our numbers, the paper's, and counts of unfinished trials."""
    with_paper = {name for comparison in comparisons for name in comparison.paper}
    rows = []
    for comparison in comparisons:
        row: dict[str, Any] = dict(comparison.values)
        for name in config.all_columns():
            number = comparison.columns.get(name)
            row[name] = None if number is None else number.mean
            if len(config.seeds) > 1:
                row[f"{name} std"] = None if number is None else number.std
            if name in with_paper:
                row[f"{name} paper"] = comparison.paper.get(name)
        counts = comparison.counts
        rows.append({**row, "seeds": counts["finished"], "stopped": counts["stopped"], "failed": counts["failed"]})
    return rows


def change_rows(config: SweepConfig, comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return what each value of a parameter changes from its first one, over the same seeds.

    The parameter is the one along the axis of the picture. A combination is compared with the one that has the
    parameter's first listed value and the same other values.

    Returns:
        One row per combination with two or more common seeds: its values; the value that it is compared with, as
        `from`; and the mean difference with its standard deviation, by column. Empty if the sweep draws its values.
    """
    name = plotted_parameter(config, comparisons) or next(iter(config.parameters))
    listed = config.parameters[name].grid
    if not listed:
        return []
    firsts = [comparison for comparison in comparisons if comparison.values[name] == listed[0]]
    rows = []
    for comparison in comparisons:
        first = next((one for one in firsts if {**comparison.values, name: listed[0]} == one.values), None)
        if first is None or first is comparison:
            continue
        seeds = [seed for seed in comparison.by_seed if seed in first.by_seed]
        if len(seeds) < 2:  # one difference has no deviation
            continue
        row: dict[str, Any] = {**comparison.values, "from": listed[0]}
        after, before = ([one.by_seed[seed] for seed in seeds] for one in (comparison, first))
        differences = paired_differences(after, before)
        for column in config.all_columns():
            row |= {column: differences[column].mean, f"{column} std": differences[column].std}
        rows.append({**row, "seeds": len(seeds)})
    return rows


def plotted_parameter(config: SweepConfig, comparisons: Sequence[Comparison]) -> str | None:
    """Return the parameter along the axis: the one that the sweep names, or the first whose values are numbers."""

    def is_number(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    numeric = (name for name in config.parameters if all(is_number(one.values[name]) for one in comparisons))
    return config.plot or next(numeric, None)


def metric_plot(config: SweepConfig, comparisons: Sequence[Comparison]) -> bytes | None:
    """Draw the metric against a parameter, with one line per combination of the other parameters' values.

    Error bars show one standard deviation over the seeds, if there are several. The paper's numbers are dashed. In a
    sweep that varies one parameter at a time, the line uses the trials in which the others have the fields' values.

    Returns:
        PNG; None if no parameter has numbers as values, or no trial has finished.
    """
    name, column = plotted_parameter(config, comparisons), config.metric_column()
    finished = [comparison for comparison in comparisons if column in comparison.columns]
    if name is None or not finished:
        return None
    lines: dict[str, list[ComparedPoint]] = {}
    for each in sorted(finished, key=lambda each: each.values[name]):
        others = ", ".join(f"{other} = {value}" for other, value in each.values.items() if other != name)
        point = ComparedPoint(each.values[name], each.columns[column], each.paper.get(column))
        lines.setdefault(others, []).append(point)
    is_logarithmic = config.parameters[name].loguniform is not None
    return compared_lines(lines, title=config.name, x_title=name, y_title=column, is_logarithmic=is_logarithmic)


def compare(config: SweepConfig, records: Iterable[TrialRecord]) -> list[Comparison]:
    """Gather trials over their seeds, in the given order, and look up the paper's numbers."""
    groups: dict[str, list[TrialRecord]] = {}
    for record in records:
        groups.setdefault(str(_in_order(config, record)), []).append(record)
    comparisons = []
    for group in groups.values():
        values = _in_order(config, group[0])
        finished = {record.trial.seed: record.columns for record in group if record.status == "finished"}
        names = config.all_columns() if finished else ()
        columns = {name: Cell.over_seeds([columns[name] for columns in finished.values()]) for name in names}
        counts = Counter(record.status for record in group)
        comparisons.append(Comparison(values, columns, finished, paper_numbers(config, values), counts))
    return comparisons


def _in_order(config: SweepConfig, record: TrialRecord) -> dict[str, Any]:
    """Return a trial's values in the order of the sweep's parameters. A record's file has them sorted by name."""
    return {name: record.trial.values[name] for name in config.parameters}


def paper_numbers(config: SweepConfig, values: Mapping[str, Any]) -> dict[str, float]:
    """Return the paper's numbers for a combination of values, by column of the sweep."""
    found: dict[str, float] = {}
    for cells in config.paper:
        if all(values[name] == value for name, value in cells.where.items()):
            found |= _numbers_in(cells, values)
    return found


def _numbers_in(cells: PaperCells, values: Mapping[str, Any]) -> dict[str, float]:
    table, parts = load_table(cells.table), [values[parameter] for parameter in cells.rows]
    for row in table.rows:
        if all(_is_value(name, cells.names, value) for name, value in zip(row.name, parts, strict=True)):
            numbers = {" ".join(column): cell for column, cell in zip(table.columns, row.cells, strict=True)}
            found = {name: numbers[column] for name, column in cells.columns.items()}
            return {name: cell.mean for name, cell in found.items() if cell is not None}
    return {}


def _is_value(part: str, names: Mapping[str, str], value: object) -> bool:
    """Return whether the paper's text stands for a parameter's value: 0 is printed as 0.0."""
    if names.get(str(value), str(value)) == part:
        return True
    try:
        return isinstance(value, int | float) and math.isclose(float(part), value)
    except ValueError:
        return False


def trial_rows(config: SweepConfig, records: Iterable[TrialRecord]) -> list[dict[str, Any]]:
    """Return one row per trial: its values, seed, status, numbers, and the reason of a failure."""
    return [
        {**_in_order(config, one), "seed": one.trial.seed, "status": one.status, **one.columns, "error": one.error}
        for one in records
    ]


def best(config: SweepConfig, comparisons: Iterable[Comparison]) -> Comparison | None:
    """Return the combination with the best mean of the metric, or None if no trial has finished."""
    name = config.metric_column()
    ranked = [comparison for comparison in comparisons if name in comparison.columns]
    sign = 1 if config.mode == "max" else -1
    return max(ranked, key=lambda comparison: sign * comparison.columns[name].mean, default=None)
