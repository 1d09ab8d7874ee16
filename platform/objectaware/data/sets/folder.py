"""Layouts of the user's own images: photos at any depth, one folder per class, and packs of either or of other sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Layout, Place, register_layout

if TYPE_CHECKING:
    from objectaware.data.pack import PackedImages, PackedTruth


@register_layout
class Folder(Layout):
    """Photos at any depth, without labels."""

    name = "folder"
    content = "photos at any depth"

    def open(self, place: Place) -> ImageFolder:
        """List the images."""
        return ImageFolder.scan(place.root)


@register_layout
class ClassFolders(Layout):
    """As torchvision's `ImageFolder` has it."""

    name = "class-folders"
    content = "one folder per class"
    labels = "class"

    def open(self, place: Place) -> ImageFolder:
        """List the images with their classes."""
        return ImageFolder.from_classes(place.root)


@register_layout
class Shards(Layout):
    """A pack in any store, with the labels, masks and boxes of the images that were packed."""

    name = "shards"
    content = "shard-*.parquet and pack.json, from `objectaware data pack`"
    labels = masks = "as packed"
    are_files = False
    is_pack = True

    def open(self, place: Place) -> PackedImages:
        """Read the pack's index."""
        from objectaware.data.pack import PackedImages

        return PackedImages.open(place.root, window=place.shuffle_window)

    def require_root(self, root: str) -> None:
        """Refuse an address that holds no finished pack."""
        from objectaware.data.pack import PackedImages

        PackedImages.describe(root)

    def has_truth(self, place: Place) -> bool:
        """Tell whether masks were packed, too."""
        from objectaware.data.pack import PackedImages

        return bool(PackedImages.describe(place.root)["has_masks"])

    def truth(self, place: Place, image_ids: list[str], *, needs_boxes: bool) -> PackedTruth:
        """Open the masks and boxes that were packed."""
        from objectaware.data.pack import PackedTruth

        return PackedTruth(place.root, image_ids)
