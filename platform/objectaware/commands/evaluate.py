"""Commands that evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import tyro

from objectaware.commands.common import (
    DEFAULTS,
    CommonArguments,
    finish_study,
    open_context,
    open_records,
    possible_needs,
    recipe_fields,
    run_stage,
    validated,
    with_each_checkpoint,
)
from objectaware.commands.registry import command
from objectaware.errors import InputError


@command(
    "evaluate shift",
    "RECIPE [--checkpoints C …] [--sets NAME …]",
    "Accuracy of checkpoints on shifted test sets.",
    "ShiftConfig",
)
def evaluate_shift(
    overrides: list[str],
    recipe: Annotated[Path, tyro.conf.Positional],
    common: CommonArguments = DEFAULTS,
    checkpoints: tuple[str, ...] = (),
    sets: tuple[str, ...] = (),
    data_folder: str = "data",
) -> None:
    """Run the linear evaluation of one or several checkpoints on shifted test sets, by a recipe of ShiftConfig.

    The result is the accuracy on each, the BG-Gap, and corruptions averaged over their severities; with several
    checkpoints, mean and standard deviation over them. Every field of the recipe can be overridden.

    Args:
        overrides: Overrides of the recipe's fields.
        recipe: YAML file of the fields below, or the name of a recipe that comes with the package.
        common: Settings of every command.
        checkpoints: Checkpoints in place of the recipe's one.
        sets: Names of published data sets, whose test sets are added.
        data_folder: Folder in which these data sets lie.
    """
    fields = recipe_fields("ShiftConfig", recipe, overrides)

    from objectaware.stages.shift import ShiftConfig
    from objectaware.studies.shift import published_tests, run_shift, shift_table

    tests = published_tests(sets, data_folder)
    given = fields.get("tests")
    if tests:
        fields["tests"] = {**(given if isinstance(given, Mapping) else {}), **tests}
    every = with_each_checkpoint(ShiftConfig, fields, checkpoints)
    with open_context(common) as context:
        values = run_shift(context, every[0], [config.checkpoint for config in every])
        finish_study(common, context, values, shift_table(values))


@command(
    "evaluate few-shot",
    "RECIPE [--checkpoints C …]",
    "Error of a classifier that was shown a few images of each of two classes.",
    "FewShotConfig",
)
def evaluate_few_shot(
    overrides: list[str],
    recipe: Annotated[Path, tyro.conf.Positional],
    common: CommonArguments = DEFAULTS,
    checkpoints: tuple[str, ...] = (),
) -> None:
    """Measure the error of a classifier that was shown a few images of each of two classes.

    The recipe is one of FewShotConfig. Every field of it can be overridden: --num_shots 5.

    Args:
        overrides: Overrides of the recipe's fields.
        recipe: YAML file of the fields below, or the name of a recipe that comes with the package.
        common: Settings of every command.
        checkpoints: Checkpoints in place of the recipe's one, for the error over the epochs.
    """
    fields = recipe_fields("FewShotConfig", recipe, overrides)
    if not checkpoints:
        run_stage("few_shot", common, fields)
        return

    from objectaware.stages.few_shot import FewShotConfig
    from objectaware.studies.curves import run_few_shot_curve

    every = with_each_checkpoint(FewShotConfig, fields, checkpoints)
    with open_context(common) as context:
        values = run_few_shot_curve(context, every[0], [config.checkpoint for config in every])
        lines = []
        for point in values["curve"]:
            place = point["checkpoint"] if point["epoch"] is None else f"epoch {point['epoch']}"
            lines.append(f"{place}: error {point['mean']:.1f} ± {point['std']:.1f}%")
        finish_study(common, context, values, "\n".join(lines))


@command("evaluate losses", "--runs NAME=DIR …", "Draw the loss of several pretrainings over their epochs.")
def evaluate_losses(runs: list[str], common: CommonArguments = DEFAULTS, metric: str = "loss") -> None:
    """Draw the loss of several pretrainings over their epochs, in one picture.

    Args:
        runs: NAME=DIR for each pretraining: its name in the legend, and its folder or that of its checkpoint.
        common: Settings of every command.
        metric: Metric of pretraining to be drawn (docs/pretraining.md).
    """
    from objectaware.studies.curves import run_losses

    named: dict[str, str] = {}
    for one in runs:
        name, equals, folder = one.partition("=")
        if not (name and equals and folder) or name in named:
            raise InputError("runs", one, "is not NAME=DIR, or the name comes twice", "Give baseline=runs/pretrain/…")
        named[name] = folder
    with open_records(common) as context:
        values = run_losses(context, named, metric=metric)
        lines = [
            f"{name}: {metric} {curve['values'][-1]:.4g} after epoch {curve['epochs'][-1]}"
            for name, curve in values["curves"].items()
        ]
        finish_study(common, context, values, "\n".join([*lines, f"picture: {values['picture']}"]))


@command(
    "evaluate localizers",
    "RECIPE [--key value …]",
    "Score several localizers on the same images in one table.",
    "LocalizersConfig",
    "LocalizeConfig",
)
def evaluate_localizers(
    overrides: list[str], recipe: Annotated[Path, tyro.conf.Positional], common: CommonArguments = DEFAULTS
) -> None:
    """Score all localizers of a recipe of LocalizersConfig on the same images in one table.

    Every field can be overridden: --checkpoint DIR.

    Args:
        overrides: Overrides of the recipe's fields.
        recipe: YAML file of the fields below, or the name of a recipe that comes with the package.
        common: Settings of every command.
    """
    fields = recipe_fields("LocalizersConfig", recipe, overrides)

    from objectaware.stages.localizers import LocalizersConfig, localizers
    from objectaware.studies.localizers import localizers_table, run_localizers

    config = validated(LocalizersConfig, fields)
    with open_context(common, *possible_needs(localizers.parts(config))) as context:
        values = run_localizers(context, config)
        finish_study(common, context, values, localizers_table(values))


@command(
    "evaluate background",
    "ROOT --checkpoint C",
    "Accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.",
)
def evaluate_background(
    root: Annotated[str, tyro.conf.Positional],
    checkpoint: str,
    common: CommonArguments = DEFAULTS,
    image_size: int = 224,
    center_crop: bool = True,
) -> None:
    """Measure accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.

    Args:
        root: Folder that holds original, mixed_same and the other variants.
        checkpoint: Folder that pretraining wrote, or a file of MoCo, VISSL, solo-learn, lightly, mmselfsup,
            torchvision or timm.
        common: Settings of every command.
        image_size: Side of the network's input in pixels.
        center_crop: Whether to use the paper's protocol, a centre crop, or to squash the picture.
    """
    fields = {"root": root, "checkpoint": checkpoint, "image_size": image_size, "center_crop": center_crop}
    run_stage("background", common, fields)
