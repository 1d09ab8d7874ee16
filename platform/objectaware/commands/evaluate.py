"""Commands that measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from objectaware.commands.common import (
    DEFAULTS,
    FLAGS,
    OPTIONS,
    CommonArguments,
    finish,
    open_context,
    validated,
    write_json,
)
from objectaware.recipes import override, read_recipe, split_overrides

if TYPE_CHECKING:
    from pydantic import BaseModel

    from objectaware.stages.runner import Context, StageResult


def evaluate_linear(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate linear RECIPE`."""
    from objectaware.config import LinearConfig

    def stage(context: Context, config: Any) -> StageResult:  # noqa: ANN401 - a LinearConfig
        from objectaware.stages.evaluate import run_linear

        return run_linear(context, config)

    _evaluate(program, arguments, LinearConfig, stage)


def evaluate_localization(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate localization RECIPE`."""
    from objectaware.config import LocalizationConfig

    def stage(context: Context, config: Any) -> StageResult:  # noqa: ANN401 - a LocalizationConfig
        from objectaware.stages.evaluate import run_localization

        return run_localization(context, config)

    _evaluate(program, arguments, LocalizationConfig, stage)


def evaluate_localizers(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate localizers RECIPE`."""

    def command(
        recipe: Annotated[Path, tyro.conf.Positional],
        common: CommonArguments = DEFAULTS,
    ) -> None:
        """Scores all localizers on the same images in one table. Every field of the recipe can be overridden.

        Args:
            recipe: YAML of LocalizersConfig fields (docs/recipes.md).
            common: Settings of every command.
        """
        from objectaware.localizers_config import LocalizersConfig
        from objectaware.stages.localizers import localizers_table, run_localizers

        config = validated(LocalizersConfig, override(read_recipe(recipe), overrides))
        with open_context(common) as context:
            values = run_localizers(context, config)
            write_json(common, values)
            print(localizers_table(values))
            print(f"MLflow UI: {context.tracking.ui_command()}")

    known, overrides = split_overrides(arguments, flags=FLAGS, options=OPTIONS)
    tyro.cli(command, prog=program, args=known)


def _evaluate(
    program: str, arguments: list[str], model: type[BaseModel], stage: Callable[[Context, Any], StageResult]
) -> None:
    def command(
        recipe: Annotated[Path, tyro.conf.Positional],
        common: CommonArguments = DEFAULTS,
    ) -> None:
        """Evaluates. Every field of the recipe can be overridden: --checkpoint DIR.

        Args:
            recipe: YAML of LinearConfig or LocalizationConfig fields (docs/recipes.md).
            common: Settings of every command.
        """
        config = validated(model, override(read_recipe(recipe), overrides))
        with open_context(common) as context:
            finish(common, context, stage(context, config))

    known, overrides = split_overrides(arguments, flags=FLAGS, options=OPTIONS)
    tyro.cli(command, prog=program, args=known)


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
