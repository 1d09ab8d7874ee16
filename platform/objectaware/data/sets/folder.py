"""Layouts of the user's own images: photos at any depth, one folder per class, and packs of either or of other sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectaware.data.dataset import Dataset
from objectaware.data.folder import ImageFolder

if TYPE_CHECKING:
    from objectaware.data.pack import PackedImages, PackedTruth


class Folder(Dataset):
    """Photos at any depth, without labels."""

    name = "folder"
    content = "photos at any depth"

    def open_images(self) -> ImageFolder:
        """List the images."""
        return ImageFolder.scan(self.root)


class ClassFolders(Dataset):
    """As torchvision's `ImageFolder` has it."""

    name = "class-folders"
    content = "one folder per class"
    labels = "class"

    def open_images(self) -> ImageFolder:
        """List the images with their classes."""
        return ImageFolder.from_classes(self.root)


class Shards(Dataset):
    """A pack in any store, with the labels, masks and boxes of the images that were packed."""

    name = "shards"
    content = "shard-*.parquet and pack.json, from `objectaware data pack`"
    labels = masks = "as packed"
    are_files = False
    is_pack = True

    def open_images(self) -> PackedImages:
        """Read the pack's index."""
        from objectaware.data.pack import PackedImages

        return PackedImages(self.root, window=self.config.shuffle_window or 1)

    def require_root(self) -> None:
        """Refuse an address that holds no finished pack."""
        from objectaware.data.pack import PackedImages

        PackedImages.describe(self.root)

    def content_hash(self, verify: bool = False) -> str:
        """Hash the pack's description, and its shards where they are to be verified."""
        from objectaware.data.pack import pack_hash

        return pack_hash(self.root, verify)

    @property
    def has_truth(self) -> bool:
        """Whether masks were packed, too."""
        from objectaware.data.pack import PackedImages

        return bool(PackedImages.describe(self.root)["has_masks"])

    def truth_of(self, image_ids: list[str], *, needs_boxes: bool = True) -> PackedTruth:
        """Open the masks and boxes that were packed."""
        from objectaware.data.pack import PackedTruth

        return PackedTruth(self.root, image_ids)
