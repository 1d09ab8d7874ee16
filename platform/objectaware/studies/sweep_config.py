"""Configuration of a sweep: a study of several stages, and the parameters that are varied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from objectaware.model import Execution, Model, Positive
from objectaware.stages.registry import all_stages, stage_named


def _is_kind(kind: str) -> str:
    try:
        return stage_named(kind).kind
    except KeyError:
        raise ValueError(f"there is no kind of stage {kind}; there are {', '.join(all_stages())}") from None


StageKind = Annotated[str, AfterValidator(_is_kind)]
"""Name of a kind of stage."""
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

    stage: StageKind
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
        max_concurrent: Maximum number of trials that run at once. By default as many as the cluster has room for.
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
        for problem in (self._stages_problem(), self._search_problem(), self._results_problem()):
            if problem is not None:
                raise ValueError(problem)
        return self

    def _stages_problem(self) -> str | None:
        earlier: set[str] = set()
        for name, stage in self.stages.items():
            for field, source in stage.references().items():
                if source.split(".")[0] not in earlier:
                    return f"stages.{name}.{field} is taken from {source!r}, which is no stage before it"
            earlier.add(name)
        for name, parameter in self.parameters.items():
            for path in parameter.paths:
                if path.split(".")[0] not in earlier or "." not in path:
                    return f"parameters.{name} is the value of {path!r}, which is no field of a stage"
        return None

    def _search_problem(self) -> str | None:
        drawn = self.search in ("random", "optuna")
        if drawn and self.num_samples is None:
            return f"num_samples is missing: search = {self.search} draws so many"
        if not drawn and self.num_samples is not None:
            return f"num_samples has no meaning for search = {self.search}; leave it out"
        for name, parameter in self.parameters.items():
            if (parameter.grid is None) != drawn:
                forms = "choice, uniform or loguniform" if drawn else "a grid"
                return f"parameters.{name}: search = {self.search} takes {forms}"
        if self.search == "optuna" and len(self.seeds) > 1:
            return "optuna searches with one seed; run what it finds with several by a grid"
        if len(set(self.seeds)) < len(self.seeds):
            return f"seeds = {list(self.seeds)} has one twice"
        return None

    def _results_problem(self) -> str | None:
        for name, path in (("metric", self.metric), *((f"columns.{key}", path) for key, path in self.columns.items())):
            if path.split(".")[0] not in self.stages or "." not in path:
                return f"{name} = {path!r} is no value of a stage: write STAGE.value"
        if self.scheduler is not None:
            watched = self.stages.get(self.scheduler.stage)
            if watched is None or watched.stage != "pretrain":
                return f"scheduler.stage = {self.scheduler.stage!r} is no pretraining: only epochs can be compared"
        for cells in self.paper:
            unknown = [name for name in (*cells.rows, *cells.where) if name not in self.parameters]
            unknown += [name for name in cells.columns if name not in self.all_columns()]
            if unknown:
                return f"paper: {', '.join(unknown)} is neither a parameter nor a column"
        if self.plot is not None and self.plot not in self.parameters:
            return f"plot = {self.plot!r} is no parameter"
        return None

    def all_columns(self) -> dict[str, str]:
        """Return the numbers read from every trial: the columns, and the metric by its path unless a column has it."""
        if self.metric in self.columns.values():
            return dict(self.columns)
        return {self.metric: self.metric, **self.columns}
