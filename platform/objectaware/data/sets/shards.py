"""Packs, which `objectaware data pack` writes (`objectaware.data.pack`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from objectaware.data.layouts import Layout, Place, register_layout

if TYPE_CHECKING:
    from objectaware.data.pack import PackedImages, PackedObjects


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

    def truth(self, place: Place, image_ids: list[str], *, needs_boxes: bool) -> PackedObjects:
        """Open the masks and boxes that were packed."""
        from objectaware.data.pack import PackedObjects

        return PackedObjects(place.root, image_ids)
