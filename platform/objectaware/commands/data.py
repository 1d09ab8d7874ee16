"""Commands that make, draw, pack, list and check data sets."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tyro.conf import Positional

from objectaware.commands.common import Common, output_file, output_folder, require_json, validated, write_json
from objectaware.commands.registry import command
from objectaware.errors import InputError

if TYPE_CHECKING:
    from objectaware.config import DataConfig
    from objectaware.data.published import PublishedCheck

_MAX_PRINTED = 10
"""Number of unreadable images that `data pack` names."""
_MAX_LISTED = 100
"""Number of unreadable images that it writes with `--json`, each with the reason."""
_MAX_ROWS = 12
"""Number of classes that the panel of `data build challenge` shows."""


@command("data build scenes", "--out DIR", "Write the embedded data set.")
def build_scenes(
    out: Path,
    variant: Literal["single-object", "multi-object"] = "single-object",
    layout: Literal["backgrounds-challenge", "coco"] | None = None,
    num_train: int = 4000,
    num_val: int = 900,
    image_size: int = 96,
    correlation: float = 0.9,
    seed: int = 0,
) -> None:
    """Write the embedded data set in the layout of a published one.

    Args:
        out: Folder to write to.
        variant: One object per picture, or several that occur together.
        layout: Layout of the data set. By default backgrounds-challenge for single-object and coco for
            multi-object.
        num_train: Number of pictures to train on.
        num_val: Number of pictures to measure on.
        image_size: Side in pixels.
        correlation: Share of the pictures in which the background is the usual one of the object.
        seed: Seed of every pixel.
    """
    from objectaware.data.scenes import build_scenes as build

    output_folder(str(out))
    build(
        out,
        variant=variant,
        layout=layout,
        num_train=num_train,
        num_val=num_val,
        image_size=image_size,
        correlation=correlation,
        seed=seed,
    )
    print(f"scenes: {out.absolute()}")


@command("data subset", "ROOT --fraction F --out FILE", "Draw a list of images.")
def draw_subset(
    root: Positional[Path],
    fraction: float,
    out: Path,
    layout: str = "folder",
    variant: str | None = None,
    split: str | None = None,
    seed: int = 0,
) -> None:
    """Draw a part of a data set at random and write the list of its images, for `data.subset` of a recipe.

    Args:
        root: Folder of the data set.
        fraction: Share of the images.
        out: File to write the list to.
        layout: Layout of the images in the folder. `objectaware data list` names the layouts.
        variant: Variant of the data set, if the layout has variants.
        split: Part of the data set, if the layout has parts.
        seed: Seed of the draw.
    """
    from objectaware.data.folder import draw_subset as draw
    from objectaware.data.folder import write_subset

    output_file(out)
    images = _files({"root": str(root), "layout": layout, "variant": variant, "split": split}).open()
    drawn = draw(images.image_ids, fraction, seed)
    write_subset(str(out), drawn)
    print(f"subset: {out.absolute()} ({len(drawn)} of {len(images)} images)")


def _files(fields: dict[str, str | None]) -> DataConfig:
    """Validate a data set whose images must be files of its folder."""
    from objectaware.config import DataConfig
    from objectaware.data.dataset import layout_named, layouts

    data: DataConfig = validated(DataConfig, fields)
    if not layout_named(data.layout).are_files:
        remedy = f"Use one of: {', '.join(layout.name for layout in layouts() if layout.are_files)}."
        raise InputError("layout", data.layout, "has images that are not whole files", remedy)
    return data


@command("data pack", "ROOT --out URI", "Pack a data set into shards that training streams from any store.")
def pack(
    root: Positional[str],
    out: str,
    layout: str = "folder",
    variant: str | None = None,
    split: str | None = None,
    short_side: int | None = None,
    image_size: int = 224,
    min_crop_scale: float = 0.08,
    shard_mib: int = 128,
    num_threads: int = 4,
    json: Path | None = None,
) -> None:
    """Pack a data set into Parquet shards, which training streams (layout `shards`).

    If it is stopped at any moment, the same command continues from there.

    Args:
        root: Folder of the data set.
        out: Folder of the pack: a path, or a URI such as s3://bucket/folder.
        layout: Layout of the images in the root. `objectaware data list` names the layouts.
        variant: Variant of the data set, if the layout has variants.
        split: Part of the data set, if the layout has parts.
        short_side: Short side in pixels to which larger images are shrunk. By default none are. A size at which
            the smallest random crops would lose detail is refused.
        image_size: Side in pixels of the views that the pack is for.
        min_crop_scale: Smallest share of an image that a crop for these views covers.
        shard_mib: Size of a shard in MiB.
        num_threads: Number of threads that read and encode.
        json: File to which the printed results are written as data.
    """
    from objectaware.data.dataset import Dataset
    from objectaware.data.folder import ImageFolder
    from objectaware.data.pack import pack_images
    from objectaware.stages.progress import Progress

    common, target = require_json(Common(json=json)), output_folder(out)
    data = _files({"root": root, "layout": layout, "variant": variant, "split": split})
    _require_detail(short_side, image_size, min_crop_scale)
    opened = Dataset.of(data)
    images = opened.images
    assert isinstance(images, ImageFolder)
    truth, truth_notice = opened.find_truth()
    if truth is not None and not truth.has_masks:
        truth = None  # a pack cannot hold boxes without masks
    truth_hash: str | None = None
    if truth is not None:  # of all files that masks and boxes come from
        truth_hash = hashlib.sha256((opened.annotation_hash + truth.content_hash()).encode()).hexdigest()
    progress = Progress()
    progress.start(f"pack {data.root}")
    for notice in filter(None, [images.notice, truth_notice]):
        progress.line(f"  {notice}")
    packed = pack_images(
        images,
        target,
        source=data.model_dump(mode="json", exclude_none=True),
        truth=truth,
        truth_hash=truth_hash,
        short_side=short_side,
        shard_bytes=shard_mib * 2**20,
        num_threads=num_threads,
        on_shard=lambda done, total: progress.update(f"shard {done}/{total}"),
    )
    progress.finish(f"pack {data.root}")
    counts = {"num_images": packed.num_images, "num_unreadable": len(packed.unreadable)}
    values = {"pack": target.uri, **counts, "num_shards": packed.num_shards}
    # The pack's `index.parquet` lists all unreadable images.
    unreadable = sorted(packed.unreadable.items())[:_MAX_LISTED]
    write_json(common, {**values, "unreadable": unreadable})
    for key, value in values.items():
        print(f"{key}: {value}")
    for image_id, reason in unreadable[:_MAX_PRINTED]:
        print(f"  {image_id}: {reason}")


def _require_detail(short_side: int | None, image_size: int, min_crop_scale: float) -> None:
    """Refuse a short side at which crops of the smallest scale have fewer pixels than views of the size."""
    from objectaware.augment.crop import least_short_side

    least = least_short_side(image_size, min_scale=min_crop_scale)
    if short_side is not None and short_side < least:
        problem = (
            f"is less than {least} = image_size {image_size} / sqrt(min_crop_scale {min_crop_scale:g} · 3/4), where "
            "the smallest random crops begin to lose detail"
        )
        raise InputError("short_side", short_side, problem, "Give more, or the recipe's own values of the two.")


@command("data list", "[ROOT]", "List the layouts of data sets, or what a folder holds.")
def list_data(root: Positional[Path | None] = None, reasons: bool = False) -> None:
    """List the layouts of data sets, or those that a folder has.

    Args:
        root: Folder to look into.
        reasons: Also list the other layouts, each with the reason why the folder does not have it.
    """
    from objectaware.data.dataset import find_layouts, layouts

    if root is None:
        for layout in layouts():
            print(f"{layout.name:22} {layout.content}")
            print(f"{'':22} labels: {layout.labels or 'none'}; true masks: {layout.masks or 'none'}")
        print("`objectaware data build scenes --out DIR` makes a data set; see docs/data.md.")
        return
    found = list(find_layouts(root))
    for one in found:
        if not one.problem:
            name = " ".join(filter(None, (one.data.layout, one.data.split, one.data.variant)))
            content = "; ".join(filter(None, [f"{one.num_images} images", one.notice]))
            print(f"{name:40} {content}")
    others = [one for one in found if one.problem]
    if reasons:
        for other in others:
            print(f"{other.data.layout:40} no: {other.problem}")
    elif others:
        print(f"none of {len(others)} other layouts; --reasons says why")


@command("data check", "NAME", "Check whether a published data set is whole, and say where to get it.")
def check_data(
    name: Positional[str | None] = None,
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
    if name is None:
        checks = [check_published(one.name, usual / one.folder, usual) for one in PUBLISHED_SETS]
        for check in checks:
            parts = f"{len(check.whole_parts)} of {len(check.published.parts)} parts" if check.found else "missing"
            print(f"{check.published.name:24} {'whole' if check.is_whole else parts:20} {check.root}")
        write_json(common, {"checks": [_values(check) for check in checks]})
        return
    check = check_published(name, root or usual / published_set(name).folder, data_folder)
    print(f"{check.published.name} in {check.root}")
    for part, number in check.found.items():
        published = f" of {check.published.num_images[part]}" if part in check.published.num_images else ""
        print(f"{part}: {number} images{published}")
    for missing, problem in check.missing.items():
        print(f"{missing}: missing: {problem}")
    print(f"source: {check.published.source}")
    print(f"licence: {check.published.licence}")
    if check.published.note:
        print(f"note: {check.published.note}")
    write_json(common, _values(check))
    if not check.is_whole:
        remedy = f"Get it from {check.published.source}."
        raise InputError("root", check.root, f"does not hold all of {check.published.name}", remedy)


@command("data build imagenet9", "IMAGENET --out DIR", "Collect the classes of ImageNet-9 from ImageNet.")
def build_imagenet9(
    imagenet: Positional[Path],
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
    print(f"left out, since published test pictures show them: {built.num_held_back}")


@command("data build challenge", "ROOT --layout L --out DIR", "Make a Backgrounds Challenge of photos with masks.")
def build_challenge(
    root: Positional[str],
    layout: str,
    out: Path,
    split: str | None = None,
    train_split: str | None = None,
    metadata: str | None = None,
    classes: str | None = None,
    num_classes: int = 9,
    num_per_class: int = 450,
    image_size: int = 224,
    min_object: float = 0.05,
    seed: int = 0,
    num_processes: int | None = None,
    json: Path | None = None,
) -> None:
    """Cut objects out of photos by their true masks and write the variants of the Backgrounds Challenge.

    `evaluate background` measures on them how much a network relies on backgrounds. The page docs/data.md says which
    photos are left out and how squares are cut.

    Args:
        root: Folder of the data set.
        layout: Its layout, which must have true masks and classes. `objectaware data list` names the layouts.
        out: Folder to write to, new or empty.
        split: Part of the data set that the test pictures are made of, if the layout has parts.
        train_split: Part that the training pictures are made of. By default half of the photos of `split`.
        metadata: Folder of the layout's metadata, if it has some.
        classes: Names of the classes with commas between them; the order decides which one is next. By default the
            most frequent ones.
        num_classes: Largest number of the most frequent classes.
        num_per_class: Largest number of pictures of each class, for training and for testing each.
        image_size: Side of the pictures in pixels.
        min_object: Share of the square picture that an object must cover.
        seed: Seed of all draws.
        num_processes: Number of processes. By default one for each processor core.
        json: File to which the printed results are written as data.
    """
    from objectaware.config import DataConfig
    from objectaware.data.challenge import build_challenge as build
    from objectaware.stages.progress import Progress

    common = require_json(Common(json=json))
    output_folder(str(out))
    fields = {"root": root, "layout": layout, "metadata": metadata}
    progress = Progress()
    progress.start("challenge")
    built = build(
        validated(DataConfig, {**fields, "split": split}),
        out,
        train=None if train_split is None else validated(DataConfig, {**fields, "split": train_split}),
        classes=[] if classes is None else [name.strip() for name in classes.split(",")],
        num_classes=num_classes,
        num_per_class=num_per_class,
        image_size=image_size,
        min_object=min_object,
        seed=seed,
        num_processes=num_processes,
        on_progress=progress.update,
    )
    panel = out / "panel.png"
    panel.write_bytes(_challenge_panel(str(out), list(built.num_pictures["val"])))
    progress.finish("challenge")
    values = {"challenge": str(built.folder), "panel": str(panel.absolute())}
    write_json(common, {**values, "num_pictures": built.num_pictures, "left_out": built.left_out})
    for key, value in values.items():
        print(f"{key}: {value}")
    for part, numbers in built.num_pictures.items():
        print(f"{part}: {', '.join(f'{name} {number}' for name, number in numbers.items())}")
    for reason, number in built.left_out.items():
        print(f"left out: {number} images: {reason}")


def _challenge_panel(root: str, class_names: list[str]) -> bytes:
    """Draw every variant of the first test picture of each class, one class per row."""
    from objectaware.data.dataset import DataConfig
    from objectaware.data.sets.backgrounds_challenge import VARIANTS, BackgroundsChallenge
    from objectaware.report.figures import Tile, tiles_png

    columns = []
    for variant in VARIANTS:
        images = DataConfig(root=root, layout=BackgroundsChallenge.name, variant=variant, split="val").open()
        assert images.labels is not None
        labels = images.labels.tolist()
        columns.append([images.read(labels.index(label)) for label in range(min(len(class_names), _MAX_ROWS))])
    rows = [
        [Tile(picture, f"{name}: {variant}") for variant, picture in zip(VARIANTS, pictures, strict=True)]
        for name, pictures in zip(class_names, zip(*columns, strict=True), strict=False)
    ]
    return tiles_png(rows)


def _values(check: PublishedCheck) -> dict[str, object]:
    return {
        "name": check.published.name,
        "root": str(check.root),
        "whole": check.is_whole,
        "found": dict(check.found),
        "missing": dict(check.missing),
        "source": check.published.source,
        "licence": check.published.licence,
    }
