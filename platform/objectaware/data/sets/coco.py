"""COCO 2017 and any data set in its layout, and COCO-Crop, its objects cut out (`objectaware.data.coco`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectaware.data.layouts import Layout, Place, PublishedSet, register_layout, register_published

if TYPE_CHECKING:
    from objectaware.data.coco import CocoDataset, CocoObjects, CroppedObjects, ObjectBoxes
    from objectaware.data.coco_json import CocoField
    from objectaware.data.folder import ImageFolder


class _Annotated(Layout):
    """Images with one file of annotations for all."""

    splits = ("train", "val")

    def annotation_hash(self, place: Place) -> str:
        """Hash the annotation file, which is parsed for that and kept."""
        from objectaware.data.coco import instances_file
        from objectaware.data.coco_json import parse_instances

        return parse_instances(instances_file(place.root, place.split)).sha256

    def instances(self, place: Place, *fields: CocoField) -> CocoDataset:
        """Open the images with their annotations."""
        from objectaware.data.coco import load_coco

        return load_coco(place.root, place.split, *fields)


@register_layout
class Coco(_Annotated):
    """Whole pictures."""

    name = "coco"
    content = "{train,val}2017 and annotations/instances_{train,val}2017.json"
    masks = "union of the instances"
    has_instances = True
    true_masks = True
    true_boxes = True

    def open(self, place: Place) -> ImageFolder:
        """List the pictures of the annotation file."""
        return self.instances(place).images

    def truth(self, place: Place, image_ids: list[str], *, needs_boxes: bool) -> CocoObjects:
        """Open the annotations; those without boxes need not say anything of them."""
        from objectaware.data.coco import CocoObjects

        of_boxes: tuple[CocoField, ...] = ("box", "area") if needs_boxes else ()
        return CocoObjects(self.instances(place, "shape", "segmentation", *of_boxes).select(image_ids))

    def training_boxes(self, place: Place, image_ids: list[str]) -> ObjectBoxes:
        """Open the boxes and let go of the annotation file, which would fill every worker's memory."""
        from objectaware.data.coco import ObjectBoxes
        from objectaware.data.coco_json import forget_instances

        boxes = ObjectBoxes(self.instances(place, "shape", "box", "area").select(image_ids))
        forget_instances()
        return boxes


@register_layout
class CocoCrop(_Annotated):
    """Each object of COCO by itself, labelled with its category."""

    name = "coco-crop"
    content = "the same folder; each object cut out"
    labels = "category"
    are_files = False

    def open(self, place: Place) -> CroppedObjects:
        """List the objects."""
        from objectaware.data.coco import CroppedObjects

        return CroppedObjects(self.instances(place, "shape", "category_index", "box", "area"))


COCO = PublishedSet(
    "COCO",
    "COCO",
    "annotations CC BY 4.0; pictures by their Flickr licences",
    "cocodataset.org: train2017.zip, val2017.zip, annotations_trainval2017.zip",
    {part: {"layout": Coco.name, "split": part} for part in Coco.splits},
    {"train": 118_287, "val": 5_000},
)

COCO_CROP = PublishedSet(
    "COCO-Crop",
    "COCO",
    COCO.licence,
    "derived from COCO: " + COCO.source,
    {part: {"layout": CocoCrop.name, "split": part} for part in CocoCrop.splits},
)

register_published(COCO, COCO_CROP)
