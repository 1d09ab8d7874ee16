"""The kinds of stages. Each is registered by `@stage` in the file of `stages/` that has its name.

A kind of stage is one file: its configuration, its inputs, its result, and one function with the decorator. The command
line, sweeps, the paper's plans, `runs`, the planner and identities read what they need from the registry.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, get_type_hints

from objectaware.config import Model
from objectaware.distributed.cluster import Need
from objectaware.process import import_modules
from objectaware.stages.machine import on_device
from objectaware.stages.runner import Computation, Context, Stage, StageResult, one_task

Config = TypeVar("Config", bound=Model)
Function = Callable[[Context, Config], Computation[Config]]
FunctionOfParts = Callable[[Context, Config, str | None], StageResult]

_STAGES: dict[str, Stage[Any]] = {}


def stage(
    kind: str,
    *,
    version: int,
    command: str | None = None,
    outcome: str | None = None,
    outputs: tuple[str, ...] = (),
    measures: bool = True,
    long_values: tuple[str, ...] = (),
    needs: Callable[[Any], Sequence[Need]] = one_task,
) -> Callable[[Function[Config]], Stage[Config]]:
    """Register a kind of stage: a function that returns the work of a configuration.

    The attributes of `Stage` describe the arguments. By default, the command is `evaluate KIND`.
    """

    def register(function: Function[Config]) -> Stage[Config]:
        return _registered(
            function,
            kind,
            command=command or f"evaluate {kind.replace('_', '-')}",
            work=function,
            version=version,
            outcome=outcome,
            outputs=outputs,
            measures=measures,
            long_values=long_values,
            needs=needs,
        )

    return register


def stage_of_parts(
    kind: str, *, parts: Callable[[Any], Sequence[Model]], outcome: str | None = None
) -> Callable[[FunctionOfParts[Config]], Stage[Config]]:
    """Register a kind of stage that runs stages of other kinds and has no folder of its own.

    Args:
        kind: Name of the kind. The command is `evaluate KIND`.
        parts: Function that returns the configurations of the stages that it runs.
        outcome: As for `stage`.
    """

    def register(function: FunctionOfParts[Config]) -> Stage[Config]:
        command = f"evaluate {kind.replace('_', '-')}"
        return _registered(function, kind, command=command, run_parts=function, outcome=outcome, parts=parts)

    return register


def _registered(function: Callable[..., object], kind: str, **described: Any) -> Stage[Any]:  # noqa: ANN401 - of `Stage`
    """Register a kind of stage with the configuration that its function takes, and the summary of its docstring."""
    assert kind not in _STAGES, f"{kind} is registered twice"
    summary = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    _STAGES[kind] = Stage(kind, config=get_type_hints(function)["config"], summary=summary, **described)
    return _STAGES[kind]


def all_stages() -> dict[str, Stage[Any]]:
    """Return every kind of stage by its name, sorted by name."""
    import_modules("objectaware.stages")
    return dict(sorted(_STAGES.items()))


def stage_named(kind: str) -> Stage[Any]:
    """Return a kind of stage by its name. Only its own file is imported.

    Raises:
        KeyError: There is no kind of that name.
    """
    if kind not in _STAGES and kind.isidentifier():
        name = f"{__package__}.{kind}"
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)
    return _STAGES[kind]


def computing_stage(config: Model) -> Stage[Any]:
    """Return the kind of stage that a configuration belongs to."""
    return next(one for one in all_stages().values() if one.version is not None and one.config is type(config))


def stage_needs(configs: Iterable[Model], *, has_gpus: Sequence[bool]) -> list[Sequence[Need]]:
    """Return the processes that each of several stages keeps running at once.

    Args:
        configs: Configurations of the stages.
        has_gpus: For each answer, whether a stage runs on GPUs if its configuration leaves that open.
    """
    needs: list[Sequence[Need]] = []
    for config in configs:
        on_devices = [on_device(config, has_gpus=choice) for choice in has_gpus]
        needs += map(computing_stage(config).needs, on_devices)
    return needs
