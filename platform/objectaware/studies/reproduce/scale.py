"""The scale of a plan of the paper: it decides what the plan's data sets, networks and settings become."""

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
    """A scale, which turns a plan's nodes into configurations.

    Attributes:
        mark: Text that marks every printed line and table; empty at full scale.
    """

    @property
    def mark(self) -> str:
        """Return the text that marks every printed line and table; empty at full scale."""
        ...

    def adapted(self, node: Node) -> Node:
        """Return a node of a plan, with stand-ins for everything that this scale does not have."""
        ...

    def problem(self, node: Node) -> str | None:
        """Return why a node cannot run: its images or a file of others are missing. Return None if it can."""
        ...

    def images_problem(self, images: Images) -> str | None:
        """Return why a part of a data set is missing, or None if it exists."""
        ...

    def num_images(self, images: Images) -> int | None:
        """Return the number of images of a part that exist, else the published number, or None if neither is known."""
        ...

    def data(self, images: Images) -> DataConfig:
        """Return the configuration of a part of a data set, with its folder."""
        ...

    def file(self, node: Published) -> str:
        """Return the address of the network or the masks of others."""
        ...

    def class_name(self, name: str) -> str:
        """Return the data sets' name of a class of the paper."""
        ...

    def path(self, path: ValuePath) -> ValuePath:
        """Return the path of a number in a stage's values, with the data sets' names of classes."""
        ...

    def epoch(self, epoch: int) -> int:
        """Return the number of epochs that stands for this number of the paper's epochs."""
        ...

    def fields(self, node: Node) -> Fields:
        """Return the fields of the node's configuration that this scale sets and that override the plan."""
        ...


SMOKE_MARK = "smoke on scenes"
_SIZE = 32
_NUM_TRAIN = 90
_NUM_VAL = 45
# Sets with several objects per picture. All others become scenes of one object.
_MULTI_OBJECT = {"COCO": "coco", "COCO-Crop": "coco-crop"}
_SHIFTED = {
    "ImageNet-Sketch-9": "only_fg",
    "Stylized-ImageNet-9": "mixed_rand",
    "ImageNet-R-9": "mixed_same",
    "ObjectNet-9": "mixed_next",
}
"""Variants of scenes that stand for shifted sets. Sets of many parts use all variants in turn."""
_SHIFTED_IN_PARTS = ("SI-Score-9", "ImageNet-C-9")
# Classes of scenes that stand for the paper's. The first two occur together, as giraffes and zebras do.
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
# The curves over the epochs need eight checkpoints. One epoch of scenes has three steps.
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

    Networks that others published are replaced by trainings on scenes, and their masks by a centred box.

    Attributes:
        single: Folder of scenes with one object, in the layout of the Backgrounds Challenge.
        multi: Folder of scenes with several objects, in COCO's layout.
        mark: `SMOKE_MARK`.
    """

    single: Path
    multi: Path
    mark: str = SMOKE_MARK

    @classmethod
    def build(cls, folder: Path) -> Smoke:
        """Build the scenes in a folder, or use those that exist."""
        smoke = cls(folder / "single-object", folder / "multi-object")
        kinds: tuple[tuple[Path, SceneVariant], ...] = ((smoke.single, "single-object"), (smoke.multi, "multi-object"))
        for root, variant in kinds:
            build_scenes(root, variant=variant, num_train=_NUM_TRAIN, num_val=_NUM_VAL, image_size=_SIZE)
        return smoke

    def adapted(self, node: Node) -> Node:
        """Return the node with stand-ins for everything that others have published."""
        return rewrite(node, _stand_in)

    def problem(self, node: Node) -> str | None:
        """Return None, since nothing is missing."""
        return None

    def images_problem(self, images: Images) -> str | None:
        """Return None, since nothing is missing."""
        return None

    def num_images(self, images: Images) -> int | None:
        """Return the number of pictures that are built. Parts of single objects have several per picture."""
        return _NUM_TRAIN if "train" in images.part else _NUM_VAL

    def data(self, images: Images) -> DataConfig:
        """Return the scenes that stand for a data set. Shifted sets become variants of them."""
        split = "train" if "train" in images.part else "val"
        if images.name in _MULTI_OBJECT:
            return DataConfig.model_validate(
                {"root": str(self.multi), "layout": _MULTI_OBJECT[images.name], "split": split}
            )
        variant = _SHIFTED.get(images.name, "original")
        if images.name == "Backgrounds Challenge":
            variant = images.part
        elif images.name in _SHIFTED_IN_PARTS:
            # Chosen by the part's name, so that every process agrees. The 75 corruptions share eight variants.
            variant = VARIANTS[sum(images.part.encode()) % len(VARIANTS)]
        return DataConfig.model_validate(
            {"root": str(self.single), "layout": "backgrounds-challenge", "split": split, "variant": variant}
        )

    def file(self, node: Published) -> str:
        """Refuse: every published file has a stand-in, so this is never called."""
        raise AssertionError(node.name)

    def class_name(self, name: str) -> str:
        """Return the class of scenes that stands for a class of the paper. There are nine."""
        return CLASS_NAMES[_CLASSES.index(name) % len(CLASS_NAMES)]

    def path(self, path: ValuePath) -> ValuePath:
        """Return the path with the classes named by their folders."""
        return tuple(
            CLASS_FOLDERS[_CLASSES.index(key) % len(CLASS_FOLDERS)] if key in _CLASSES else key for key in path
        )

    def epoch(self, epoch: int) -> int:
        """Return one epoch for each hundred of the paper."""
        return epoch // 100 * _EPOCHS_PER_HUNDRED

    def fields(self, node: Node) -> Fields:
        """Return fields for small pictures, small networks and one core."""
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
            # There are only a dozen pictures of each class.
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
