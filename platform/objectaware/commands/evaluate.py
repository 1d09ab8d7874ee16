"""Commands that evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import tyro

from objectaware.commands.common import (
    DEFAULTS,
    Common,
    CommonArguments,
    open_context,
    open_records,
    parse_recipe,
    possible_needs,
    run_stage,
    take_list,
    validated,
    with_each_checkpoint,
    write_json,
)
from objectaware.commands.fields import command
from objectaware.commands.registry import subcommand
from objectaware.errors import InputError


@subcommand(
    "evaluate shift", "RECIPE [--checkpoints C …] [--sets NAME …]", "Accuracy of checkpoints on shifted test sets."
)
def evaluate_shift(program: str, arguments: list[str]) -> None:
    """Run `objectaware evaluate shift RECIPE [--checkpoints C …] [--sets NAME …] [--data-folder DIR]`."""
    checkpoints, arguments = take_list(arguments, "--checkpoints")
    sets, arguments = take_list(arguments, "--sets")
    data_folder, arguments = take_list(arguments, "--data-folder")

    description = (
        "Linear evaluation of one or several checkpoints on shifted test sets, by a recipe of ShiftConfig: accuracy "
        "on each, BG-Gap, corruptions averaged over their severities; mean and standard deviation over checkpoints. "
        "--checkpoints C [C …] in place of the recipe's one; --sets NAME [NAME …] adds the test sets of published data "
        "sets, which lie in --data-folder (data). Every field of the recipe can be overridden."
    )
    common, fields = parse_recipe(program, arguments, description=description, models=["ShiftConfig"])

    from objectaware.stages.shift import ShiftConfig
    from objectaware.studies.shift import published_tests, run_shift, shift_table

    tests = published_tests(sets, data_folder[-1] if data_folder else "data")
    given = fields.get("tests")
    if tests:
        fields["tests"] = {**(given if isinstance(given, Mapping) else {}), **tests}
    every = with_each_checkpoint(ShiftConfig, fields, checkpoints)
    with open_context(common) as context:
        values = run_shift(context, every[0], [config.checkpoint for config in every])
        write_json(common, values)
        print(shift_table(values))
        print(f"MLflow UI: {context.services.tracking.ui_command()}")


@subcommand(
    "evaluate few-shot",
    "RECIPE [--checkpoints C …]",
    "Error of a classifier that was shown a few images of each of two classes.",
)
def evaluate_few_shot(program: str, arguments: list[str]) -> None:
    """Run `objectaware evaluate few-shot RECIPE [--checkpoints C …]`."""
    checkpoints, arguments = take_list(arguments, "--checkpoints")
    description = (
        "Error of a classifier that was shown a few images of each of two classes, by a recipe of FewShotConfig. "
        "--checkpoints C [C …] in place of the recipe's one gives the error over the epochs. Every field of the recipe "
        "can be overridden: --num_shots 5."
    )
    parse = partial(parse_recipe, description=description, models=["FewShotConfig"])
    if not checkpoints:
        run_stage("few_shot", program, arguments, parse)
        return
    common, fields = parse(program, arguments)

    from objectaware.stages.few_shot import FewShotConfig
    from objectaware.studies.curves import run_few_shot_curve

    every = with_each_checkpoint(FewShotConfig, fields, checkpoints)
    with open_context(common) as context:
        values = run_few_shot_curve(context, every[0], [config.checkpoint for config in every])
        write_json(common, values)
        for point in values["curve"]:
            place = point["checkpoint"] if point["epoch"] is None else f"epoch {point['epoch']}"
            print(f"{place}: error {point['mean']:.1f} ± {point['std']:.1f}%")
        print(f"MLflow UI: {context.services.tracking.ui_command()}")


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
        write_json(common, values)
        for name, curve in values["curves"].items():
            print(f"{name}: {metric} {curve['values'][-1]:.4g} after epoch {curve['epochs'][-1]}")
        print(f"picture: {values['picture']}")
        print(f"MLflow UI: {context.services.tracking.ui_command()}")


@subcommand(
    "evaluate localizers", "RECIPE [--key value …]", "Score several localizers on the same images in one table."
)
def evaluate_localizers(program: str, arguments: list[str]) -> None:
    """Run `objectaware evaluate localizers RECIPE`."""
    description = (
        "Scores all localizers of a recipe of LocalizersConfig on the same images in one table. Every field can be "
        "overridden: --checkpoint DIR."
    )
    models = ["LocalizersConfig", "LocalizeConfig"]
    common, fields = parse_recipe(program, arguments, description=description, models=models)

    from objectaware.stages.localizers import LocalizersConfig, localizers
    from objectaware.studies.localizers import localizers_table, run_localizers

    config = validated(LocalizersConfig, fields)
    with open_context(common, *possible_needs(localizers.parts(config))) as context:
        values = run_localizers(context, config)
        write_json(common, values)
        print(localizers_table(values))
        print(f"MLflow UI: {context.services.tracking.ui_command()}")


@subcommand(
    "evaluate background",
    "ROOT --checkpoint C",
    "Accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.",
)
def evaluate_background(program: str, arguments: list[str]) -> None:
    """Run `objectaware evaluate background ROOT --checkpoint C`."""
    run_stage("background", program, arguments, _parse_background)


def _parse_background(program: str, arguments: list[str]) -> tuple[Common, dict[str, object]]:
    def read(
        root: Annotated[str, tyro.conf.Positional],
        checkpoint: str,
        common: CommonArguments = DEFAULTS,
        image_size: int = 224,
        center_crop: bool = True,
    ) -> tuple[Common, dict[str, object]]:
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
        return common, fields

    return tyro.cli(read, prog=program, args=arguments)
