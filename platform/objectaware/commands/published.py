"""Commands that check published data sets, and make one from another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from objectaware.commands.common import Common, output_folder, require_json, write_json
from objectaware.commands.fields import command
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.data.published import PublishedCheck


@command("data check", "NAME", "Check whether a published data set is whole, and say where to get it.")
def check_data(
    name: Annotated[str | None, tyro.conf.Positional] = None,
    root: Path | None = None,
    data_folder: Path | None = None,
    every: Annotated[bool, tyro.conf.arg(name="all")] = False,
    json: Path | None = None,
) -> None:
    """Report how much of a published data set exists, what is missing, where to get it, and its licence.

    Exit with status 0 if it is complete, and 2 if not. With --all, print one line per data set and exit with 0.

    Args:
        name: Name of the data set, such as ImageNet-R-9. Case and punctuation do not matter.
        root: Its folder. By default the usual one in the data folder.
        data_folder: Folder in which data sets, and metadata that some of them need, lie under their usual names:
            ./data, or the folder above --root.
        every: Check all data sets in the data folder.
        json: File to which the printed results are written as data.
    """
    from objectaware.data.published import PUBLISHED_SETS, check_published, published_set

    common = require_json(Common(json=json))
    if every == (name is not None):
        raise InputError("name", name, "does not go with --all", "Give the name of a data set, or --all alone.")
    usual = data_folder or Path("data")
    if every:
        checks = [check_published(one.name, usual / one.folder, usual) for one in PUBLISHED_SETS]
        for check in checks:
            print(f"{check.published.name:24} {_state(check):20} {check.root}")
        write_json(common, {"checks": [_values(check) for check in checks]})
        return
    assert name is not None
    check = check_published(name, root or usual / published_set(name).folder, data_folder)
    _print(check)
    write_json(common, _values(check))
    if not check.is_whole:
        remedy = f"Get it from {check.published.source}."
        raise InputError("root", check.root, f"does not hold all of {check.published.name}", remedy)


@command("data build imagenet9", "IMAGENET --out DIR", "Collect the classes of ImageNet-9 from ImageNet.")
def build_imagenet9(
    imagenet: Annotated[Path, tyro.conf.Positional],
    out: Path,
    seed: int = 0,
    num_per_class: int = 5045,
    boxes: Path | None = None,
    copy: bool = False,
) -> None:
    """Make ImageNet-9's training images (the variant original) from ImageNet.

    Args:
        imagenet: Folder that holds ImageNet's train.
        out: Folder of the data set. It may hold the published test pictures, whose images are then not drawn.
        seed: Seed of the draw.
        num_per_class: Number of images of each of the nine superclasses.
        boxes: Folder of the training images' box annotations. With it, only images with exactly one box are drawn.
        copy: Copy files instead of linking to them.
    """
    from objectaware.data.sets.backgrounds_challenge import build_imagenet9 as build

    output_folder(str(out))
    built = build(imagenet, out, seed=seed, num_per_class=num_per_class, boxes=boxes, copy=copy)
    print(f"imagenet9: {built.folder} ({built.num_images} images)")
    print(f"candidates by superclass: {', '.join(str(number) for number in built.num_candidates)}")
    print(f"held back, as published test pictures show them: {built.num_held_back}")


def _print(check: PublishedCheck) -> None:
    print(f"{check.published.name} in {check.root}")
    for part in check.found:
        published = "" if part.num_published is None else f" of {part.num_published}"
        print(f"{part.part}: {part.num_images} images{published}")
    for gap in check.missing:
        print(f"{gap.part}: missing: {gap.problem}")
    print(f"source: {check.published.source}")
    print(f"licence: {check.published.licence}")
    if check.published.note:
        print(f"note: {check.published.note}")


def _state(check: PublishedCheck) -> str:
    num_whole = sum(part.is_whole for part in check.found)
    if check.is_whole:
        return "whole"
    return f"{num_whole} of {len(check.published.parts)} parts" if check.found else "missing"


def _values(check: PublishedCheck) -> dict[str, object]:
    return {
        "name": check.published.name,
        "root": str(check.root),
        "whole": check.is_whole,
        "found": {part.part: part.num_images for part in check.found},
        "missing": {part.part: part.problem for part in check.missing},
        "source": check.published.source,
        "licence": check.published.licence,
    }
