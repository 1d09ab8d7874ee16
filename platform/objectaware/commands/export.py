"""Commands that write checkpoints and results for other tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from objectaware.commands.common import output_file, output_folder
from objectaware.commands.registry import command
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.data.storage import Storage
    from objectaware.localize.mask_store import MaskRow

    Writer = Callable[[Iterable[MaskRow], Mapping[str, int] | None], Iterator[bytes]]


@command("export backbone", "CHECKPOINT --out FILE", "Write a checkpoint's backbone as safetensors.")
def export_backbone(checkpoint: Positional[str], out: Path) -> None:
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
    store: Positional[str],
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
    from objectaware.localize.exports import box_results, coco_json, official_box_lines

    if format == "coco" and numbers is not None:
        problem = "has no meaning for the format coco, which numbers the images itself"
        raise InputError("numbers", numbers, problem, "Leave it out.")
    writers: Mapping[str, Writer] = {
        "coco": lambda rows, _: coco_json(rows),
        "coco-results": box_results,
        "official": official_box_lines,
    }
    _write_file(store, out, writers[format], numbers, in_pixels=format == "coco-results")


@command("export masks", "STORE --out OUT", "Write masks of a mask store as PNGs.")
def export_masks(
    store: Positional[str],
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
    from objectaware.data.storage import Storage
    from objectaware.localize.exports import mask_results, stored_rows, write_mask_pngs

    if format == "coco-results":
        _write_file(store, out, mask_results, numbers, in_pixels=True)
        return
    if numbers is not None:
        problem = "has no meaning for PNG files, which keep their names"
        raise InputError("numbers", numbers, problem, "Leave it out.")
    folder, storage, statuses = output_folder(out), Storage.from_uri(store), Counter[str]()
    write_mask_pngs(storage, folder, _counted(stored_rows(storage), statuses))
    _print_counts(statuses, folder)


@command("export detectron2", "CHECKPOINT --out FILE", "Write a checkpoint's backbone as detectron2 loads it.")
def export_detectron2(checkpoint: Positional[str], out: Path) -> None:
    """Write a checkpoint's backbone in the form that detectron2 loads (MODEL.WEIGHTS).

    Args:
        checkpoint: Folder that pretraining or fine-tuning wrote, or a file of another system.
        out: The new file, FILE.pkl.
    """
    from objectaware.detection.detect import export_detectron2 as export

    output_file(out)
    print(f"{export(checkpoint, out)}: {out.absolute()}")


@command("export detector", "CHECKPOINT --out FILE", "Write a fine-tuned detector as safetensors.")
def export_detector(checkpoint: Positional[str], out: Path) -> None:
    """Write a fine-tuned detector as safetensors.

    Args:
        checkpoint: Folder that fine-tuning wrote.
        out: The new file, FILE.safetensors.
    """
    from objectaware.detection.detect import export_detector as export

    output_file(out)
    export(checkpoint, out)
    print(f"detector: {out.absolute()}")


def _write_file(store: str, out: str, writer: Writer, numbers: Path | None, *, in_pixels: bool) -> None:
    """Write a mask store to a file, with one shard of it in memory at a time. An existing file is replaced at the end.

    Args:
        store: Folder of the mask store.
        out: The file, local or in an object store.
        writer: Makes the file's bytes from the rows and, if there is an annotation file, its image numbers.
        numbers: The annotation file.
        in_pixels: Whether the output is in pixels. If there is an annotation file, they are its pixels.
    """
    from objectaware.config import DataConfig
    from objectaware.data.coco_json import parse_instances
    from objectaware.data.folder import ImageFolder
    from objectaware.data.sets.coco import coco_of
    from objectaware.data.storage import Storage
    from objectaware.localize.exports import annotated_rows, stored_rows

    output_file(out)
    storage, statuses = Storage.from_uri(store), Counter[str]()
    rows = _counted(stored_rows(storage), statuses)
    instances = None if numbers is None else parse_instances(numbers)
    if instances is not None and in_pixels:
        instances.check("shape")
        images = DataConfig.model_validate(storage.read_json("store.json")["config"]["data"]).open()
        assert isinstance(images, ImageFolder), "nothing else is localized"
        rows = annotated_rows(rows, coco_of(instances, images.root), storage)
    target = Storage.from_uri(out)
    folder, name = target.split()
    folder.write_pieces(name, writer(rows, None if instances is None else instances.number_of_name))
    _print_counts(statuses, target)


def _counted(rows: Iterable[MaskRow], statuses: Counter[str]) -> Iterator[MaskRow]:
    for row in rows:
        statuses[row.status] += 1
        yield row


def _print_counts(statuses: Counter[str], out: Storage) -> None:
    print(f"images: {statuses.total()}, of which {statuses['failed']} failed and have nothing to export")
    print(f"written: {out.uri}")
