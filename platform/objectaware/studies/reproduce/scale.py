"""The configurations of a plan's stages, made from its nodes at a scale.

A scale decides what the plan's data sets, networks and settings become. `Full` is the paper's own scale: published data
sets from the user's folders, and networks of others from files. `Smoke` runs the same plan on scenes, in minutes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from objectaware.config import DataConfig, LocalizeConfig, MethodConfig, Model, PretrainConfig
from objectaware.config.variants import default_names
from objectaware.data.dataset import Dataset
from objectaware.data.published import published_data, published_set
from objectaware.data.scenes import build_scenes
from objectaware.data.scenes.outlines import CLASS_FOLDERS, CLASS_NAMES
from objectaware.data.sets.backgrounds_challenge import VARIANTS
from objectaware.errors import InputError
from objectaware.paper import nodes
from objectaware.paper.nodes import ClassName, Images, ImagesOfClass, Kept, Node, Options, Planned, Published, ValuePath
from objectaware.paper.plan import MOCO_IMAGENET, training
from objectaware.recipes import SHIPPED_RECIPES, merged, read_recipe, read_yaml

if TYPE_CHECKING:
    from objectaware.stages.runner import StageResult

Fields = dict[str, Any]
Results: TypeAlias = "Mapping[Node, StageResult]"
"""Results of the stages that a node needs, by node."""

AnyNode = TypeVar("AnyNode", bound=Node)


@dataclass(frozen=True)
class Scale(ABC):
    """A scale, which turns the nodes of a plan into configurations. By default it has all that the paper has.

    Attributes:
        recipes: Folder of the trainings' recipes.
        mark: Name of the scale, to be shown on every line; empty if it needs none.
    """

    recipes: Path
    mark: ClassVar[str] = ""

    @abstractmethod
    def data(self, images: Images) -> DataConfig:
        """Return a part of a data set, or what stands for it."""

    @abstractmethod
    def num_images(self, images: Images) -> int | None:
        """Return the number of images of a part of a data set, or None if it is not known."""

    def problem(self, node: Node) -> str | None:
        """Return what is missing of a node's own images or of others' files, or None."""
        return None

    def images_problem(self, images: Images) -> str | None:
        """Return why a part of a data set cannot be opened, in one line, or None if it can."""
        return None

    def deviation(self, node: Node) -> str | None:
        """Return why a number that needs a node cannot be compared with the paper's, or None if it can.

        The reason is one of the node itself: its images or its recipe.
        """
        return None

    def adapted(self, node: AnyNode) -> AnyNode:
        """Return the node as it is run."""
        return node

    def class_name(self, name: str) -> str:
        """Return the data set's name of a class."""
        return name

    def path(self, path: ValuePath) -> ValuePath:
        """Return the path to a number in the values of the stage that is run."""
        return path

    def epoch(self, epoch: int) -> int:
        """Return the epoch that stands for one of the paper's."""
        return epoch

    def fields(self, node: Planned) -> Fields:
        """Return fields that change a stage's configuration."""
        return {}

    def config(self, node: Planned, results: Results | None) -> Model:
        """Make the configuration of a stage.

        Args:
            node: The stage.
            results: Results of all stages that it needs. If it is None, stand-ins take the place of their addresses.
        """
        model = _model(node)
        choices = default_names(model)
        recipe = {} if node.recipe is None else read_recipe(self.recipes / f"{node.recipe}.yaml", choices)
        network = node.fields.get("checkpoint")
        if node.kind == "detection" and isinstance(network, Published):
            # A published detector is measured without fine-tuning.
            test, published = self.data(node.fields["test"]), self.address(network, results)
            return model.model_validate({"test": test, "published": published, "execution": recipe["execution"]})
        fields, scaled = merged(recipe, self._filled(node.fields, results), choices), self.fields(node)
        # The scale changes single fields of an option. Everything else, such as `execution`, it replaces.
        fields = {name: value for name, value in fields.items() if name in choices or name not in scaled}
        return model.model_validate(merged(fields, scaled, choices))

    def _filled(self, value: Any, results: Results | None) -> Any:  # noqa: ANN401 - any value of a field
        """Return a value of a node's fields, with addresses and names for the nodes and images in it."""
        match value:
            case Options():
                return {name: self._filled(inner, results) for name, inner in value.items()}
            case tuple():
                return tuple(self._filled(inner, results) for inner in value)
            case Images():
                return self.data(value)
            case ImagesOfClass():
                return self.images_of_class(value)
            case ClassName():
                return self.class_name(value)
            case Published() | Kept() | Planned():
                return self.address(value, results)
        return value

    def address(self, node: Node, results: Results | None) -> str:
        """Return the address of a node's outcome: a checkpoint, masks or a classifier; a stand-in without results."""
        if results is None:
            return "stand-in"
        if isinstance(node, Kept):
            # Imported here: otherwise every plan would wait for PyTorch.
            from objectaware.training.loop import KEPT_FOLDER, checkpoint_name

            # The folder's name contains the epoch's number, counted from 0.
            epoch = self.epoch(node.epoch) - 1
            return f"{results[node.training].folder.uri}/train/{KEPT_FOLDER}/{checkpoint_name(epoch)}"
        from objectaware.stages.registry import stage_named

        assert isinstance(node, Planned), f"{nodes.title(node)} has a stand-in"
        outcome = stage_named(node.kind).outcome
        assert outcome is not None, f"{nodes.title(node)} has no outcome"
        return str(results[node].values[outcome])

    def images_of_class(self, wanted: ImagesOfClass) -> tuple[str, ...]:
        """Return the paths of the images that show a class: the first ones, at most one group.

        Raises:
            InputError: No image shows the class.
        """
        data = self.data(wanted.images)
        coco = Dataset.of(data).instances()
        name = self.class_name(wanted.class_name)
        shown = [
            image_id
            for index, image_id in enumerate(coco.images.image_ids)
            if any(coco.category_names[one.category_index] == name for one in coco.annotations(index))
        ]
        if not shown:
            problem = f"is not shown in any picture of {data.root}"
            raise InputError("class", name, problem, "Give a data set that shows it.")
        return tuple(shown[: LocalizeConfig.model_fields["group_size"].default])


def _model(node: Planned) -> type[Model]:
    """Return the class of a stage's configuration."""
    if node.kind == "pretrain":
        return PretrainConfig
    # Imported on demand, since showing a plan needs only trainings.
    from objectaware.stages.registry import stage_named

    return stage_named(node.kind).config


@dataclass(frozen=True)
class Full(Scale):
    """The paper's data sets and settings.

    Attributes:
        data_folder: Folder in which data sets lie under their usual names.
        folders: Folders of the data sets that lie elsewhere, by name.
        networks: Files of networks and masks of others, by the name in the paper's tables.
    """

    data_folder: Path
    folders: Mapping[str, str] = field(default_factory=dict)
    networks: Mapping[str, str] = field(default_factory=dict)
    _seen: dict[Images, int | str] = field(default_factory=dict, compare=False, repr=False)

    def problem(self, node: Node) -> str | None:
        """Return what is missing of a node's own images or of others' files, or None."""
        if isinstance(node, Published):
            address = self.networks.get(node.name)
            if address is None:
                return f"{node.name}: no file of it is named (--networks)"
            missing = "://" not in address and not Path(address).exists()
            return f"{node.name}: {address} does not exist" if missing else None
        problems = (self.images_problem(images) for images in nodes.images_of(node))
        return next((problem for problem in problems if problem is not None), None)

    def deviation(self, node: Node) -> str | None:
        """Return what is changed in a training's recipe, or which images are not all published ones."""
        found = [self._changed_recipe(node)] if isinstance(node, Planned) and node.recipe is not None else []
        found += map(self._other_images, nodes.images_of(node))
        return "; ".join(filter(None, found)) or None

    def _changed_recipe(self, node: Planned) -> str:
        """Return the fields in which a stage differs from the one by the shipped recipe; empty if there are none."""
        from objectaware.stages.identity import recipe

        scales = (self, replace(self, recipes=SHIPPED_RECIPES))
        ours, shipped = (_flat(recipe(scale.config(node, None))) for scale in scales)
        changed = [
            f"{name} {ours.get(name)} in place of {shipped.get(name)}"
            for name in dict.fromkeys((*ours, *shipped))
            if ours.get(name) != shipped.get(name)
        ]
        return f"the recipe {node.recipe} was changed: {', '.join(changed)}" if changed else ""

    def _other_images(self, images: Images) -> str:
        """Return in what a part of a data set differs from the published one; empty if it is that one, or missing."""
        found, published = self._look(images), published_number(images)
        if isinstance(found, str):
            return ""
        is_short = published is not None and found < published
        facts = [f"has {found:,} of {published:,} images"] if is_short else []
        if substitute := Dataset.of(self.data(images)).substitute:
            facts.append(f"is {substitute}")
        return f"{images.name} {images.part} {' and '.join(facts)}" if facts else ""

    def images_problem(self, images: Images) -> str | None:
        """Return why a part of a data set cannot be opened, in one line, or None if it can."""
        seen = self._look(images)
        return seen if isinstance(seen, str) else None

    def num_images(self, images: Images) -> int | None:
        """Return the number of images that exist, else the published number, or None if neither is known."""
        seen = self._look(images)
        return seen if isinstance(seen, int) else published_number(images)

    def _look(self, images: Images) -> int | str:
        """Return the number of images, or why they cannot be opened. Each part is opened once."""
        if images not in self._seen:
            try:
                self._seen[images] = len(self.data(images).open())
            except InputError as error:
                self._seen[images] = f"{images.name} {images.part}: {error}"
        return self._seen[images]

    def data(self, images: Images) -> DataConfig:
        """Return a part of a data set, or those of its images that a list in the data folder names."""
        data = published_data(images.name, images.part, self.data_folder, self.folders)
        if images.subset is None:
            return data
        return DataConfig.model_validate({**data.model_dump(), "subset": str(self.data_folder / images.subset)})

    def address(self, node: Node, results: Results | None) -> str:
        """Return the address of a node's outcome. The user has given those of published networks and masks."""
        if isinstance(node, Published) and results is not None:
            return self.networks[node.name]
        return super().address(node, results)


def _flat(fields: Fields, prefix: str = "") -> Fields:
    """Return all single values of nested fields by their dotted names."""
    flat: Fields = {}
    for name, value in fields.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


def published_number(images: Images) -> int | None:
    """Return the published number of images of a part, or None if it is not known."""
    return None if images.subset is not None else published_set(images.name).num_images.get(images.part)


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
    *("giraffe", "zebra", "airplane", "automobile", "bird", "cat"),
    *("deer", "dog", "frog", "horse", "ship", "truck"),
)
_ONE_CORE = {"num_loader_threads": 1, "num_compute_threads": 1}
# Fields of evaluations; each kind takes those that it has. There are only a dozen pictures of each class.
_EVALUATION: Fields = {
    "image_size": _SIZE,
    "center_crop": False,
    "holdout_fraction": 0.2,
    "holdout_size": None,
    "num_penalties": 3,
    "perplexity": 3.0,
}
_HOLDOUT = {"holdout_fraction", "holdout_size"}
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
    "execution": _ONE_CORE,
}


@dataclass(frozen=True)
class Smoke(Scale):
    """The same plan on scenes, with small networks and a few steps of training.

    Networks that others published are replaced by trainings on scenes, and their masks by a centred box.

    Attributes:
        single: Folder of scenes with one object, in the layout of the Backgrounds Challenge.
        multi: Folder of scenes with several objects, in COCO's layout.
    """

    single: Path
    multi: Path
    mark: ClassVar[str] = SMOKE_MARK

    @classmethod
    def build(cls, recipes: Path, folder: Path) -> Smoke:
        """Build the scenes in a folder, or use those that exist."""
        smoke = cls(recipes, folder / "single-object", folder / "multi-object")
        sizes: Fields = {"num_train": _NUM_TRAIN, "num_val": _NUM_VAL, "image_size": _SIZE}
        build_scenes(smoke.single, variant="single-object", **sizes)
        build_scenes(smoke.multi, variant="multi-object", **sizes)
        return smoke

    def deviation(self, node: Node) -> str | None:
        """Return that nothing at this scale can be compared."""
        return "pictures made by code, and a few steps of training"

    def adapted(self, node: AnyNode) -> AnyNode:
        """Return the node with stand-ins for everything that others have published."""
        adapted: AnyNode = nodes.replaced(node, _stand_in)
        return adapted

    def num_images(self, images: Images) -> int | None:
        """Return the number of pictures that are built. Parts of single objects have several per picture."""
        return _NUM_TRAIN if "train" in images.part else _NUM_VAL

    def data(self, images: Images) -> DataConfig:
        """Return the scenes that stand for a data set. Shifted sets become variants of them."""
        split = "train" if "train" in images.part else "val"
        if images.name in _MULTI_OBJECT:
            return DataConfig(root=str(self.multi), layout=_MULTI_OBJECT[images.name], split=split)
        variant = _SHIFTED.get(images.name, "original")
        if images.name == "Backgrounds Challenge":
            variant = images.part
        elif images.name in _SHIFTED_IN_PARTS:
            # Chosen by the part's name, so that every process agrees. The 75 corruptions share eight variants.
            variant = VARIANTS[sum(images.part.encode()) % len(VARIANTS)]
        return DataConfig(root=str(self.single), layout="backgrounds-challenge", split=split, variant=variant)

    def class_name(self, name: str) -> str:
        """Return the class of scenes that stands for a class of the paper. There are nine."""
        return CLASS_NAMES[_CLASSES.index(name) % len(CLASS_NAMES)]

    def path(self, path: ValuePath) -> ValuePath:
        """Return the path with the classes named by their folders."""
        return tuple(
            CLASS_FOLDERS[_CLASSES.index(key) % len(CLASS_FOLDERS)] if key in _CLASSES else key for key in path
        )

    def epoch(self, epoch: int) -> int:
        """Return one epoch for each hundred of the paper: the curves over the epochs need eight checkpoints."""
        return epoch // 100

    def fields(self, node: Planned) -> Fields:
        """Return fields for small pictures, small networks and one core."""
        if node.kind == "pretrain":
            assert node.recipe is not None
            method = MethodConfig.variants()[node.recipe.split("_")[0]]
            return {
                "backbone": "resnet10_narrow",
                "image_size": _SIZE,
                "num_epochs": self.epoch(800) if node.fields["data"].name == "COCO" else 1,
                "batch_size": 30,
                "precision": "fp32",
                "method": dict(method.smoke_fields),
                "execution": {**_ONE_CORE, "evaluation_interval": 100, "keep_every": 1, "checkpoint_interval": 4},
            }
        if node.kind == "localize":
            execution = {**node.fields.get("execution", {}), "num_crf_actors": 1, "num_compute_threads": 1}
            return {"image_size": _SIZE, "execution": execution}
        if node.kind == "detection":
            return _DETECTION
        known = _model(node).model_fields.keys() - (_HOLDOUT if "validation" in node.fields else ())
        return {name: value for name, value in _EVALUATION.items() if name in known}


def _stand_in(node: Published | Planned) -> Node:
    if isinstance(node, Planned):
        return node
    if node.kind == "masks":
        assert node.images is not None, node.name
        box = {"localizer": {"name": "center_box", "side_fraction": 0.7}, "crf": False}
        return nodes.localize(node.images, None, box)
    return training("moco_resnet18_in9" if node == MOCO_IMAGENET else "supervised_resnet18_in9")


def lacking(full: Full, planned: Iterable[Node], shown: Iterable[Images] = ()) -> list[str]:
    """Return what a plan lacks: names of data sets with a missing part, and of networks and masks of others.

    Args:
        full: The scale, which knows where data sets and files lie.
        planned: Nodes of the plan.
        shown: Images that are shown without a stage.
    """
    known = list(planned)
    parts = dict.fromkeys([*(images for node in known for images in nodes.images_of(node)), *shown])
    sets = [images.name for images in parts if full.images_problem(images) is not None]
    others = [node.name for node in known if isinstance(node, Published) and full.problem(node) is not None]
    return list(dict.fromkeys([*sets, *others]))


def read_names(file: Path | None, field_name: str, known: tuple[str, ...] = ()) -> dict[str, str]:
    """Read a YAML file of paths by name.

    Args:
        file: The file, or None for no names.
        field_name: Name of the field in messages: `datasets` or `networks`.
        known: Names that are allowed; for `datasets` those of the published sets.

    Raises:
        InputError: The file is missing or malformed, or a name is not known.
    """
    if file is None:
        return {}
    if not file.is_file():
        raise InputError(field_name, file, "does not exist", "Give a YAML file of `name: path` lines.")
    content = read_yaml(file, field=field_name)
    if not isinstance(content, dict) or not all(isinstance(path, str) for path in content.values()):
        raise InputError(field_name, file, "is not a mapping of names to paths", "Write `name: path` lines.")
    if field_name == "datasets":
        return {published_set(str(name)).name: path for name, path in content.items()}
    for name in content:
        if name not in known:
            raise InputError(field_name, name, "is not used by any table", f"Use one of: {', '.join(known)}.")
    return {str(name): path for name, path in content.items()}


def obstacles(scale: Scale, planned: Sequence[Node]) -> dict[Node, str]:
    """Return the reasons why nodes of a plan cannot run, before any of them has run.

    Args:
        scale: Scale that would make the stages' configurations.
        planned: The nodes, each after those that it needs.

    Returns:
        The reason by node, for those that cannot run: their own problem, or that of a node that they need.
    """
    found: dict[Node, str] = {}
    for node in planned:
        reason = next((found[needed] for needed in nodes.needs(node) if needed in found), None)
        reason = reason or scale.problem(node)
        if reason is not None:
            found[node] = reason
    return found
