"""Commands that write checkpoints and results for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from objectaware.commands.common import output_file, output_folder
from objectaware.commands.fields import command

if TYPE_CHECKING:
    from objectaware.stages.export import ExportSummary


@command("export backbone", "CHECKPOINT --out FILE", "Write a checkpoint's backbone as safetensors.")
def export_backbone(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
    """Write a checkpoint's backbone as safetensors under torchvision's names, which timm accepts too.

    Args:
        checkpoint: Folder that pretraining wrote, or a file of another system.
        out: The new file.
    """
    from objectaware.methods.checkpoint import export_backbone as export

    output_file(out)
    print(f"{export(checkpoint, out)}: {out.absolute()}")


@command("export boxes", "STORE --out OUT", "Write boxes of a mask store as the official text file or COCO JSON.")
def export_boxes(
    store: Annotated[str, tyro.conf.Positional],
    out: str,
    format: Literal["coco", "coco-results", "official"] = "coco",  # noqa: A002 - the option's name
    numbers: Path | None = None,
) -> None:
    """Write the boxes of a mask store for other tools.

    Args:
        store: Folder that localization wrote.
        out: The new file.
        format: COCO annotations with one mask per box, COCO results, or the text file of the official code.
        numbers: COCO annotation file whose image numbers the results and the text file use. Results are then in
            its pixels.
    """
    from objectaware.stages.export import export_boxes as export

    output_file(out)
    _print_export(export(store, out, file_format=format, numbers=numbers), out)


@command("export masks", "STORE --out OUT", "Write masks of a mask store as PNGs.")
def export_masks(
    store: Annotated[str, tyro.conf.Positional],
    out: str,
    format: Literal["png", "coco-results"] = "png",  # noqa: A002 - the option's name
    numbers: Path | None = None,
) -> None:
    """Write the masks of a mask store for other tools.

    Args:
        store: Folder that localization wrote.
        out: The new folder of PNG files, or the new COCO result file.
        format: One PNG per image, or COCO results.
        numbers: COCO annotation file whose image numbers and pixels the results use.
    """
    from objectaware.stages.export import export_masks as export

    if format == "png":
        output_folder(out)
    else:
        output_file(out)
    _print_export(export(store, out, file_format=format, numbers=numbers), out)


@command("export detectron2", "CHECKPOINT --out FILE", "Write a checkpoint's backbone as detectron2 loads it.")
def export_detectron2(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
    """Write a checkpoint's backbone in the form that detectron2 loads (MODEL.WEIGHTS).

    Args:
        checkpoint: Folder that pretraining or fine-tuning wrote, or a file of another system.
        out: The new file, FILE.pkl.
    """
    from objectaware.detection.detect import export_detectron2 as export

    output_file(out)
    print(f"{export(checkpoint, out)}: {out.absolute()}")


@command("export detector", "CHECKPOINT --out FILE", "Write a fine-tuned detector as safetensors.")
def export_detector(checkpoint: Annotated[str, tyro.conf.Positional], out: Path) -> None:
    """Write a fine-tuned detector as safetensors.

    Args:
        checkpoint: Folder that fine-tuning wrote.
        out: The new file, FILE.safetensors.
    """
    from objectaware.detection.detect import export_detector as export

    output_file(out)
    export(checkpoint, out)
    print(f"detector: {out.absolute()}")


def _print_export(summary: ExportSummary, out: str) -> None:
    from objectaware.data.storage import Storage

    print(f"images: {summary.num_images}, of which {summary.num_failed} failed and have nothing to export")
    print(f"written: {Storage.from_uri(out).uri}")
