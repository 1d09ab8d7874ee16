"""Cells of the tables on distribution shift: classifiers of ImageNet-9 on shifted pictures of its classes."""

from __future__ import annotations

from objectaware.paper.background import IN9_HOLDOUT, IN9_TRAIN, in9_network
from objectaware.paper.content import Key
from objectaware.paper.multi import coco_network
from objectaware.paper.nodes import Images, Linear, Network
from objectaware.paper.values import Value, ValuePath

CORRUPTIONS = {
    "Gaussian": "gaussian_noise",
    "Shot": "shot_noise",
    "Impulse": "impulse_noise",
    "Defocus": "defocus_blur",
    "Glass": "glass_blur",
    "Motion": "motion_blur",
    "Zoom": "zoom_blur",
    "Snow": "snow",
    "Frost": "frost",
    "Fog": "fog",
    "Brightness": "brightness",
    "Contrast": "contrast",
    "Elastic": "elastic_transform",
    "Pixel": "pixelate",
    "JPEG": "jpeg_compression",
}
"""The paper's names of the corruptions, and those of ImageNet-C's folders; a test holds them to the data set's."""
SEVERITIES = range(1, 6)
SCORED_FACTORS = ("size", "location", "rotation")
"""SI-Score's factors that the paper averages; a test holds them to the data set's."""


def _parts(name: str, parts: tuple[str, ...]) -> tuple[tuple[str, Images], ...]:
    return tuple((part, Images(name, part)) for part in parts)


_SHIFTED: dict[str, tuple[tuple[str, Images], ...]] = {
    "ImageNet-9": _parts("ImageNet-9", ("val",)),
    **{
        name: _parts(name, ("test",))
        for name in ("ImageNet-Sketch-9", "Stylized-ImageNet-9", "ImageNet-R-9", "ObjectNet-9")
    },
    "SI-Score-9": _parts("SI-Score-9", SCORED_FACTORS),
    "ImageNet-C-9": _parts(
        "ImageNet-C-9", tuple(f"{name}-{severity}" for name in CORRUPTIONS.values() for severity in SEVERITIES)
    ),
}


def shifted(network: Network, name: str) -> Linear:
    """Linear evaluation on ImageNet-9, measured on a shifted set or on its own validation images."""
    return Linear(network, IN9_TRAIN, _SHIFTED[name], IN9_HOLDOUT)


def _accuracy(network: Network, name: str) -> Value:
    """Accuracy on a test set: the mean over its parts, which are equally large."""
    paths: tuple[ValuePath, ...] = tuple(("accuracies", part) for part, _ in _SHIFTED[name])
    return Value(shifted(network, name), paths)


def of_coco_networks(row: Key, column: Key, seed: int) -> Value:
    """`multi-shift`: ResNet-50 trained on COCO."""
    return _accuracy(coco_network(row[0], "ResNet-50", row[1], seed), column[0])


def of_in9_networks(row: Key, column: Key, seed: int) -> Value:
    """`bg-domain`, `bg-more-dist` and `bg-more-datasets`."""
    return _accuracy(in9_network(row[0], row[1], seed), column[0])


def corruptions(row: Key, column: Key, seed: int) -> Value:
    """`bg-imagenetc`: the mean over five severities."""
    name = CORRUPTIONS[column[1]]
    node = shifted(in9_network(row[0], row[1], seed), "ImageNet-C-9")
    return Value(node, tuple(("accuracies", f"{name}-{severity}") for severity in SEVERITIES))
