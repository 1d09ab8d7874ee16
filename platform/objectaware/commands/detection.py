"""Commands of detection: fine-tuning with its score, and exports of what was fine-tuned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import tyro

from objectaware.commands.common import (
    Common,
    either_device,
    finish,
    open_context,
    output_file,
    recipe_command,
    require_local_precision,
    validated,
)


def evaluate_detection(program: str, arguments: list[str]) -> None:
    """`objectaware evaluate detection RECIPE`."""

    def run(common: Common, fields: Mapping[str, object]) -> None:
        from objectaware.config import DetectionConfig
        from objectaware.distributed.detection import fine_tuning_needs
        from objectaware.stages.detection import run_detection

        config = validated(DetectionConfig, fields)
        require_local_precision(config)
        with open_context(common, *map(fine_tuning_needs, either_device(config.execution))) as context:
            finish(common, context, run_detection(context, config))

    description = (
        "Fine-tunes a checkpoint's backbone to find COCO's objects and scores it, or scores a published detector, by "
        "a recipe of DetectionConfig. Every field can be overridden: --checkpoint DIR, --batch_size 8."
    )
    recipe_command(program, arguments, run, description=description, models=["DetectionConfig"])


def export_detectron2(program: str, arguments: list[str]) -> None:
    """`objectaware export detectron2 CHECKPOINT --out FILE`."""

    def command(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
        """Writes a checkpoint's backbone as detectron2 loads it (MODEL.WEIGHTS).

        Args:
            checkpoint: Folder that pretraining or fine-tuning wrote, or a file of another system's.
            out: The new file, FILE.pkl.
        """
        from objectaware.detection.export import export_detectron2 as export

        output_file(out)
        print(f"{export(checkpoint, out)}: {out.absolute()}")

    tyro.cli(command, prog=program, args=arguments)


def export_detector(program: str, arguments: list[str]) -> None:
    """`objectaware export detector CHECKPOINT --out FILE`."""

    def command(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
        """Writes a fine-tuned detector as safetensors.

        Args:
            checkpoint: Folder that fine-tuning wrote.
            out: The new file, FILE.safetensors.
        """
        from objectaware.detection.export import export_detector as export

        output_file(out)
        export(checkpoint, out)
        print(f"detector: {out.absolute()}")

    tyro.cli(command, prog=program, args=arguments)
