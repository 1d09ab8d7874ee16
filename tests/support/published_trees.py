"""Small data sets in their published layouts, with what is awkward in the real ones.

Each picture shows a bright rectangle on dark ground, and its truth is that rectangle.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from objectaware.config import DataConfig
from objectaware.data.scenes import build_scenes

WIDTH, HEIGHT = 40, 30
RECTANGLES = [(4 + 3 * place, 5 + place, 20 + 3 * place, 21 + place) for place in range(6)]
"""x0 y0 x1 y1 in pixels of the object of each picture, the far edges outside."""
SCALE = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT])


def rectangle(place: int) -> NDArray[np.bool_]:
    """The true mask (H, W) of a picture."""
    x0, y0, x1, y1 = RECTANGLES[place]
    mask = np.zeros((HEIGHT, WIDTH), dtype=bool)
    mask[y0:y1, x0:x1] = True
    return mask


def write_picture(path: Path, place: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.where(rectangle(place)[:, :, None], (200, 60 + 20 * place, 40), (20, 40, 30))
    Image.fromarray(pixels.astype(np.uint8)).save(path, format="JPEG")


def _write_lines(path: Path, lines: list[str], *, end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + end)


CUB_NAMES = [f"002.Laysan_Albatross/Laysan_{n}.jpg" for n in range(3)] + [f"001.Black/Black_{n}.jpg" for n in range(3)]


def write_cub(root: Path, *, segmentations: Path | None = None) -> None:
    """Six birds of two classes, which `classes.txt` lists out of order; masks of several gray levels.

    The official test part are the last two pictures; ReDO's parts, by the numbers that its file gives them, two each.
    """
    for place, name in enumerate(CUB_NAMES):
        write_picture(root / "images" / name, place)
    _write_lines(root / "images.txt", [f"{place + 1} {name}" for place, name in enumerate(CUB_NAMES)])
    _write_lines(root / "classes.txt", ["2 002.Laysan_Albatross", "1 001.Black"])
    _write_lines(root / "image_class_labels.txt", [f"{n} {2 if n <= 3 else 1}" for n in range(1, 7)])
    _write_lines(root / "train_test_split.txt", [f"{n} {int(n <= 4)}" for n in range(1, 7)])
    _write_lines(root / "train_val_test_split.txt", ["5 2", "6 2", "1 0", "2 0", "3 1", "4 1"], end="")
    boxes = [f"{n} {x0}.0 {y0}.0 {x1 - x0}.0 {y1 - y0}.0" for n, (x0, y0, x1, y1) in enumerate(RECTANGLES, start=1)]
    _write_lines(root / "bounding_boxes.txt", boxes)
    for place, name in enumerate(CUB_NAMES):
        path = ((segmentations or root / "segmentations") / name).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        gray = np.where(rectangle(place), 170 + 17 * place, 0).astype(np.uint8)
        gray[0, :] = 85  # what one of three annotators took for a bird
        picture = Image.fromarray(gray)
        # A few of the published masks have an alpha channel.
        (picture.convert("LA") if place == 0 else picture).save(path)


FLOWER_NUMBERS = {"trnid": [3, 1], "valid": [5], "tstid": [2, 4, 6]}


def write_flowers(root: Path, numbers_of_part: Mapping[str, list[int]] = FLOWER_NUMBERS) -> None:
    """Six flowers of three classes; masks on JPEG blue."""
    labels = np.array([[3, 1, 2, 2, 1, 3]], dtype=np.uint8)
    root.mkdir(parents=True, exist_ok=True)
    savemat(root / "imagelabels.mat", {"labels": labels})
    savemat(root / "setid.mat", {name: np.array([numbers], np.uint16) for name, numbers in numbers_of_part.items()})
    for place in range(6):
        write_picture(root / "jpg" / f"image_{place + 1:05d}.jpg", place)
        path = root / "segmim" / f"segmim_{place + 1:05d}.jpg"
        path.parent.mkdir(exist_ok=True)
        shown = np.where(rectangle(place)[:, :, None], (200, 180, 90), (0, 0, 254)).astype(np.uint8)
        Image.fromarray(shown).save(path, quality=90, subsampling=0)


VOC_NAMES = [f"2007_00{n:04d}" for n in range(6)]


def write_voc(devkit: Path) -> None:
    """Six pictures, the last two of them with masks; several objects, one difficult, one with a part of its own."""
    root = devkit / "VOC2012"
    for place, name in enumerate(VOC_NAMES):
        write_picture(root / "JPEGImages" / f"{name}.jpg", place)
        path = root / "Annotations" / f"{name}.xml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(_voc_annotation(place))
    for place in (4, 5):
        classes = np.where(rectangle(place), 15, 0).astype(np.uint8)
        x0, y0, x1, _ = RECTANGLES[place]
        classes[y0 : y0 + 2, x0:x1] = 255
        picture = Image.fromarray(classes)
        picture.putpalette([value % 256 for value in range(768)])
        (root / "SegmentationClass").mkdir(exist_ok=True)
        picture.save(root / "SegmentationClass" / f"{VOC_NAMES[place]}.png")
    _write_lines(root / "ImageSets" / "Main" / "train.txt", VOC_NAMES[:2])
    _write_lines(root / "ImageSets" / "Main" / "val.txt", VOC_NAMES[2:])
    _write_lines(root / "ImageSets" / "Main" / "cat_val.txt", [f"{name} -1" for name in VOC_NAMES[2:]])
    _write_lines(root / "ImageSets" / "Segmentation" / "val.txt", VOC_NAMES[4:], end="")


def _voc_annotation(place: int) -> str:
    x0, y0, x1, y1 = RECTANGLES[place]
    part = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></part>"
    # Pixels count from 1, and a few of the published corners are no whole numbers.
    first = f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}.0000</xmax><ymax>{y1}</ymax>"
    second = "<ymin>1</ymin><xmin>1</xmin><xmax>2</xmax><ymax>3</ymax>"
    return (
        f"<annotation><size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        f"<object><name>person</name><difficult>0</difficult>{part}<bndbox>{first}</bndbox></object>"
        f"<object><name>cat</name><difficult>1</difficult><bndbox>{second}</bndbox></object></annotation>"
    )


def write_boxes(root: Path, metadata: Path) -> list[str]:
    """Six pictures in wsolevaluation's form with boxes, the first with two; no line break at the end of its files."""
    names = [f"val/ILSVRC2012_val_0000000{n}.JPEG" for n in range(6)]
    for place, name in enumerate(names):
        write_picture(root / name, place)
    boxes = [f"{name},{','.join(map(str, box))}" for name, box in zip(names, RECTANGLES, strict=True)]
    _write_metadata(metadata / "test", names, ["val/ILSVRC2012_val_00000000.JPEG,0,0,2,3", *boxes])
    _write_lines(metadata / "test" / "image_sizes.txt", [f"{name},{WIDTH},{HEIGHT}" for name in names], end="")
    return names


def write_masks(root: Path, metadata: Path) -> list[str]:
    """Six pictures in OpenImages' form: the first with two masks, those of odd places with an ignored region."""
    names = [f"test/01226z/{n}.jpg" for n in range(6)]
    lines = []
    for place, name in enumerate(names):
        write_picture(root / name, place)
        stem = name.removesuffix(".jpg")
        _write_mask(root / f"{stem}_m01226z_a.png", rectangle(place))
        ignored = np.zeros((HEIGHT, WIDTH), dtype=bool)
        ignored[24:] = place % 2 == 1
        ignored[:6, :] = place % 2 == 1  # over the object, too, which counts all the same
        _write_mask(root / f"{stem}_ignore.png", ignored, mode="RGB")
        lines.append(f"{name},{stem}_m01226z_a.png,{stem}_ignore.png")
        if place == 0:
            corner = np.zeros((2 * HEIGHT, 2 * WIDTH), dtype=bool)  # masks of a picture may differ in size
            corner[50:, 70:] = True
            _write_mask(root / f"{stem}_m01226z_b.png", corner)
            lines.append(f"{name},{stem}_m01226z_b.png,")
    _write_metadata(metadata / "test", names, lines)
    (metadata / "test" / "image_sizes.txt").write_text("")
    return names


def _write_mask(path: Path, mask: NDArray[np.bool_], mode: str = "L") -> None:
    Image.fromarray(mask.astype(np.uint8) * 255).convert(mode).save(path)


def _write_metadata(folder: Path, names: list[str], localization: list[str]) -> None:
    _write_lines(folder / "image_ids.txt", names, end="")
    _write_lines(folder / "class_labels.txt", [f"{name},{place % 3}" for place, name in enumerate(names)][::-1], end="")
    _write_lines(folder / "localization.txt", localization, end="")


# Whether a part has masks, ignored pixels and boxes; its name is that of its layout, and what it has masks of.
KINDS = {
    "backgrounds-challenge": (True, False, True),
    "coco": (True, False, True),
    "cub": (True, False, True),
    "flowers102": (True, False, True),
    "voc": (False, False, True),
    "voc-masks": (True, True, True),
    "wsolevaluation": (False, False, True),
    "wsolevaluation-masks": (True, True, False),
}


def write_part(folder: Path, kind: str) -> DataConfig:
    """Writes a data set into a folder and gives a part of it that is measured on, one of `KINDS`."""
    root, metadata = folder / kind, folder / "metadata" / kind
    layout = kind.removesuffix("-masks")
    if layout == "cub":
        write_cub(root)
        return DataConfig.model_validate({"root": str(root), "layout": layout, "split": "redo-test"})
    if layout == "flowers102":
        write_flowers(root)
        return DataConfig.model_validate({"root": str(root), "layout": layout, "split": "redo-train"})
    if layout == "voc":
        write_voc(root)
        split = "segmentation-val" if kind == "voc-masks" else "val"
        return DataConfig.model_validate({"root": str(root), "layout": layout, "split": split})
    if layout == "wsolevaluation":
        (write_masks if kind == "wsolevaluation-masks" else write_boxes)(root, metadata)
        fields = {"root": str(root), "layout": layout, "split": "test", "metadata": str(metadata)}
        return DataConfig.model_validate(fields)
    variant = "multi-object" if layout == "coco" else "single-object"
    build_scenes(root, variant=variant, num_train=9, num_val=9, image_size=48)
    return DataConfig.model_validate({"root": str(root), "layout": layout, "split": "val"})
