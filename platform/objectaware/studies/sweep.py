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
(`objectaware.tracking`). Ray Tune's own folder is temporary: nothing is resumed from it. `objectaware.distributed.tune`
runs the trials, `sweep_table.py` compares them, and `sweep_config.py` is the recipe.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from objectaware.config import GROUND_TRUTH, Model
from objectaware.config.variants import default_names
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import Need, has_gpus
from objectaware.distributed.tune import Estimator, Report, TrialStatus, num_concurrent, run_trials
from objectaware.errors import InputError
from objectaware.model import points_to
from objectaware.recipes import lay, spelt_out
from objectaware.stages.identity import ADDRESS_HASHES, STAND_IN, data_hash, data_sets
from objectaware.stages.progress import Progress
from objectaware.stages.registry import all_stages, stage_named, stage_needs
from objectaware.stages.runner import Context, EpochWatch, Mode, Services, StageResult
from objectaware.studies.engine import open_study
from objectaware.studies.sweep_config import Parameter, StudyStage, SweepConfig
from objectaware.studies.sweep_table import best, compare, comparison_rows, metric_column, metric_plot, trial_rows
from objectaware.tracking import RunStatus, Tracker, TrackingStore, environment_tags

_SECONDS_FOR_STOPPED_TRIALS = 60.0
_RUN_STATUS: dict[TrialStatus, RunStatus] = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


@dataclass(frozen=True)
class Trial:
    """One combination of the parameters' values, with one seed.

    Attributes:
        values: Value of each parameter.
        seed: Seed of all stages.
    """

    values: Mapping[str, Any]
    seed: int

    @property
    def key(self) -> str:
        """Return a short name that is unique among the trials of the sweep."""
        text = json.dumps([dict(self.values), self.seed], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """Return the trial in a readable form: `p_mix=0.3 seed=0`."""
        return " ".join(f"{name}={value}" for name, value in (*self.values.items(), ("seed", self.seed)))


def planned_trials(config: SweepConfig) -> list[Trial]:
    """Return all trials of a sweep whose search does not depend on results: seed by seed, without duplicates.

    Args:
        config: The sweep, with any `search` except `optuna`.
    """
    points: list[dict[str, Any]] = []
    for point in _POINTS[config.search](config):
        if point not in points:
            points.append(point)
    return [Trial(point, seed) for seed in config.seeds for point in points]


def _grid(config: SweepConfig) -> Iterator[dict[str, Any]]:
    grids = [parameter.grid or () for parameter in config.parameters.values()]
    return (dict(zip(config.parameters, values, strict=True)) for values in itertools.product(*grids))


def _one_at_a_time(config: SweepConfig) -> Iterator[dict[str, Any]]:
    base = {name: _value_at(config, name, parameter.paths[0]) for name, parameter in config.parameters.items()}
    for name, parameter in config.parameters.items():
        for value in parameter.grid or ():
            yield {**base, name: value}


def _value_at(config: SweepConfig, name: str, path: str) -> object:
    """Return the value that the study's fields give a parameter."""
    stage, *names = path.split(".")
    value: Any = config.stages[stage].fields
    for name_of_field in names:
        if not isinstance(value, Mapping) or name_of_field not in value:
            remedy = f"Write {path} among the fields of the stage."
            raise InputError(f"parameters.{name}", path, "has no value for when others are varied", remedy)
        value = value[name_of_field]
    # Only the variant's name, because the values of the parameter are written as names.
    return value["name"] if isinstance(value, Mapping) and set(value) == {"name"} else value


def _random(config: SweepConfig) -> Iterator[dict[str, Any]]:
    generator = np.random.default_rng(config.search_seed)
    assert config.num_samples is not None
    for _ in range(config.num_samples):
        yield {name: _drawn(parameter, generator) for name, parameter in config.parameters.items()}


def _drawn(parameter: Parameter, generator: np.random.Generator) -> Any:  # noqa: ANN401 - any value of a field
    if parameter.choice is not None:
        return parameter.choice[int(generator.integers(len(parameter.choice)))]
    if parameter.uniform is not None:
        return float(generator.uniform(*parameter.uniform))
    assert parameter.loguniform is not None
    low, high = map(math.log, parameter.loguniform)
    return float(math.exp(generator.uniform(low, high)))


_POINTS: dict[str, Callable[[SweepConfig], Iterator[dict[str, Any]]]] = {
    "grid": _grid,
    "one_at_a_time": _one_at_a_time,
    "random": _random,
}


def stage_config(config: SweepConfig, trial: Trial, name: str, outcomes: Mapping[str, Mapping[str, Any]]) -> Model:
    """Return the configuration of one stage of a trial.

    Args:
        config: The sweep.
        trial: Values and seed of the trial.
        name: Name of the stage.
        outcomes: Values of the earlier stages.

    Raises:
        InputError: The stage's configuration refuses the values.
    """
    stage = config.stages[name]
    model = stage_named(stage.stage).config
    options = default_names(model)
    fields = spelt_out(copy.deepcopy(stage.fields), options)
    varied_paths = [
        (path.split(".")[1:], value, path)
        for parameter, value in trial.values.items()
        for path in config.parameters[parameter].paths
        if path.split(".")[0] == name
    ]
    # Set the name of an option's variant before the variant's fields, since setting the name drops them.
    for steps, value, path in sorted(varied_paths, key=lambda one: len(one[0])):
        lay(fields, steps, copy.deepcopy(value), options, shown=("parameters", path))
    if "seed" in model.model_fields:
        fields["seed"] = trial.seed
    varied = StudyStage(stage=stage.stage, fields=fields)
    for path, source in varied.references().items():
        lay(fields, path.split("."), _outcome(config, source, outcomes), shown=("parameters", path))
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _refusal(name, trial, error) from error


def check_trial(config: SweepConfig, trial: Trial) -> dict[str, Model]:
    """Return the configurations of all stages of a trial, with stand-ins for values that are not computed yet.

    Raises:
        InputError: A configuration refuses the trial's values.
    """
    return {name: stage_config(config, trial, name, {}) for name in config.stages}


def parameters_of(config: SweepConfig, name: str) -> list[str]:
    """Return the parameters that a stage's result depends on: its own, and those of the stages that it takes from."""
    stages = {name}
    for earlier in reversed(list(config.stages)):
        if earlier in stages:
            stages |= {source.split(".")[0] for source in config.stages[earlier].references().values()}
    return [
        parameter
        for parameter, fields in config.parameters.items()
        if any(path.split(".")[0] in stages for path in fields.paths)
    ]


def value_of(values: Mapping[str, Mapping[str, Any]], path: str) -> Any:  # noqa: ANN401 - any value of a stage
    """Read `STAGE.value` from the stages' values.

    Raises:
        InputError: There is no such value.
    """
    found: Any = values
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            known = ", ".join(map(str, found)) if isinstance(found, Mapping) else "no further ones"
            raise InputError("metric", path, f"there is no {part!r}", f"There are: {known}.")
        found = found[part]
    return found


def _outcome(config: SweepConfig, source: str, outcomes: Mapping[str, Mapping[str, Any]]) -> Any:  # noqa: ANN401
    name, *path = source.split(".")
    kind = config.stages[name].stage
    outcome = stage_named(kind).outcome
    if not path and outcome is None:
        problem = f"is of the kind {kind}, which has several outcomes or none"
        raise InputError("from", source, problem, f"Name one of its values: {{from: {name}.VALUE}}.")
    if name not in outcomes:
        return STAND_IN
    return value_of(outcomes, source if path else f"{name}.{outcome}")


def _refusal(name: str, trial: Trial, error: ValidationError) -> InputError:
    first = error.errors()[0]
    field = ".".join(map(str, ("stages", name, *first["loc"])))
    problem = first["msg"].removeprefix("Value error, ").rstrip(".")
    value = "…" if isinstance(first["input"], Mapping) else first["input"]
    return InputError(field, value, f"{problem[:1].lower()}{problem[1:]} ({trial.title})", "See docs/sweeps.md.")


def stage_parts(config: SweepConfig, checked: Sequence[Mapping[str, Model]]) -> list[Model]:
    """Return the configurations that all trials' stages consist of.

    Args:
        config: The sweep.
        checked: Configurations of the stages of its trials.
    """
    return [
        part
        for stages in checked
        for name, each in stages.items()
        for part in stage_named(config.stages[name].stage).parts(each)
    ]


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
    for content, address in (found_one for part in parts for found_one in _addresses(part)):
        hash_of = ADDRESS_HASHES.get(content)
        if hash_of is not None and address not in (GROUND_TRUTH, STAND_IN, *found):
            found[address] = hash_of(address)
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
        content = {**vars(record), "trial": vars(record.trial)}
        self._folder.write_json(f"{record.trial.key}.json", content)

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

    def clear(self) -> None:
        """Delete all records."""
        self._folder.delete_all()

    def _decode(self, name: str) -> TrialRecord:
        content = self._folder.read_json(name)
        return TrialRecord(**{**content, "trial": Trial(**content["trial"])})


class BegunStages:
    """The stages that a fresh sweep has started over, one file each, for all its trials' processes (`runner.Begun`).

    Args:
        folder: The sweep's folder.
    """

    def __init__(self, folder: Storage) -> None:
        self._folder = folder.child("begun")

    def __contains__(self, key: object, /) -> bool:
        return self._folder.exists(self._name(key))

    def add(self, key: str, /) -> None:
        """Record that a stage has been started over."""
        self._folder.write_json(self._name(key), key)

    def clear(self) -> None:
        """Delete all records."""
        self._folder.delete_all()

    def _name(self, key: object) -> str:
        return f"{hashlib.sha256(str(key).encode()).hexdigest()[:20]}.json"


@dataclass(frozen=True)
class TrialJob:
    """A job that runs trials. It is sent to the trials' processes.

    Attributes:
        config: The sweep.
        storage: Folder that contains all stages' folders.
        tracking: MLflow store in use.
        parent: The sweep's run.
        ledger: Records of how the trials ended.
        verify: Whether to hash the inputs' content instead of their times.
        begun: With `fresh`, the stages that have already been started over; None without `fresh`.
    """

    config: SweepConfig
    storage: Storage
    tracking: TrackingStore
    parent: Tracker
    ledger: Ledger
    verify: bool
    begun: BegunStages | None

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
                results[name] = self._run_stage(trial, name, results, on_epoch, stopped)
            outcomes = _values(results)
            columns = {name: float(value_of(outcomes, path)) for name, path in self.config.all_columns().items()}
        except Exception as error:
            if stopped.is_set():
                raise  # the driver records the stop
            text = "".join(traceback.format_exception_only(error)).strip()
            self.ledger.write(TrialRecord(trial, "failed", {}, text, _outline(results)))
            raise
        self.ledger.write(TrialRecord(trial, "finished", columns, None, _outline(results)))
        return float(value_of(outcomes, self.config.metric))

    def _run_stage(
        self,
        trial: Trial,
        name: str,
        results: Mapping[str, StageResult],
        on_epoch: Report,
        stopped: threading.Event,
    ) -> StageResult:
        config = self.config
        is_watched = config.scheduler is not None and config.scheduler.stage == name
        context = Context(
            Services(self.storage, self.tracking, Progress()),
            Mode(fresh=self.begun is not None, verify=self.verify, waits=True),
            parent=self.parent,
            computed=set() if self.begun is None else self.begun,
            watch=EpochWatch(on_epoch if is_watched else None, stopped.is_set),
        )
        varied = {parameter: trial.values[parameter] for parameter in parameters_of(config, name)}
        title = f"{name} {Trial(varied, trial.seed).title}"
        stage = stage_config(config, trial, name, _values(results))
        return stage_named(config.stages[name].stage)(context, stage, title=title)


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
        trials: One row per trial.
        best: The values with the best mean of the metric; None if no trial has finished.
        num_run: Number of trials that this call ran. The others had ended before.
        num_failed: Number of trials that failed.
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
    """Return the processes that each stage of each trial keeps running, one stage at a time.

    Args:
        config: The sweep.
        checked: Result of `check_sweep`.
        has_gpus: Whether stages run on GPUs if their configuration leaves that open.
    """
    return [stage_needs(part, has_gpus=has_gpus) for part in stage_parts(config, checked)]


def check_sweep(config: SweepConfig) -> list[dict[str, Model]]:
    """Return the stages' configurations of all trials that are known beforehand, with stand-ins for their results.

    Raises:
        InputError: A configuration is not valid.
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
    """Do nothing, in a context that is used after Ray has been started."""


class _Sweep:
    """A sweep while it runs, on the driver. It starts trials and keeps their MLflow runs (`TrialEvents`)."""

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
        """Run the trials that have not ended yet, and gather the results of all trials."""
        if self._context.mode.fresh:
            self._ledger.clear()
            self._begun.clear()
        search = self._estimator() if self._config.search == "optuna" else self._pending()
        if search:
            self._run(search, checked)
        return self._gather()

    def _pending(self) -> list[Mapping[str, Any]]:
        """Return the trials that have neither finished nor been stopped."""
        pending: list[Mapping[str, Any]] = []
        for trial in planned_trials(self._config):
            record = self._ledger.read(trial)
            if record is None or record.status == "failed":
                self._ledger.forget(trial)  # otherwise a process that dies would leave the previous error
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
        # Tune pickles this sweep with its callbacks, and the original `start_ray` holds the command's contexts.
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
        try:
            run_trials(job, search, self, max_concurrent=at_once, halving=config.scheduler)
        finally:
            for tracker in self._open_runs.values():
                tracker.finish("KILLED", error="interrupted", timeout_seconds=0)
        num_open = services.tracking.close_children(self._parent, timeout_seconds=_SECONDS_FOR_STOPPED_TRIALS)
        if num_open:
            services.progress.line(f"{num_open} runs of stopped trials are still open; the next command closes them")

    def started(self, trial: Mapping[str, Any]) -> None:
        """Open the trial's run."""
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
        """Log an epoch's metrics."""
        tracker = self._open_runs.get(Trial(**trial).key)
        if tracker is not None:
            tracker.log_metrics(metrics, step=epoch)

    def ended(self, trial: Mapping[str, Any], status: TrialStatus, error: str | None) -> None:
        """Close the trial's run, and make sure that the trial has a record."""
        ended = Trial(**trial)
        tracker = self._open_runs.pop(ended.key, None)
        if tracker is None:
            return
        record = self._ledger.read(ended)
        if record is None:  # a trial that was stopped or whose process died could not write it
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
