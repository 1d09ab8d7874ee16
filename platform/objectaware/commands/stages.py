"""Commands that compute: the demo and localization."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Annotated, Literal

import tyro

from objectaware.commands.common import (
    DEFAULTS,
    CommonArguments,
    finish,
    open_context,
    output_folder,
    possible_needs,
    recipe_values,
    require_local_precision,
    validated,
    write_json,
)
from objectaware.commands.registry import command
from objectaware.errors import InputError
from objectaware.recipes import merged, override


@command(
    "demo",
    "[--variant multi-object] [--seeds 0 1 2]",
    "The whole pipeline on the embedded scenes, on a CPU, in minutes.",
    "DemoConfig",
    title="Fields of the --recipe:",
)
def demo(
    common: CommonArguments = DEFAULTS,
    variant: Literal["single-object", "multi-object"] = "single-object",
    seeds: tuple[int, ...] = (0,),
    recipe: Path | None = None,
) -> None:
    """Run the whole pipeline on the embedded scenes.

    Args:
        common: Settings of every command.
        variant: Scenes of one object, debiased with background mixup, or of several, debiased with object crop.
        seeds: Seeds. The demo runs once for each.
        recipe: YAML file of DemoConfig fields, such as a smaller size.
    """
    from objectaware.config import LocalizeConfig, PretrainConfig
    from objectaware.report.tables import markdown_report, terminal_report
    from objectaware.studies.demo import DemoConfig, demo_trainings, run_demo

    config = validated(DemoConfig, {**recipe_values(recipe), "variant": variant})
    trainings = [validated(PretrainConfig, fields) for fields in demo_trainings(config)]
    for training in trainings:
        require_local_precision(training)
    # The needs of a localization depend only on its execution, which the demo does not change.
    localization = LocalizeConfig.model_validate({"data": {"root": "scenes"}, "checkpoint": "trained"})
    with open_context(common, *possible_needs([*trainings, localization])) as context:
        results = run_demo(context, config, seeds)
        report = f"demo-{variant}.md"
        context.services.storage.write_bytes(report, markdown_report(results, variant=variant).encode())
        write_json(common, results)
    # Printed after everything that the context reports at its end, so that it stays on the screen.
    print(terminal_report(results))
    print(f"report: {context.services.storage.uri}/{report}")
    print(f"MLflow UI: {context.services.tracking.ui_command()}")


@command(
    "localize",
    "IMAGES --checkpoint C [--out OUT]",
    "Find the objects in a folder of images: a mask store, COCO JSON and a gallery.",
    "LocalizeConfig",
    title="Fields of the --recipe, each overridden by --FIELD VALUE:",
)
def localize(
    overrides: list[str],
    images: Annotated[str, tyro.conf.Positional],
    checkpoint: str | None = None,
    common: CommonArguments = DEFAULTS,
    out: str | None = None,
    localizer: str | None = None,
    preset: str = "crop",
    recipe: Path | None = None,
) -> None:
    """Find the objects in a folder of images.

    Args:
        overrides: Overrides of the recipe's fields.
        images: Folder of images, at any depth.
        checkpoint: Folder that pretraining wrote, or a file of MoCo, VISSL, solo-learn, lightly, mmselfsup,
            torchvision or timm, for localizers that use a network.
        common: Settings of every command.
        out: Folder of the mask store. By default one in the storage.
        localizer: Name of the localizer. By default that of the preset or recipe. Its fields come from the recipe.
        preset: Name of a set of fields: crop and mixup are the paper's, scenes is the demo's.
        recipe: YAML file of further LocalizeConfig fields. --FIELD VALUE overrides each.
    """
    from objectaware.config import PRESETS, LocalizeConfig
    from objectaware.config.variants import default_names
    from objectaware.stages.localize import localize as stage

    if preset not in PRESETS:
        raise InputError("preset", preset, "is unknown", f"Choose {' | '.join(PRESETS)}.")
    options = default_names(LocalizeConfig)
    named = {"localizer": localizer, "checkpoint": checkpoint}
    given = {name: value for name, value in named.items() if value is not None}
    fields: dict[str, object] = {"data": {"root": images}, **deepcopy(PRESETS[preset])}
    # Fields of a recipe without a localizer's name belong to the localizer named on the command line.
    for above in (given, recipe_values(recipe), given):
        fields = merged(fields, above, options)
    config = validated(LocalizeConfig, override(fields, overrides, options))
    target = None if out is None else output_folder(out)
    with open_context(common, *possible_needs([config])) as context:
        finish(common, context, stage(context, config, out=target))
