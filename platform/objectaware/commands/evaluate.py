"""Commands that measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import tyro

from objectaware.commands.common import (
    DEFAULTS,
    Common,
    CommonArguments,
    either_device,
    finish,
    open_context,
    open_records,
    recipe_command,
    take_list,
    validated,
    with_each_checkpoint,
    write_json,
)
from objectaware.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from objectaware.stages.runner import StageResult

    Stage = tuple[type[BaseModel], Callable[..., StageResult]]
    """Model of a stage's recipe, and what runs the stage."""


def _stage_command(
    program: str,
    arguments: list[str],
    load: Callable[[], Stage],
    *,
    description: str,
    model: str,
    hidden: Sequence[str] = (),
) -> None:
    """A command that runs one stage by its recipe and prints what it computed.

    Args:
        program: The command's name.
        arguments: What follows it.
        load: Imports the stage; called once there is something to run, so that --help does not wait for it.
        description: Of the command, for --help.
        model: Name of the model of the stage's recipe.
        hidden: Values that are written but not printed, being long.
    """

    def run(common: Common, fields: Mapping[str, object]) -> None:
        model_type, run_stage = load()
        config = validated(model_type, fields)
        with open_context(common) as context:
            finish(common, context, run_stage(context, config), hidden=hidden)

    recipe_command(program, arguments, run, description=description, models=[model])


def evaluate_linear(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate linear RECIPE`."""

    def load() -> Stage:
        from objectaware.config import LinearConfig
        from objectaware.stages.evaluate import run_linear

        return LinearConfig, run_linear

    description = "Linear evaluation by a recipe of LinearConfig. Every field can be overridden: --checkpoint DIR."
    _stage_command(program, arguments, load, description=description, model="LinearConfig")


def evaluate_knn(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate knn RECIPE`."""

    def load() -> Stage:
        from objectaware.config import KnnConfig
        from objectaware.stages.knn import run_knn

        return KnnConfig, run_knn

    description = "Nearest neighbours by a recipe of KnnConfig. Every field can be overridden: --num_neighbours 200."
    _stage_command(program, arguments, load, description=description, model="KnnConfig")


def evaluate_shift(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate shift RECIPE [--checkpoints C …] [--sets NAME …] [--data-folder DIR]`."""
    checkpoints, arguments = take_list(arguments, "--checkpoints")
    sets, arguments = take_list(arguments, "--sets")
    data_folder, arguments = take_list(arguments, "--data-folder")

    def run(common: Common, fields: Mapping[str, object]) -> None:
        from objectaware.config import LinearConfig
        from objectaware.stages.shift import published_tests, run_shift, shift_table

        tests = published_tests(sets, data_folder[-1] if data_folder else "data")
        given = fields.get("tests")
        if tests:
            fields = {**fields, "tests": {**(given if isinstance(given, Mapping) else {}), **tests}}
        every = with_each_checkpoint(LinearConfig, fields, checkpoints)
        with open_context(common) as context:
            values = run_shift(context, every[0], [config.checkpoint for config in every])
            write_json(common, values)
            print(shift_table(values))
            print(f"MLflow UI: {context.tracking.ui_command()}")

    description = (
        "Linear evaluation of one or several checkpoints on shifted test sets, by a recipe of LinearConfig: accuracy "
        "on each, BG-Gap, corruptions averaged over their severities; mean and standard deviation over checkpoints. "
        "--checkpoints C [C …] in place of the recipe's one; --sets NAME [NAME …] adds the test sets of published data "
        "sets, which lie in --data-folder (data). Every field of the recipe can be overridden."
    )
    recipe_command(program, arguments, run, description=description, models=["LinearConfig"])


def evaluate_few_shot(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate few-shot RECIPE [--checkpoints C …]`."""
    checkpoints, arguments = take_list(arguments, "--checkpoints")

    def run(common: Common, fields: Mapping[str, object]) -> None:
        from objectaware.config import FewShotConfig
        from objectaware.stages.few_shot import run_few_shot, run_few_shot_curve

        every = with_each_checkpoint(FewShotConfig, fields, checkpoints)
        with open_context(common) as context:
            if not checkpoints:
                finish(common, context, run_few_shot(context, every[0]))
                return
            values = run_few_shot_curve(context, every[0], [config.checkpoint for config in every])
            write_json(common, values)
            for point in values["curve"]:
                place = point["checkpoint"] if point["epoch"] is None else f"epoch {point['epoch']}"
                print(f"{place}: error {point['mean']:.1f} ± {point['std']:.1f}%")
            print(f"MLflow UI: {context.tracking.ui_command()}")

    description = (
        "Error of a classifier that was shown a few images of each of two classes, by a recipe of FewShotConfig. "
        "--checkpoints C [C …] in place of the recipe's one gives the error over the epochs. Every field of the recipe "
        "can be overridden: --num_shots 5."
    )
    recipe_command(program, arguments, run, description=description, models=["FewShotConfig"])


def evaluate_class_distance(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate class-distance RECIPE`."""

    def load() -> Stage:
        from objectaware.config import ClassDistanceConfig
        from objectaware.stages.contextual import run_class_distance

        return ClassDistanceConfig, run_class_distance

    description = (
        "Distance between the embeddings of two classes and their t-SNE picture, by a recipe of ClassDistanceConfig. "
        "Every field can be overridden: --checkpoint DIR."
    )
    _stage_command(program, arguments, load, description=description, model="ClassDistanceConfig", hidden=("tsne",))


def evaluate_losses(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate losses --runs NAME=DIR …`."""

    def command(runs: list[str], common: CommonArguments = DEFAULTS, metric: str = "loss") -> None:
        """The loss of several pretrainings over their epochs, in one picture.

        Args:
            runs: NAME=DIR of each: the name in the legend, and the folder of the pretraining or of a checkpoint of it.
            common: Settings of every command.
            metric: Metric of pretraining that is drawn (docs/pretraining.md).
        """
        from objectaware.stages.losses import run_losses

        named: dict[str, str] = {}
        for one in runs:
            name, equals, folder = one.partition("=")
            if not (name and equals and folder) or name in named:
                raise InputError(
                    "runs", one, "is not NAME=DIR, or the name comes twice", "Give baseline=runs/pretrain/…"
                )
            named[name] = folder
        with open_records(common) as context:
            values = run_losses(context, named, metric=metric)
            write_json(common, values)
            for name, curve in values["curves"].items():
                print(f"{name}: {metric} {curve['values'][-1]:.4g} after epoch {curve['epochs'][-1]}")
            print(f"picture: {values['picture']}")
            print(f"MLflow UI: {context.tracking.ui_command()}")

    tyro.cli(command, prog=program, args=arguments)


def evaluate_localization(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate localization RECIPE`."""

    def load() -> Stage:
        from objectaware.config import LocalizationConfig
        from objectaware.stages.evaluate import run_localization

        return LocalizationConfig, run_localization

    description = "Scores masks by a recipe of LocalizationConfig. Every field can be overridden: --masks.ours DIR."
    _stage_command(program, arguments, load, description=description, model="LocalizationConfig")


def evaluate_localizers(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate localizers RECIPE`."""

    def run(common: Common, fields: Mapping[str, object]) -> None:
        from objectaware.config import LocalizersConfig
        from objectaware.distributed.localize import localize_needs
        from objectaware.stages.localizers import localizers_table, run_localizers

        config = validated(LocalizersConfig, fields)
        executions = [config.localize_config(name, classifier="").execution for name in config.localizers]
        needs = [localize_needs(choice) for execution in executions for choice in either_device(execution)]
        with open_context(common, *needs) as context:
            values = run_localizers(context, config)
            write_json(common, values)
            print(localizers_table(values))
            print(f"MLflow UI: {context.tracking.ui_command()}")

    description = (
        "Scores all localizers of a recipe of LocalizersConfig on the same images in one table. Every field can be "
        "overridden: --checkpoint DIR."
    )
    recipe_command(program, arguments, run, description=description, models=["LocalizersConfig", "LocalizeConfig"])


def evaluate_background(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate background ROOT --checkpoint C`."""

    def command(
        root: Annotated[str, tyro.conf.Positional],
        checkpoint: str,
        common: CommonArguments = DEFAULTS,
        image_size: int = 224,
        center_crop: bool = True,
    ) -> None:
        """Accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.

        Args:
            root: Folder that holds original, mixed_same and the other variants.
            checkpoint: Folder that pretraining wrote, or a file of MoCo, VISSL, solo-learn, lightly, mmselfsup,
                torchvision or timm.
            common: Settings of every command.
            image_size: Side of the network's input in pixels.
            center_crop: The paper's protocol, or the squashed picture.
        """
        from objectaware.config import BackgroundConfig
        from objectaware.stages.background import run_background

        values = {"root": root, "checkpoint": checkpoint, "image_size": image_size, "center_crop": center_crop}
        config = validated(BackgroundConfig, values)
        with open_context(common) as context:
            finish(common, context, run_background(context, config))

    tyro.cli(command, prog=program, args=arguments)
