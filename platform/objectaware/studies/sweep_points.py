"""The trials of a sweep: which values each has, and the configurations of its stages."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from objectaware.config import Model
from objectaware.config.variants import default_names
from objectaware.errors import InputError
from objectaware.recipes import lay, spelt_out
from objectaware.stages.identity import STAND_IN
from objectaware.stages.registry import stage_named
from objectaware.studies.sweep_config import Parameter, StudyStage, SweepConfig


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
        """A short name that tells it from all other trials of the sweep."""
        text = json.dumps([dict(self.values), self.seed], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        """The trial as people read it: `p_mix=0.3 seed=0`."""
        return " ".join(f"{name}={value}" for name, value in (*self.values.items(), ("seed", self.seed)))


def planned_trials(config: SweepConfig) -> list[Trial]:
    """All trials of a sweep whose search does not look at results, in order: seed by seed, none twice.

    Args:
        config: The sweep; `search` is any but `optuna`.
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
    """What the study's fields say of a parameter."""
    stage, *fields = path.split(".")
    value: Any = config.stages[stage].fields
    for field in fields:
        if not isinstance(value, Mapping) or field not in value:
            remedy = f"Write {path} among the fields of the stage."
            raise InputError(f"parameters.{name}", path, "has no value for when others are varied", remedy)
        value = value[field]
    # A variant's name alone, as the values of the parameter are written.
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
    """The configuration of one stage of a trial.

    Args:
        config: The sweep.
        trial: Its values and seed.
        name: The stage.
        outcomes: Values of the earlier stages.

    Raises:
        InputError: The stage's configuration does not take the values.
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
    # The name of an option's variant before the fields of the variant, which it would drop.
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
    """Configurations of all stages of a trial, with stand-ins for what is not computed yet.

    Raises:
        InputError: One of them does not take the trial's values.
    """
    return {name: stage_config(config, trial, name, {}) for name in config.stages}


def parameters_of(config: SweepConfig, name: str) -> list[str]:
    """The parameters that a stage's result depends on: its own, and those of the stages that it takes from."""
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
    """Reads `STAGE.value` off the stages' values.

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
