"""The embedded data set `scenes`: pictures made by code, in the published layouts of real sets."""

from objectaware.data.scenes.build import build_scenes
from objectaware.data.scenes.pictures import CLASS_NAMES
from objectaware.data.scenes.textures import FAMILY_NAMES

__all__ = ["CLASS_NAMES", "FAMILY_NAMES", "build_scenes"]
