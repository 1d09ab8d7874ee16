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
from objectaware.distributed.room import Need
from objectaware.process import import_modules
from objectaware.stages.machine import on_device
from objectaware.stages.runner import Computation, Context, Stage, StageResult

Config = TypeVar("Config", bound=Model)
Function = Callable[[Context, Config], Computation[Config]]
FunctionOfParts = Callable[[Context, Config, str | None], StageResult]

_STAGES: dict[str, Stage[Any]] = {}


def stage(
    kind: str,
    *,
    command: str | None = None,
    **described: Any,  # noqa: ANN401 - of `Stage`
) -> Callable[[Function[Config] | FunctionOfParts[Config]], Stage[Config]]:
    """Register a kind of stage.

    The function takes a context and a configuration and returns the work. With `parts`, it takes also a title, and runs
    stages of other kinds; such a kind has no folder of its own. The first paragraph of its docstring is the summary.

    Args:
        kind: Name of the kind.
        command: Words after `objectaware` that run it. By default `evaluate KIND`.
        described: `version`, or `parts`, and other attributes of `Stage`.
    """

    def register(function: Function[Config] | FunctionOfParts[Config]) -> Stage[Config]:
        assert kind not in _STAGES, f"{kind} is registered twice"
        assert "version" in described or "parts" in described, f"{kind} has no version"
        _STAGES[kind] = Stage(
            kind,
            command or f"evaluate {kind.replace('_', '-')}",
            get_type_hints(function)["config"],
            summary=" ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split()),
            **{"run_parts" if "parts" in described else "work": function, **described},
        )
        return _STAGES[kind]

    return register


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
