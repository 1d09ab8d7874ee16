"""Names of backbones in recipes, and the function or class that builds each backbone.

This module is separate from the networks, so that reading a recipe and --help import neither torch nor timm.
"""

from __future__ import annotations

import difflib
import pkgutil
from typing import Annotated, Any

from pydantic import AfterValidator

from objectaware.errors import InputError

_BUILT_IN = {
    "resnet18": "objectaware.methods.backbones:resnet18",
    "resnet50": "objectaware.methods.backbones:resnet50",
    "resnet10_narrow": "objectaware.methods.backbones:resnet10_narrow",
}
"""Function that builds each network, by the network's name."""

_FAMILIES = {"timm": "objectaware.methods.timm_backbone:TimmBackbone"}
"""Class that builds all networks of a library, by the part of the name before the slash. Its static method `check`
refuses names that it does not know."""

BACKBONE_NAMES = tuple(_BUILT_IN)


def check_backbone(name: str) -> str:
    """Return the name of a backbone if the backbone exists. Only names of a library's networks import that library.

    Raises:
        InputError: There is no such backbone. The message lists the backbones.
    """
    family, _, network = name.partition("/")
    if name in _BUILT_IN:
        return name
    if family in _FAMILIES and network:
        pkgutil.resolve_name(_FAMILIES[family]).check(network)
        return name
    closest = difflib.get_close_matches(name, BACKBONE_NAMES, n=1)
    instead = f"Did you mean {closest[0]}? There are" if closest else "Use one of"
    remedy = f"{instead} {', '.join(BACKBONE_NAMES)}, and any network of timm, such as timm/vit_small_patch16_224."
    raise InputError("backbone", name, "is not known", remedy)


def backbone_builder(name: str) -> tuple[Any, tuple[str, ...]]:
    """Return the function or class that builds a backbone, and the arguments for calling it.

    Raises:
        InputError: There is no such backbone.
    """
    check_backbone(name)
    if name in _BUILT_IN:
        return pkgutil.resolve_name(_BUILT_IN[name]), ()
    family, _, network = name.partition("/")
    return pkgutil.resolve_name(_FAMILIES[family]), (network,)


BackboneName = Annotated[str, AfterValidator(check_backbone)]
"""`resnet18`, `resnet50`, `resnet10_narrow`, or `timm/` and the name of any network of timm."""
