"""The stages behind the paper's results, as values that hold the stages that they need.

Two nodes with the same fields are equal, so that a stage that several cells, tables or figures need is planned once. A
node does not say where images are stored or how large a network is. `objectaware.studies.reproduce` turns it into a
stage's configuration, at full scale or as a smoke test.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args

from objectaware.config import Localizer

ValuePath = tuple[str, ...]
"""Keys from the outside in."""


class Options(tuple[tuple[str, object], ...]):
    """Hold fields of a configuration, nested ones too, sorted by name, as a value that can be compared and hashed."""

    def fields(self) -> dict[str, Any]:
        """Return the fields as a recipe has them."""
        return {name: value.fields() if isinstance(value, Options) else value for name, value in self}


def options(fields: Mapping[str, object] | None = None, /, **more: object) -> Options:
    """Return fields of a configuration, and further ones, as `Options`."""
    values = {**(fields or {}), **more}
    frozen = {name: options(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return Options(sorted(frozen.items()))


_NO_OPTIONS = Options()


@dataclass(frozen=True)
class Images:
    """Name a part of a published data set.

    Attributes:
        name: Name of the set (`objectaware.data.published`).
        part: Name of the part, such as `train`.
        subset: List of the images that are used, a path under the data folder.
    """

    name: str
    part: str
    subset: str | None = None


@dataclass(frozen=True)
class Published:
    """Name a published network or masks: not a stage, but a file or folder of the user's.

    Attributes:
        name: The paper's name for it.
        kind: `network` or `masks`.
        images: Images of the masks.
    """

    name: str
    kind: Literal["network", "masks"] = "network"
    images: Images | None = None


@dataclass(frozen=True)
class Pretrain:
    """Describe a training.

    Attributes:
        recipe: Name of a file in `jobs/recipes`.
        images: Training images.
        seed: Seed.
        masks: Source of its masks or boxes; None if it takes none, or the data set's own.
        mix_probability: p_mix; None if its policy has none.
    """

    kind: ClassVar[str] = "pretrain"

    recipe: str
    images: Images
    seed: int = 0
    masks: Localize | None = None
    mix_probability: float | None = None


@dataclass(frozen=True)
class Kept:
    """Describe a checkpoint from the middle of a training.

    Attributes:
        training: The training.
        epoch: Number of epochs before the checkpoint.
    """

    training: Pretrain
    epoch: int


Network = Pretrain | Kept | Published


@dataclass(frozen=True)
class Linear:
    """Describe a linear evaluation.

    Attributes:
        network: Network that computes the features.
        train: Images that the classifier is fitted to.
        tests: Names and images of the test sets.
        holdout: Number (int) or share (float) of the training images that choose the penalty; None for the default.
    """

    kind: ClassVar[str] = "linear"

    network: Network
    train: Images
    tests: tuple[tuple[str, Images], ...]
    holdout: float | None = None


@dataclass(frozen=True)
class Localize:
    """Describe a localization of a data set's objects.

    Attributes:
        images: Images to localize.
        network: Network of the localizer; None for baselines without one.
        options: Further fields of `LocalizeConfig`.
        classifier: Classifier of a classifier CAM: a linear evaluation, or the network that was trained with it.
        negatives: Name of the class whose images are the only negatives.
        record_iterations: Keep the CAM of each iteration of some images.
    """

    kind: ClassVar[str] = "localize"

    images: Images
    network: Network | None
    options: Options = _NO_OPTIONS
    classifier: Linear | Network | None = None
    negatives: str | None = None
    record_iterations: bool = False


@dataclass(frozen=True)
class MaskScore:
    """Describe the scoring of masks. Its values are those of the row `found`.

    Attributes:
        masks: Source of the masks.
        images: Images with the true masks.
    """

    kind: ClassVar[str] = "localization"

    masks: Localize | Published
    images: Images


@dataclass(frozen=True)
class FewShot:
    """Describe the error of a classifier that was fitted to a few images of two classes.

    Attributes:
        network: Network that computes the features.
        images: Images of both classes.
        classes: Names of the classes.
        num_shots: Images per class.
        num_seeds: Number of draws in the mean.
    """

    kind: ClassVar[str] = "few_shot"

    network: Network
    images: Images
    classes: tuple[str, str]
    num_shots: int = 1
    num_seeds: int = 5


@dataclass(frozen=True)
class ClassDistance:
    """Describe the distance between the embeddings of two classes.

    Attributes:
        network: Network that computes the embeddings.
        images: Images of both classes.
        classes: Names of the classes.
    """

    kind: ClassVar[str] = "class_distance"

    network: Network
    images: Images
    classes: tuple[str, str]


@dataclass(frozen=True)
class Detection:
    """Describe a Mask R-CNN fine-tuned from a network; a published detector is measured without fine-tuning.

    Attributes:
        network: Training of the backbone, or a published detector.
        train: Annotated images.
        test: Images for the average precision.
    """

    kind: ClassVar[str] = "detection"

    network: Network
    train: Images
    test: Images


Node = Published | Pretrain | Kept | Linear | Localize | MaskScore | FewShot | ClassDistance | Detection
_NODES = get_args(Node)
AnyNode = TypeVar("AnyNode", bound=Node)


def needs(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node directly needs."""
    values = (getattr(node, field.name) for field in fields(node))
    return tuple(value for value in values if isinstance(value, _NODES))


def is_stage(node: Node) -> bool:
    """Return whether a node is a stage; published files and checkpoints from inside a training are not."""
    return not isinstance(node, Published | Kept)


def stage_kind(node: Node) -> str:
    """Return the kind of stage that computes a node which `is_stage`."""
    assert not isinstance(node, Published | Kept), f"{title(node)} is not a stage"
    return node.kind


def stages_below(node: Node) -> tuple[Node, ...]:
    """Return the stages that a node needs directly; of a checkpoint in the middle of a training, the training."""
    below = (inner for needed in needs(node) for inner in ((needed,) if is_stage(needed) else needs(needed)))
    return tuple(one for one in below if is_stage(one))


def images_of(node: Node) -> tuple[Images, ...]:
    """Return the parts of data sets that a node itself reads."""
    found: list[Images] = []
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Images):
            found.append(value)
        elif field.name == "tests":
            found += [images for _, images in value]
    return tuple(dict.fromkeys(found))


def ordered(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes and all nodes that they need, each once and after the nodes that it needs."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in found:
            for needed in needs(node):
                visit(needed)
            found[node] = None

    for node in nodes:
        visit(node)
    return list(found)


def rewrite(node: AnyNode, change: Callable[[Node], Node]) -> AnyNode:
    """Rewrite all nodes below a node, then the node itself.

    Args:
        node: The node.
        change: Returns a node's replacement, or the node itself.
    """
    below = {
        field.name: rewrite(value, change)
        for field in fields(node)
        if isinstance(value := getattr(node, field.name), _NODES)
    }
    rebuilt = replace(cast(Any, node), **below) if below else node
    # A replacement has a type that fits the field.
    return cast(AnyNode, change(rebuilt))


def title(node: Node) -> str:
    """Return the title of a node in lists of stages."""
    match node:
        case Published():
            return f"{node.kind} of others: {node.name}"
        case Pretrain():
            probability = "" if node.mix_probability is None else f" p {node.mix_probability:g}"
            return f"pretrain {node.recipe}{probability} seed {node.seed}"
        case Kept():
            return f"{title(node.training)} epoch {node.epoch}"
        case Localize():
            described = ", ".join(_described(node.options))
            by = "" if node.network is None else f" by {_short(node.network)}"
            only = "" if node.negatives is None else f", negatives {node.negatives}"
            return f"localize {node.images.name} {node.images.part}{by} ({described}{only})"
        case Linear():
            sets = dict.fromkeys(images.name for _, images in node.tests)
            return f"linear {_short(node.network)} on {', '.join(sets)}"
        case MaskScore():
            return f"score {title(node.masks)}"
        case FewShot():
            return f"few-shot {' and '.join(node.classes)} {_short(node.network)}"
        case ClassDistance():
            return f"distance of {' and '.join(node.classes)} {_short(node.network)}"
        case Detection():
            return f"detection {_short(node.network)}"


def _described(chosen: Options) -> Iterator[str]:
    """Yield all fields in words, sorted by name, with the localizer's name unless it is the default."""
    fields = chosen.fields()
    fields |= fields.pop("localizer", {})
    name = fields.pop("name", Localizer.default_name)
    if name != Localizer.default_name:
        fields["localizer"] = name
    for field, value in sorted(fields.items()):
        if isinstance(value, bool):
            yield field if value else f"no {field}"
        else:
            yield str(value) if field == "localizer" else f"{field} {value}"


def _short(node: Node) -> str:
    return node.name if isinstance(node, Published) else title(node).removeprefix("pretrain ")


@dataclass(frozen=True)
class Value:
    """Name a number that a node computes, in the table's unit.

    Attributes:
        node: The stage.
        paths: Paths to the number in the stage's values, as keys from the outside in. With several paths it is the mean
            of their numbers.
    """

    node: Node
    paths: tuple[ValuePath, ...]

    def read(self, values: Mapping[str, Any]) -> float:
        """Return the number from the stage's values.

        Raises:
            KeyError: The stage has not computed it.
        """
        return statistics.fmean(_at(values, path) for path in self.paths)


def _at(values: Mapping[str, Any], path: ValuePath) -> float:
    found: Any = values
    for key in path:
        found = found[key]
    return float(found)
