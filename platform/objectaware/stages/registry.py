"""The kinds of stages. Each is registered by `@stage` in the file of `stages/` that has its name.

A kind of stage is one file: its configuration, its inputs, its result, and one function with the decorator. The command
line, sweeps, the paper's plans, `runs`, the planner and identities read what they need from the registry.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, get_type_hints

from objectaware.config import Model
from objectaware.data.storage import Storage
from objectaware.distributed.cluster import Need
from objectaware.stages.machine import on_device
from objectaware.stages.runner import Computation, Context, StageResult, run_stage

Config = TypeVar("Config", bound=Model)


def one_task(config: Model) -> list[Need]:
    """Return the needs of a stage that runs one task at a time, on a GPU if its configuration says so."""
    use_gpu = bool(getattr(getattr(config, "execution", None), "use_gpu", False))
    return [Need("task", 1, 1, float(use_gpu))]


@dataclass(frozen=True)
class Stage(Generic[Config]):
    """A kind of stage. Calling it runs the stage, or reuses its finished result.

    Attributes:
        kind: Name of the kind. Its file, its folder in the storage, its command and sweeps use it.
        summary: One line for --help that says what the stage does.
        run: Function that takes the context, the configuration, the title and the output folder.
        version: Version of the code that computes the stage. Raise it when the same input would give another result.
            None for a kind that consists of stages of other kinds.
        outcome: Name of the value that later stages take by `{from: NAME}`. None if later stages must name one.
        outputs: Patterns of the paths that the stage writes into its folder, beside `stage.json` and `result.json`.
            A pattern that ends with a slash matches everything in such a folder.
        measures: Whether the stage measures something. If so, its value `coverage` says which samples the measures
            cover.
        long_values: Names of values that a command writes but does not print.
        needs: Function that returns the processes that the stage keeps running at once. It takes a configuration with
            `execution.use_gpu` filled in.
        parts: Function that returns the configurations of the stages that this one consists of.
    """

    kind: str
    config: type[Config]
    summary: str
    run: Callable[[Context, Config, str | None, Storage | None], StageResult]
    version: int | None
    outcome: str | None
    outputs: tuple[str, ...]
    measures: bool
    long_values: tuple[str, ...]
    needs: Callable[[Config], Sequence[Need]]
    parts: Callable[[Config], Sequence[Model]]

    def __call__(
        self, context: Context, config: Config, *, title: str | None = None, out: Storage | None = None
    ) -> StageResult:
        """Run the stage, or reuse its finished result; see `objectaware.stages.runner.run_stage`.

        Args:
            context: Context that the stages of a command share.
            config: The stage's configuration.
            title: Title of the stage in progress and in MLflow. By default the stage chooses it.
            out: Folder for its output. By default a folder in the storage, named by the stage's identity.
        """
        return self.run(context, config, title, out)


_STAGES: dict[str, Stage[Any]] = {}

Function = Callable[[Context, Config], Computation[Config]]
FunctionOfParts = Callable[[Context, Config, str | None], StageResult]


def stage(
    kind: str,
    *,
    version: int,
    outcome: str | None = None,
    outputs: tuple[str, ...] = (),
    measures: bool = True,
    long_values: tuple[str, ...] = (),
    needs: Callable[[Any], Sequence[Need]] = one_task,
) -> Callable[[Function[Config]], Stage[Config]]:
    """Register a kind of stage: a function that returns the computation of a configuration.

    The attributes of `Stage` describe the arguments.
    """

    def register(function: Function[Config]) -> Stage[Config]:
        def run(context: Context, config: Config, title: str | None, out: Storage | None) -> StageResult:
            return run_stage(context, registered, config, function(context, config), title=title, out=out)

        registered: Stage[Config] = Stage(
            kind=kind,
            config=get_type_hints(function)["config"],
            summary=_summary(function),
            run=run,
            version=version,
            outcome=outcome,
            outputs=outputs,
            measures=measures,
            long_values=long_values,
            needs=needs,
            parts=lambda config: [config],
        )
        return _registered(registered)

    return register


def stage_of_parts(
    kind: str, *, parts: Callable[[Any], Sequence[Model]], outcome: str | None = None
) -> Callable[[FunctionOfParts[Config]], Stage[Config]]:
    """Register a kind of stage that runs stages of other kinds and has no folder of its own.

    Args:
        kind: Name of the kind.
        parts: Function that returns the configurations of the stages that it runs.
        outcome: As for `stage`.
    """

    def register(function: FunctionOfParts[Config]) -> Stage[Config]:
        def run(context: Context, config: Config, title: str | None, out: Storage | None) -> StageResult:
            assert out is None, f"{kind} has no folder of its own"
            return function(context, config, title)

        return _registered(
            Stage(
                kind=kind,
                config=get_type_hints(function)["config"],
                summary=_summary(function),
                run=run,
                version=None,
                outcome=outcome,
                outputs=(),
                measures=True,
                long_values=(),
                needs=one_task,
                parts=parts,
            )
        )

    return register


def _summary(function: Callable[..., object]) -> str:
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _registered(new: Stage[Config]) -> Stage[Config]:
    assert new.kind not in _STAGES, f"{new.kind} is registered twice"
    _STAGES[new.kind] = new
    return new


def all_stages() -> dict[str, Stage[Any]]:
    """Return every kind of stage by its name, sorted by name."""
    _import_files()
    return dict(sorted(_STAGES.items()))


@cache  # `runs` and sweeps ask for every address and every trial, and the folder would be listed each time
def _import_files() -> None:
    from objectaware import stages

    for module in pkgutil.iter_modules(stages.__path__):
        if not module.ispkg:
            importlib.import_module(f"{stages.__name__}.{module.name}")


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


def stage_needs(config: Model, *, has_gpus: bool) -> Sequence[Need]:
    """Return the processes that a stage keeps running at once.

    Args:
        config: The stage's configuration.
        has_gpus: Whether it runs on GPUs if its configuration leaves that open.
    """
    return computing_stage(config).needs(on_device(config, has_gpus=has_gpus))
