"""Configuration of a sweep: a study of several stages, and what is varied in it."""

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
"""Key of a field's value that stands for the outcome of an earlier stage: `{from: NAME}` or `{from: NAME.value}`."""

_FORMS = ("grid", "choice", "uniform", "loguniform")


class StudyStage(Model):
    """A stage of the study that every trial runs.

    Attributes:
        stage: What kind of stage it is.
        fields: Fields of its configuration; `{from: NAME}` takes the outcome of an earlier stage, its checkpoint,
            mask store or classifier, and `{from: NAME.value}` any address among its values.
    """

    stage: StageKind
    fields: dict[str, Any] = Field(default_factory=dict)

    def references(self) -> dict[str, str]:
        """What is taken from earlier stages, by the dotted path of the field."""
        return dict(_references(self.fields, ""))


def _references(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        if set(value) == {REFERENCE}:
            yield path, str(value[REFERENCE])
            return
        for key, item in value.items():
            yield from _references(item, f"{path}.{key}".removeprefix("."))


class Parameter(Model):
    """Something that is varied.

    Attributes:
        paths: The fields that it is the value of: `STAGE.FIELD`, dots reach into nested fields.
        grid: All of these values.
        choice: One of these, drawn.
        uniform: A number between these two, drawn evenly.
        loguniform: A number between these two, its logarithm drawn evenly.
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
        stage: The pretraining whose epochs are compared.
        metric: A metric of its epochs, such as `knn_accuracy` or `loss`.
        mode: Which direction of it is better.
        grace_period: Epochs that every trial gets.
        reduction_factor: One in so many goes on at each rung.
    """

    stage: str
    metric: str = "knn_accuracy"
    mode: Literal["max", "min"] = "max"
    grace_period: Positive = 1
    reduction_factor: Annotated[int, Field(ge=2)] = 4


class PaperCells(Model):
    """Where a trial's numbers stand in a table of the paper.

    Attributes:
        table: Label of the table.
        rows: The parameter that each part of a row's name is the value of.
        columns: The table's column by the column of the sweep.
        names: What the table calls values, such as `moco: MoCov2`.
        where: Values that other parameters have in the table; trials with others are not in it.
    """

    table: str
    rows: tuple[str, ...]
    columns: dict[str, str]
    names: dict[str, str] = Field(default_factory=dict)
    where: dict[str, Any] = Field(default_factory=dict)


class SweepExecution(Execution):
    """How a sweep runs.

    Attributes:
        max_concurrent: Trials at once; by default as many as the cluster has room for.
    """

    max_concurrent: Positive | None = None


class SweepConfig(Model):
    """A sweep: what is done in a trial, what is varied, and what is compared.

    Attributes:
        name: What it is called.
        stages: The study, in the order in which the stages run.
        parameters: What is varied, by name. `STAGE.FIELD: [values]` is a grid of one field.
        search: `grid`: every combination; `one_at_a_time`: each grid by itself, all others as the stages' fields say;
            `random` and `optuna` (the tree-structured Parzen estimator) draw `num_samples` combinations.
        num_samples: Trials of random and optuna, for each seed.
        search_seed: Decides what is drawn.
        seeds: Seeds of all stages; every combination is run for each.
        metric: What trials are compared by: `STAGE.value`, dots reach into nested values.
        mode: Which direction of it is better.
        columns: Further numbers of each trial, by name, given as the metric is.
        scheduler: Stops trials early; None runs all to the end.
        plot: Parameter along the plot's axis; by default the first whose values are numbers.
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
        """Takes `STAGE.FIELD: [values]` for a grid, and a parameter's name for its path where it gives none."""
        if not isinstance(values, dict) or not isinstance(values.get("parameters"), Mapping):
            return values
        parameters = {}
        for name, given in values["parameters"].items():
            fields = {"grid": given} if isinstance(given, list | tuple) else given
            parameters[name] = {"paths": (name,), **fields} if isinstance(fields, Mapping) else fields
        return {**values, "parameters": parameters}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Refuses what would fail only once trials run, or be ignored."""
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
        """What is read off every trial: the metric, by its own path unless a column has that, and the columns."""
        if self.metric in self.columns.values():
            return dict(self.columns)
        return {self.metric: self.metric, **self.columns}
