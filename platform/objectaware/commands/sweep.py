"""The command `objectaware sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from objectaware.commands.common import (
    DEFAULTS,
    FLAGS,
    OPTIONS,
    Common,
    CommonArguments,
    open_context,
    require_local_precision,
    validated,
    write_json,
)
from objectaware.commands.fields import listing_fields
from objectaware.commands.registry import subcommand
from objectaware.errors import InputError
from objectaware.recipes import find_recipe, merged, override, read_recipe, split_overrides

if TYPE_CHECKING:
    from objectaware.config import Model
    from objectaware.distributed.cluster import Need
    from objectaware.studies.sweep_config import SweepConfig


@subcommand(
    "sweep",
    "SWEEP [--key value …]",
    "Run a study for every combination of parameters' values, and compare with the paper.",
)
def sweep(program: str, arguments: list[str]) -> None:
    """Run `objectaware sweep SWEEP [--key value …]`."""

    def command(sweep: Annotated[Path, tyro.conf.Positional], common: CommonArguments = DEFAULTS) -> None:
        """Run a study for every combination of the parameters' values, and compare the results.

        Every field can be overridden: --seeds "[0, 1, 2]", --stages.pretrain.fields.num_epochs 3. The same command
        continues an interrupted sweep, and runs failed trials again.

        Args:
            sweep: YAML file of SweepConfig (docs/sweeps.md), or the name of one that comes with the package (p_mix).
            common: Settings of every command.
        """
        _run(common, read_sweep(sweep, overrides))

    known, overrides = split_overrides(arguments, flags=FLAGS, options=OPTIONS)
    with listing_fields(known, "Fields of the sweep, each overridden by --FIELD VALUE:", "SweepConfig"):
        tyro.cli(command, prog=program, args=known)


def read_sweep(path: Path, overrides: list[str]) -> dict[str, Any]:
    """Read a sweep's YAML. A stage may name a `recipe`, relative to the sweep's folder, which its fields override.

    Args:
        path: The file, or the name of one that comes with the package, as `find_recipe` takes it.
        overrides: `--field value` pairs that override the sweep's fields.

    Raises:
        InputError: A file is missing or is not a mapping, or the overrides are not pairs.
    """
    path = find_recipe(path)
    fields: dict[str, Any] = override(read_recipe(path), overrides)
    stages = fields.get("stages")
    if not isinstance(stages, Mapping):
        raise InputError("stages", stages, "is not a mapping of stages by name", "See docs/sweeps.md.")
    return {**fields, "stages": {name: _with_recipe(path.parent, stage) for name, stage in stages.items()}}


def _with_recipe(folder: Path, stage: object) -> object:
    if not isinstance(stage, Mapping) or "recipe" not in stage:
        return stage
    from objectaware.config.variants import default_names
    from objectaware.stages.registry import all_stages

    rest = {key: value for key, value in stage.items() if key != "recipe"}
    # An unknown kind is refused later, with the other fields.
    kind = all_stages().get(str(rest.get("stage")))
    options = {} if kind is None else default_names(kind.config)
    recipe = read_recipe(folder / str(stage["recipe"]), options)
    return {**rest, "fields": merged(recipe, rest.get("fields", {}), options)}


def _run(common: Common, fields: Mapping[str, object]) -> None:
    from objectaware.report.tables import format_rows
    from objectaware.studies.sweep import run_sweep
    from objectaware.studies.sweep_config import SweepConfig, check_sweep, stage_parts

    config: SweepConfig = validated(SweepConfig, fields)
    checked = check_sweep(config)
    for part in stage_parts(config, checked):
        require_local_precision(part)
    with open_context(common, *_needs(config, checked)) as context:
        result = run_sweep(context, config)
        write_json(common, {**vars(result), "folder": result.folder.uri})
        print(format_rows(result.rows))
        if result.best is not None:
            print("best: " + ", ".join(f"{name} = {value}" for name, value in result.best.items()))
        for row in result.trials:
            if row["error"] is not None:
                print(f"failed: {row}")
        print(f"{result.num_run} trials were run now")
        print(f"folder: {result.folder.uri}")
        if result.run_id is not None:
            print(f"MLflow run: {context.services.tracking.run_url(result.run_id)}")
        print(f"MLflow UI: {context.services.tracking.ui_command()}")
    if result.num_failed:
        raise SystemExit(f"objectaware: {result.num_failed} trials failed. The same command runs them again.")


def _needs(config: SweepConfig, checked: Sequence[Mapping[str, Model]]) -> list[list[Need]]:
    """Return the processes that a local Ray must have room for: those of each stage, for each concurrent trial."""
    from objectaware.stages.registry import stage_needs
    from objectaware.studies.sweep_config import stage_parts

    needs = stage_needs(stage_parts(config, checked), has_gpus=(False, True))
    at_once = config.execution.max_concurrent or 1
    return [[replace(need, count=at_once * need.count) for need in stage] for stage in needs]
