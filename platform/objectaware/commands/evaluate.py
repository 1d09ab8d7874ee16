"""Commands that measure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import tyro

from objectaware.commands.common import (
    DEFAULTS,
    Common,
    CommonArguments,
    either_device,
    finish,
    open_context,
    recipe_command,
    validated,
    write_json,
)


def evaluate_linear(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate linear RECIPE`."""

    def run(common: Common, fields: Mapping[str, object]) -> None:
        from objectaware.config import LinearConfig
        from objectaware.stages.evaluate import run_linear

        config = validated(LinearConfig, fields)
        with open_context(common) as context:
            finish(common, context, run_linear(context, config))

    description = "Linear evaluation by a recipe of LinearConfig. Every field can be overridden: --checkpoint DIR."
    recipe_command(program, arguments, run, description=description)


def evaluate_localization(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate localization RECIPE`."""

    def run(common: Common, fields: Mapping[str, object]) -> None:
        from objectaware.config import LocalizationConfig
        from objectaware.stages.evaluate import run_localization

        config = validated(LocalizationConfig, fields)
        with open_context(common) as context:
            finish(common, context, run_localization(context, config))

    description = "Scores masks by a recipe of LocalizationConfig. Every field can be overridden: --masks.ours DIR."
    recipe_command(program, arguments, run, description=description)


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
    recipe_command(program, arguments, run, description=description)


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
        from objectaware.config import LinearConfig
        from objectaware.evaluate.background import VARIANTS
        from objectaware.stages.evaluate import run_linear

        def data(split: str, variant: str) -> dict[str, object]:
            return {"root": root, "layout": "backgrounds-challenge", "split": split, "variant": variant}

        values = {
            "checkpoint": checkpoint,
            "train": data("train", "original"),
            "tests": {variant: data("val", variant) for variant in VARIANTS},
            "image_size": image_size,
            "center_crop": center_crop,
        }
        config = validated(LinearConfig, values)
        with open_context(common) as context:
            finish(common, context, run_linear(context, config, title="background challenge"))

    tyro.cli(command, prog=program, args=arguments)
