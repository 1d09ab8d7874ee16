"""At what scale a plan of the paper runs: what its data sets, networks and settings become."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from objectaware.config import DataConfig, MethodConfig
from objectaware.data.scenes import CLASS_NAMES, build_scenes
from objectaware.data.scenes.pictures import CLASS_FOLDERS, SceneVariant
from objectaware.data.sets.backgrounds_challenge import VARIANTS
from objectaware.paper.nodes import (
    ClassDistance,
    Detection,
    FewShot,
    Images,
    Linear,
    Localize,
    MaskScore,
    Node,
    Pretrain,
    Published,
    ValuePath,
    options,
    rewrite,
)
from objectaware.paper.plan import MOCO_IMAGENET, training

Fields = dict[str, Any]


class Scale(Protocol):
    """What turns a plan's nodes into configurations.

    Attributes:
        mark: What every printed line and table says of it; empty at full scale.
    """

    @property
    def mark(self) -> str:
        """See above."""
        ...

    def adapted(self, node: Node) -> Node:
        """A node of a plan with what stands in for what this scale has not."""
        ...

    def problem(self, node: Node) -> str | None:
        """Why a node cannot run: its images or the file of others are not there; None where they are."""
        ...

    def images_problem(self, images: Images) -> str | None:
        """Why a part of a data set is not there; None where it is."""
        ...

    def num_images(self, images: Images) -> int | None:
        """How many images a part of a data set has: those that are there, else as published; None where unknown."""
        ...

    def data(self, images: Images) -> DataConfig:
        """Where a part of a data set lies."""
        ...

    def file(self, node: Published) -> str:
        """Where the network or the masks of others lie."""
        ...

    def class_name(self, name: str) -> str:
        """What the data sets call a class of the paper's."""
        ...

    def path(self, path: ValuePath) -> ValuePath:
        """Where a number stands in a stage's values, classes by the names that the data sets give them."""
        ...

    def epoch(self, epoch: int) -> int:
        """How many epochs stand for so many of the paper's."""
        ...

    def fields(self, node: Node) -> Fields:
        """Fields of the node's configuration that this scale sets, whatever the plan says."""
        ...


SMOKE_MARK = "smoke on scenes"
_SIZE = 32
_NUM_TRAIN = 90
_NUM_VAL = 45
# Sets with several objects a picture; all others become scenes of one object.
_MULTI_OBJECT = {"COCO": "coco", "COCO-Crop": "coco-crop"}
_SHIFTED = {
    "ImageNet-Sketch-9": "only_fg",
    "Stylized-ImageNet-9": "mixed_rand",
    "ImageNet-R-9": "mixed_same",
    "ObjectNet-9": "mixed_next",
}
"""Variants of scenes in the place of shifted sets; those of many parts go through all variants."""
_SHIFTED_IN_PARTS = ("SI-Score-9", "ImageNet-C-9")
# Classes of scenes in the place of those that the paper names. The first two go together, as giraffes and zebras do.
_CLASSES = (
    "giraffe",
    "zebra",
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
# The curves over the epochs need eight checkpoints; an epoch of scenes is three steps.
_EPOCHS_PER_HUNDRED = 1
_ONE_CORE = {"num_loader_threads": 1, "num_compute_threads": 1, "evaluation_interval": 100}

_DETECTION: Fields = {
    "num_iterations": 2,
    "decay_iterations": (),
    "num_warmup_iterations": 0,
    "batch_size": 2,
    "short_sides": (_SIZE,),
    "test_short_side": _SIZE,
    "max_side": 2 * _SIZE,
    "num_regions": 8,
    "num_train_proposals": 20,
    "num_test_proposals": 8,
    "num_precise_batches": 1,
    "precision": "fp32",
    "log_interval": 2,
    "execution": {"num_loader_threads": 1, "num_compute_threads": 1},
}


@dataclass(frozen=True)
class Smoke:
    """The same plan on scenes, with small networks and a few steps of training.

    What was published by others is stood in for: networks by trainings on scenes, masks by a centred box.

    Attributes:
        single: Folder of scenes with one object, in the layout of the Backgrounds Challenge.
        multi: Folder of scenes with several, in COCO's.
        mark: `SMOKE_MARK`.
    """

    single: Path
    multi: Path
    mark: str = SMOKE_MARK

    @classmethod
    def build(cls, folder: Path) -> Smoke:
        """Builds the scenes in a folder, or takes those that are there."""
        smoke = cls(folder / "single-object", folder / "multi-object")
        kinds: tuple[tuple[Path, SceneVariant], ...] = ((smoke.single, "single-object"), (smoke.multi, "multi-object"))
        for root, variant in kinds:
            build_scenes(root, variant=variant, num_train=_NUM_TRAIN, num_val=_NUM_VAL, image_size=_SIZE)
        return smoke

    def adapted(self, node: Node) -> Node:
        """Puts a stand-in in the place of what others have published."""
        return rewrite(node, _stand_in)

    def problem(self, node: Node) -> str | None:
        """Nothing is missing."""
        return None

    def images_problem(self, images: Images) -> str | None:
        """Nothing is missing."""
        return None

    def num_images(self, images: Images) -> int | None:
        """Those that were built; objects are several a picture."""
        return _NUM_TRAIN if "train" in images.part else _NUM_VAL

    def data(self, images: Images) -> DataConfig:
        """Scenes in the place of a data set; shifted sets become variants of them."""
        split = "train" if "train" in images.part else "val"
        if images.name in _MULTI_OBJECT:
            return DataConfig.model_validate(
                {"root": str(self.multi), "layout": _MULTI_OBJECT[images.name], "split": split}
            )
        variant = _SHIFTED.get(images.name, "original")
        if images.name == "Backgrounds Challenge":
            variant = images.part
        elif images.name in _SHIFTED_IN_PARTS:
            # By the part's name, the same in every process; 75 corruptions share eight variants.
            variant = VARIANTS[sum(images.part.encode()) % len(VARIANTS)]
        return DataConfig.model_validate(
            {"root": str(self.single), "layout": "backgrounds-challenge", "split": split, "variant": variant}
        )

    def file(self, node: Published) -> str:
        """Never asked for: every one has a stand-in."""
        raise AssertionError(node.name)

    def class_name(self, name: str) -> str:
        """A class of scenes; there are nine."""
        return CLASS_NAMES[_CLASSES.index(name) % len(CLASS_NAMES)]

    def path(self, path: ValuePath) -> ValuePath:
        """The names of classes are those of the folders."""
        return tuple(
            CLASS_FOLDERS[_CLASSES.index(key) % len(CLASS_FOLDERS)] if key in _CLASSES else key for key in path
        )

    def epoch(self, epoch: int) -> int:
        """One for a hundred."""
        return epoch // 100 * _EPOCHS_PER_HUNDRED

    def fields(self, node: Node) -> Fields:
        """Small pictures, small networks, one core."""
        if isinstance(node, Pretrain):
            method = MethodConfig.variants()[node.recipe.split("_")[0]]
            on_coco = node.images.name == "COCO"
            return {
                "backbone": "resnet10_narrow",
                "image_size": 32,
                "num_epochs": self.epoch(800) if on_coco else 1,
                "batch_size": 30,
                "precision": "fp32",
                "method": dict(method.smoke_fields),
                "execution": {**_ONE_CORE, "keep_every": 1, "checkpoint_interval": 4},
            }
        if isinstance(node, Localize):
            return {"image_size": _SIZE, "execution": {"num_crf_actors": 1, "num_compute_threads": 1}}
        if isinstance(node, Linear):
            return {"image_size": 32, "center_crop": False, "holdout_fraction": 0.2, "num_penalties": 3}
        if isinstance(node, FewShot):
            return {"image_size": 32, "center_crop": False}
        if isinstance(node, ClassDistance):
            # There are a dozen pictures of each class.
            return {"image_size": 32, "center_crop": False, "perplexity": 3.0}
        if isinstance(node, Detection):
            return _DETECTION
        if isinstance(node, MaskScore):
            return {"image_size": _SIZE}
        return {}


def _stand_in(node: Node) -> Node:
    if not isinstance(node, Published):
        return node
    if node.kind == "masks":
        assert node.images is not None, node.name
        return Localize(node.images, None, options(localizer={"name": "center_box", "side_fraction": 0.7}, crf=False))
    return training("moco_resnet18_in9" if node == MOCO_IMAGENET else "supervised_resnet18_in9")
