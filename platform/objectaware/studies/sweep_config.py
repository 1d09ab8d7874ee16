"""Configuration of a sweep, and its trials: the stages of each trial with one combination of values and one seed."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, ValidationError, model_validator

from objectaware.config.variants import default_names
from objectaware.errors import InputError
from objectaware.model import Execution, Model, Positive, first_fault
from objectaware.recipes import lay, spelt_out
from objectaware.stages.identity import STAND_IN
from objectaware.stages.registry import all_stages, stage_named


def _is_kind(kind: str) -> str:
    try:
        return stage_named(kind).kind
    except KeyError:
        raise ValueError(f"{kind} is not a kind of stage; choose one of {', '.join(all_stages())}") from None


REFERENCE = "from"
"""Key of a field's value that stands for an earlier stage's outcome: `{from: NAME}` or `{from: NAME.value}`."""

_FORMS = ("grid", "choice", "uniform", "loguniform")


class StudyStage(Model):
    """A stage of the study that every trial runs.

    Attributes:
        stage: Kind of the stage.
        fields: Fields of its configuration. `{from: NAME}` takes the outcome of an earlier stage, which is its
            checkpoint, mask store or classifier; `{from: NAME.value}` takes any address among its values.
    """

    stage: Annotated[str, AfterValidator(_is_kind)]
    fields: dict[str, Any] = Field(default_factory=dict)

    def references(self) -> dict[str, str]:
        """Return the references to earlier stages, by the dotted path of the field."""
        return dict(_references(self.fields, ""))


def _references(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if set(value) == {REFERENCE}:
            yield path, str(value[REFERENCE])
            return
        for key, item in value.items():
            yield from _references(item, f"{path}.{key}".removeprefix("."))


class Parameter(Model):
    """A parameter that is varied.

    Attributes:
        paths: Paths of the fields that it sets: `STAGE.FIELD`. Dots reach into nested fields.
        grid: Values that are all tried.
        choice: Values of which one is drawn.
        uniform: Lower and upper bound of a number that is drawn uniformly.
        loguniform: Lower and upper bound of a number whose logarithm is drawn uniformly.
    """

    paths: Annotated[tuple[str, ...], Field(min_length=1)]
    grid: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    choice: Annotated[tuple[Any, ...], Field(min_length=1)] | None = None
    uniform: tuple[float, float] | None = None
    loguniform: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [name for name in _FORMS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of {', '.join(_FORMS)}, not {' and '.join(given) or 'none'}")
        for limits in (self.uniform, self.loguniform):
            if limits is not None and limits[0] >= limits[1]:
                raise ValueError(f"the lower limit {limits[0]} is not below the upper one {limits[1]}")
        return self


class Asha(Model):
    """Asynchronous successive halving (Li et al. 2020): trials that are behind after an epoch are stopped.

    Attributes:
        stage: Name of the pretraining whose epochs are compared.
        metric: Metric of its epochs, such as `knn_accuracy` or `loss`.
        mode: Whether a larger (`max`) or a smaller (`min`) metric is better.
        grace_period: Number of epochs that every trial gets.
        reduction_factor: Reciprocal of the share of trials that continue at each rung.
    """

    stage: str
    metric: str = "knn_accuracy"
    mode: Literal["max", "min"] = "max"
    grace_period: Positive = 1
    reduction_factor: Annotated[int, Field(ge=2)] = 4


class PaperCells(Model):
    """The place of a trial's numbers in a table of the paper.

    Attributes:
        table: Label of the table.
        rows: Names of the parameters whose values make up the parts of a row's name.
        columns: The table's column for each column of the sweep.
        names: The table's names of values, such as `moco: MoCov2`.
        where: Values of other parameters in the table. Trials with other values are not in it.
    """

    table: str
    rows: tuple[str, ...]
    columns: dict[str, str]
    names: dict[str, str] = Field(default_factory=dict)
    where: dict[str, Any] = Field(default_factory=dict)


class SweepExecution(Execution):
    """How a sweep runs.

    Attributes:
        max_concurrent: Maximum number of trials that run at once. By default as many as the cluster has room for, and
            more as it grows.
    """

    max_concurrent: Positive | None = None


class SweepConfig(Model):
    """A sweep: the stages of a trial, the parameters that are varied, and the numbers that are compared.

    Attributes:
        name: Name of the sweep.
        stages: Stages of the study by name, in the order in which they run.
        parameters: Parameters that are varied, by name. `STAGE.FIELD: [values]` is a grid of one field.
        search: `grid` runs every combination; `one_at_a_time` varies each grid alone, while the others keep the values
            of the stages' fields; `random` and `optuna` (the tree-structured Parzen estimator) draw `num_samples`
            combinations.
        num_samples: Number of trials per seed that random and optuna draw.
        search_seed: Seed of the drawn combinations.
        seeds: Seeds of all stages. Every combination is run for each.
        metric: Number by which trials are compared: `STAGE.value`. Dots reach into nested values.
        mode: Whether a larger (`max`) or a smaller (`min`) metric is better.
        columns: Further numbers of each trial, by name, in the form of the metric.
        scheduler: Scheduler that stops trials early; None runs all to the end.
        plot: Parameter along the plot's axis. By default the first whose values are numbers.
        paper: Tables of the paper to compare with.
        execution: How it runs.
    """

    name: str
    stages: Annotated[dict[str, StudyStage], Field(min_length=1)]
    parameters: Annotated[dict[str, Parameter], Field(min_length=1)]
    search: Literal["grid", "one_at_a_time", "random", "optuna"] = "grid"
    num_samples: Positive | None = None
    search_seed: Annotated[int, Field(ge=0)] = 0
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    metric: str
    mode: Literal["max", "min"] = "max"
    columns: dict[str, str] = Field(default_factory=dict)
    scheduler: Asha | None = None
    plot: str | None = None
    paper: tuple[PaperCells, ...] = ()
    execution: SweepExecution = SweepExecution()

    @model_validator(mode="before")
    @classmethod
    def _write_grids_out(cls, values: object) -> object:
        """Expand `STAGE.FIELD: [values]` to a grid, and use a parameter's name as its path if it has none."""
        if not isinstance(values, dict) or not isinstance(values.get("parameters"), Mapping):
            return values
        parameters = {}
        for name, given in values["parameters"].items():
            fields = {"grid": given} if isinstance(given, list | tuple) else given
            parameters[name] = {"paths": (name,), **fields} if isinstance(fields, Mapping) else fields
        return {**values, "parameters": parameters}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuse settings that would fail only once trials run, or would be ignored."""
        problem = next(self._problems(), None)
        if problem is not None:
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """Yield each problem of the stages and their parameters, of the search, and of the results."""
        earlier: set[str] = set()
        for name, stage in self.stages.items():
            for field, source in stage.references().items():
                if source.split(".")[0] not in earlier:
                    yield f"stages.{name}.{field} is taken from {source!r}, which is not an earlier stage"
            earlier.add(name)
        for name, parameter in self.parameters.items():
            for path in parameter.paths:
                if path.split(".")[0] not in earlier or "." not in path:
                    yield f"parameters.{name} is the value of {path!r}, which is not a field of a stage"
        drawn = self.search in ("random", "optuna")
        if drawn and self.num_samples is None:
            yield f"num_samples is missing: search = {self.search} needs it"
        if not drawn and self.num_samples is not None:
            yield f"num_samples has no meaning for search = {self.search}; leave it out"
        for name, parameter in self.parameters.items():
            if (parameter.grid is None) != drawn:
                forms = "choice, uniform or loguniform" if drawn else "a grid"
                yield f"parameters.{name}: search = {self.search} takes {forms}"
        if self.search == "optuna" and len(self.seeds) > 1:
            yield "optuna searches with one seed; run the values that it finds with several seeds as a grid"
        if len(set(self.seeds)) < len(self.seeds):
            yield f"seeds = {list(self.seeds)} contains a seed twice"
        for name, path in (("metric", self.metric), *((f"columns.{key}", path) for key, path in self.columns.items())):
            if path.split(".")[0] not in self.stages or "." not in path:
                yield f"{name} = {path!r} is not a value of a stage: write STAGE.value"
        if self.scheduler is not None:
            watched = self.stages.get(self.scheduler.stage)
            if watched is None or watched.stage != "pretrain":
                yield f"scheduler.stage = {self.scheduler.stage!r} is not a pretraining: only epochs can be compared"
        for cells in self.paper:
            unknown = [name for name in (*cells.rows, *cells.where) if name not in self.parameters]
            unknown += [name for name in cells.columns if name not in self.all_columns()]
            if unknown:
                yield f"paper: {', '.join(unknown)} is neither a parameter nor a column"
        if self.plot is not None and self.plot not in self.parameters:
            yield f"plot = {self.plot!r} is not a parameter"

    def all_columns(self) -> dict[str, str]:
        """Return the numbers read from every trial: the columns, and the metric by its path unless a column has it."""
        if self.metric in self.columns.values():
            return dict(self.columns)
        return {self.metric: self.metric, **self.columns}

    def metric_column(self) -> str:
        """Return the column that holds the metric."""
        return next(name for name, path in self.all_columns().items() if path == self.metric)


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
    draw = {"grid": _grid, "one_at_a_time": _one_at_a_time, "random": _random}[config.search]
    points: list[dict[str, Any]] = []
    for point in draw(config):
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
    try:
        value: Any = reduce(getitem, names, config.stages[stage].fields)
    except (KeyError, TypeError) as error:
        problem = "has no value to keep while other parameters are varied"
        remedy = f"Write {path} among the fields of the stage."
        raise InputError(f"parameters.{name}", path, problem, remedy) from error
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
        place, given, problem = first_fault(error)
        field = ".".join(["stages", name, *place])
        raise InputError(field, given, f"{problem} ({trial.title})", "See docs/sweeps.md.") from error


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
            known = ", ".join(map(str, found)) if isinstance(found, Mapping) else "none"
            raise InputError("metric", path, f"has no {part!r}", f"Its values are: {known}.")
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


def check_sweep(config: SweepConfig) -> list[dict[str, Model]]:
    """Return the stages' configurations of all trials that are known beforehand, with stand-ins for their results.

    Raises:
        InputError: A configuration is not valid.
    """
    if config.search != "optuna":
        return [check_trial(config, trial) for trial in planned_trials(config)]
    limits = {name: one.choice or one.uniform or one.loguniform or () for name, one in config.parameters.items()}
    extremes = [{name: values[place] for name, values in limits.items()} for place in (0, -1)]
    return [check_trial(config, Trial(values, config.seeds[0])) for values in extremes]
