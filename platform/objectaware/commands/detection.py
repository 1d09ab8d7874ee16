"""Commands that export fine-tuned detectors and backbones for detection."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from objectaware.commands.common import (
    output_file,
)
from objectaware.commands.fields import command


@command("export detectron2", "CHECKPOINT --out FILE", "Write a checkpoint's backbone as detectron2 loads it.")
def export_detectron2(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
    """Write a checkpoint's backbone in the form that detectron2 loads (MODEL.WEIGHTS).

    Args:
        checkpoint: Folder that pretraining or fine-tuning wrote, or a file of another system.
        out: The new file, FILE.pkl.
    """
    from objectaware.detection.export import export_detectron2 as export

    output_file(out)
    print(f"{export(checkpoint, out)}: {out.absolute()}")


@command("export detector", "CHECKPOINT --out FILE", "Write a fine-tuned detector as safetensors.")
def export_detector(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
    """Write a fine-tuned detector as safetensors.

    Args:
        checkpoint: Folder that fine-tuning wrote.
        out: The new file, FILE.safetensors.
    """
    from objectaware.detection.export import export_detector as export

    output_file(out)
    export(checkpoint, out)
    print(f"detector: {out.absolute()}")
