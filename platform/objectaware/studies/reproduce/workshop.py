"""The configurations of a plan's stages, made from its nodes at the scale in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from objectaware.config import (
    GROUND_TRUTH,
    DetectionConfig,
    DetectionExecution,
    LocalizeConfig,
    Model,
    PretrainConfig,
)
from objectaware.config.variants import default_names
from objectaware.data.dataset import Dataset
from objectaware.errors import InputError
from objectaware.paper.nodes import (
    ClassDistance,
    Detection,
    FewShot,
    Images,
    Kept,
    Linear,
    Localize,
    MaskScore,
    Node,
    Pretrain,
    Published,
    needs,
    title,
)
from objectaware.recipes import merged, read_recipe
from objectaware.studies.reproduce.scale import Scale

if TYPE_CHECKING:
    from objectaware.stages.class_distance import ClassDistanceConfig
    from objectaware.stages.few_shot import FewShotConfig
    from objectaware.stages.linear import LinearConfig
    from objectaware.stages.localization import LocalizationConfig
    from objectaware.stages.runner import StageResult

Results: TypeAlias = "Mapping[Node, StageResult]"
"""Results of the stages that a node needs, by node."""

DETECTION_RECIPE = "detection_coco.yaml"
"""Recipe of all fine-tuned detectors."""

FOUND = "found"
"""Name of the masks that are scored."""


@dataclass(frozen=True)
class Workshop:
    """A workshop, which turns the nodes of a plan into configurations.

    Attributes:
        scale: Scale at which they run.
        recipes: Folder of the trainings' recipes.
    """

    scale: Scale
    recipes: Path

    def name(self, node: Node) -> str:
        """Return the title of the node's stage, with the scale's mark."""
        return title(node) if not self.scale.mark else f"{self.scale.mark}: {title(node)}"

    def config(self, node: Node, results: Results) -> Model:
        """Make the configuration of a node's stage.

        Args:
            node: A node that `is_stage`.
            results: Results of all stages that it needs.
        """
        match node:
            case Pretrain():
                masks = None if node.masks is None else self.address(node.masks, results)
                return self.pretrain_config(node, masks)
            case Localize():
                return self.localize_config(node, results)
            case Linear():
                return self.linear_config(node, results)
            case MaskScore():
                return self.score_config(node, results)
            case FewShot():
                return self.few_shot_config(node, results)
            case ClassDistance():
                return self.class_distance_config(node, results)
            case Detection():
                return self.detection_config(node, results)
            case _:
                raise AssertionError(f"{title(node)} is not a stage")

    def pretrain_config(self, node: Pretrain, masks: str | None) -> PretrainConfig:
        """Return the configuration of a training.

        Args:
            node: The training.
            masks: Address of its masks; None if the recipe needs no masks from another training.
        """
        options = default_names(PretrainConfig)
        recipe = read_recipe(self.recipes / f"{node.recipe}.yaml", options)
        policy: Any = recipe.get("policy", {})
        chosen: dict[str, Any] = {}
        if policy.get("masks") not in (None, GROUND_TRUTH):
            chosen["masks"] = masks
        if node.mix_probability is not None:
            chosen["mix_probability"] = node.mix_probability
        scaled = dict(self.scale.fields(node))
        # The scale changes single fields of an option. Everything else, such as `execution`, it replaces.
        recipe = merged(recipe, {"policy": chosen, "method": scaled.pop("method", {})}, options)
        fields = {**recipe, "data": self.scale.data(node.images), "seed": node.seed, **scaled}
        return PretrainConfig.model_validate(fields)

    def localize_config(self, node: Localize, results: Results) -> LocalizeConfig:
        """Return the configuration of a localization."""
        data = self.scale.data(node.images)
        fields: dict[str, Any] = {"data": data, **node.options.fields()}
        if node.network is not None:
            fields["checkpoint"] = self.address(node.network, results)
        if node.classifier is not None:
            fields["localizer"]["classifier"] = self.address(node.classifier, results)
        if node.negatives is not None:
            fields["localizer"]["negatives"] = images_with(node.negatives, self, node.images)
        fields |= self.scale.fields(node)
        if node.record_iterations:
            fields["execution"] = {**fields.get("execution", {}), "record_iterations": True}
        return LocalizeConfig.model_validate(fields)

    def linear_config(self, node: Linear, results: Results) -> LinearConfig:
        """Return the configuration of a linear evaluation."""
        holdout: dict[str, Any] = {}
        if node.holdout is not None:
            holdout["holdout_size" if isinstance(node.holdout, int) else "holdout_fraction"] = node.holdout
        fields = {
            "checkpoint": self.address(node.network, results),
            "train": self.scale.data(node.train),
            "tests": {name: self.scale.data(images) for name, images in node.tests},
            **(self.scale.fields(node) or holdout),
        }
        return _model("linear").model_validate(fields)

    def score_config(self, node: MaskScore, results: Results) -> LocalizationConfig:
        """Return the configuration of a scoring."""
        fields = {
            "data": self.scale.data(node.images),
            "masks": {FOUND: self.address(node.masks, results)},
            **self.scale.fields(node),
        }
        return _model("localization").model_validate(fields)

    def few_shot_config(self, node: FewShot, results: Results) -> FewShotConfig:
        """Return the configuration of a few-shot evaluation."""
        draws = {"num_shots": node.num_shots, "seeds": tuple(range(node.num_seeds))}
        return _model("few_shot").model_validate({**self._class_pair(node, results), **draws})

    def class_distance_config(self, node: ClassDistance, results: Results) -> ClassDistanceConfig:
        """Return the configuration of a distance between two classes."""
        return _model("class_distance").model_validate(self._class_pair(node, results))

    def _class_pair(self, node: FewShot | ClassDistance, results: Results) -> dict[str, Any]:
        return {
            "checkpoint": self.address(node.network, results),
            "data": self.scale.data(node.images),
            "class_names": tuple(map(self.scale.class_name, node.classes)),
            **self.scale.fields(node),
        }

    def detection_config(self, node: Detection, results: Results) -> DetectionConfig:
        """Return the configuration of a fine-tuned detector, or of a published one."""
        recipe = read_recipe(self.recipes / DETECTION_RECIPE)
        fields: dict[str, Any] = {"test": self.scale.data(node.test)}
        if isinstance(node.network, Published):
            return DetectionConfig.model_validate(
                {**fields, "published": self.scale.file(node.network), "execution": recipe["execution"]}
            )
        fields |= {"checkpoint": self.address(node.network, results), "data": self.scale.data(node.train)}
        return DetectionConfig.model_validate({**recipe, **fields, **self.scale.fields(node)})

    def detection_execution(self) -> DetectionExecution:
        """Return the execution with which detectors are fine-tuned."""
        return DetectionExecution.model_validate(read_recipe(self.recipes / DETECTION_RECIPE)["execution"])

    def address(self, node: Node, results: Results) -> str:
        """Return the address of a node's outcome: a checkpoint, masks or a classifier."""
        match node:
            case Published():
                return self.scale.file(node)
            case Kept():
                # Imported here: otherwise every plan would wait for PyTorch.
                from objectaware.training.loop import KEPT_FOLDER, checkpoint_name

                # The folder's name contains the epoch's number, counted from 0.
                epoch = self.scale.epoch(node.epoch) - 1
                return f"{results[node.training].folder.uri}/train/{KEPT_FOLDER}/{checkpoint_name(epoch)}"
            case Pretrain():
                return str(results[node].values["checkpoint"])
            case Localize():
                return str(results[node].values["masks"])
            case _:
                return str(results[node].values["classifier"])


def _model(kind: str) -> Any:  # noqa: ANN401 - the model of a kind of stage
    """Return the configuration model of a kind of stage. It is imported on demand, since showing a plan needs few."""
    from objectaware.stages.registry import stage_named

    return stage_named(kind).config


def obstacles(workshop: Workshop, nodes: Sequence[Node]) -> dict[Node, str]:
    """Return the reasons why nodes of a plan cannot run, before any of them has run.

    Args:
        workshop: Workshop that would make the stages' configurations.
        nodes: The nodes, each after those that it needs.

    Returns:
        The reason by node, for those that cannot run: their own problem, or that of a node that they need.
    """
    found: dict[Node, str] = {}
    for node in nodes:
        reason = next((found[needed] for needed in needs(node) if needed in found), None)
        reason = reason or workshop.scale.problem(node)
        if reason is not None:
            found[node] = reason
    return found


def images_with(class_name: str, workshop: Workshop, images: Images) -> tuple[str, ...]:
    """Return the paths of images of a part of COCO that show a class: the first ones, at most one group.

    Raises:
        InputError: No image shows the class.
    """
    data = workshop.scale.data(images)
    coco = Dataset(data).instances()
    name = workshop.scale.class_name(class_name)
    shown = [
        image_id
        for index, image_id in enumerate(coco.images.image_ids)
        if any(coco.category_names[one.category_index] == name for one in coco.annotations(index))
    ]
    if not shown:
        raise InputError("class", name, f"is in no picture of {data.root}", "Give a data set that shows it.")
    return tuple(shown[: LocalizeConfig.model_fields["group_size"].default])
