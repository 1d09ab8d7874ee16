"""Folders of photos, and folders that hold one folder per class."""

from __future__ import annotations

from objectaware.data.folder import ImageFolder
from objectaware.data.layouts import Layout, Place, register_layout


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
