"""Commands about data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from objectaware.commands.common import validated


def build_scenes(program: str, arguments: list[str]) -> None:
    """`objectaware data build scenes --out DIR`."""

    def command(
        out: Path,
        variant: Literal["single-object", "multi-object"] = "single-object",
        layout: Literal["backgrounds-challenge", "coco"] | None = None,
        num_train: int = 4000,
        num_val: int = 900,
        image_size: int = 96,
        correlation: float = 0.9,
        seed: int = 0,
    ) -> None:
        """Writes the embedded data set in the layout of a published one.

        Args:
            out: Folder to write to.
            variant: One object a picture, or several that co-occur.
            layout: By default backgrounds-challenge for single-object and coco for multi-object.
            num_train: Pictures to train on.
            num_val: Pictures to measure on.
            image_size: Side in pixels.
            correlation: Share of the pictures whose background is the usual one of its object.
            seed: Decides every pixel.
        """
        from objectaware.data.scenes import build_scenes as build

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

    tyro.cli(command, prog=program, args=arguments)


def draw_subset(program: str, arguments: list[str]) -> None:
    """`objectaware data subset ROOT --fraction F --out FILE`."""

    def command(
        root: Annotated[Path, tyro.conf.Positional],
        fraction: float,
        out: Path,
        layout: Literal["folder", "class-folders", "backgrounds-challenge", "coco"] = "folder",
        variant: str | None = None,
        split: Literal["train", "val"] | None = None,
        seed: int = 0,
    ) -> None:
        """Draws a part of a data set at random and writes the list of its images, for `data.subset` of a recipe.

        Args:
            root: Folder of the data set.
            fraction: Share of the images.
            out: File to write the list to.
            layout: How the images lie in the folder.
            variant: Variant of the Backgrounds Challenge.
            split: Part of the data set, for the published layouts.
            seed: Decides which images are drawn.
        """
        from objectaware.config import DataConfig
        from objectaware.data.subset import draw_subset as draw
        from objectaware.data.subset import write_subset

        fields = {"root": str(root), "layout": layout, "variant": variant, "split": split}
        images = validated(DataConfig, fields).open()
        drawn = draw(images.image_ids, fraction, seed)
        write_subset(str(out), drawn)
        print(f"subset: {out.absolute()} ({len(drawn)} of {len(images)} images)")

    tyro.cli(command, prog=program, args=arguments)


def list_data(program: str, arguments: list[str]) -> None:
    """`objectaware data list [ROOT]`."""

    def command(root: Annotated[Path | None, tyro.conf.Positional] = None) -> None:
        """Lists the layouts that data sets can lie in, or what a folder holds in each of them.

        Args:
            root: Folder to look into.
        """
        from objectaware.data.layouts import LAYOUTS, find_layouts

        if root is None:
            for layout in LAYOUTS:
                print(f"{layout.name:22} {layout.content}")
                print(f"{'':22} labels: {layout.labels or 'none'}; true masks: {layout.masks or 'none'}")
            print("`objectaware data build scenes --out DIR` makes a data set; docs/data.md says more.")
            return
        for found in find_layouts(root):
            name = " ".join(part for part in (found.layout, found.split, found.variant) if part)
            print(f"{name:40} {f'no: {found.problem}' if found.problem else f'{found.num_images} images'}")

    tyro.cli(command, prog=program, args=arguments)
