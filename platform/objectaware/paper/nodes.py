"""What the paper's results are computed from: stages as values that hold what they need.

Two nodes that say the same are equal, so that what several cells, tables or figures need is planned once. A node says
nothing of where images lie or how large a network is: `objectaware.studies.reproduce` makes a stage's configuration of
it, at full scale or as a smoke test.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, cast

from objectaware.config import Localizer

ValuePath = tuple[str, ...]
"""Keys from the outside in."""


class Options(tuple[tuple[str, object], ...]):
    """Fields of a configuration as a value that can be compared and hashed: sorted by name, those of a field below."""

    def fields(self) -> dict[str, Any]:
        """Return the fields as a recipe has them."""
        return {name: value.fields() if isinstance(value, Options) else value for name, value in self}


def options(fields: Mapping[str, object] | None = None, /, **more: object) -> Options:
    """Take fields of a configuration, and further ones, as `Options`."""
    values = {**(fields or {}), **more}
    frozen = {name: options(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return Options(sorted(frozen.items()))


_NO_OPTIONS = Options()


@dataclass(frozen=True)
class Images:
    """A part of a published data set.

    Attributes:
        name: Name of the set (`objectaware.data.published`).
        part: Its part, such as `train`.
        subset: List of the images that count, a path under the data folder.
    """

    name: str
    part: str
    subset: str | None = None


@dataclass(frozen=True)
class Published:
    """A network, or the masks, of others: no stage, but a file or folder that the user has.

    Attributes:
        name: What the paper calls it.
        kind: `network`, or `masks` of the images.
        images: What the masks are of.
    """

    name: str
    kind: Literal["network", "masks"] = "network"
    images: Images | None = None


@dataclass(frozen=True)
class Pretrain:
    """A training.

    Attributes:
        recipe: Name of a file in `jobs/recipes`.
        images: What it learns from.
        seed: Its seed.
        masks: Where its masks or boxes come from; None where it takes none, or the data set's own.
        mix_probability: p_mix; None where its policy has none.
    """

    kind: ClassVar[str] = "pretrain"

    recipe: str
    images: Images
    seed: int = 0
    masks: Localize | None = None
    mix_probability: float | None = None


@dataclass(frozen=True)
class Kept:
    """The checkpoint of a training after an epoch in the middle of it.

    Attributes:
        training: The training.
        epoch: After so many epochs.
    """

    training: Pretrain
    epoch: int


Network = Pretrain | Kept | Published


@dataclass(frozen=True)
class Linear:
    """Linear evaluation.

    Attributes:
        network: Whose features.
        train: What the classifier is fitted to.
        tests: What it is measured on, by name.
        holdout: Number (int) or share (float) of the training images that choose the penalty; None for the default.
    """

    kind: ClassVar[str] = "linear"

    network: Network
    train: Images
    tests: tuple[tuple[str, Images], ...]
    holdout: float | None = None


@dataclass(frozen=True)
class Localize:
    """Localization of a data set's objects.

    Attributes:
        images: The images.
        network: What looks at them; None for baselines that need none.
        options: Further fields of `LocalizeConfig`.
        classifier: Of a classifier CAM: a linear evaluation, or the network that was trained with it.
        negatives: Name of a class; its images are the only negatives.
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
    """Masks against true ones; its values are those of the row `found`.

    Attributes:
        masks: What found the masks.
        images: Whose true masks.
    """

    kind: ClassVar[str] = "localization"

    masks: Localize | Published
    images: Images


@dataclass(frozen=True)
class FewShot:
    """Error of a classifier that has seen a few images of two classes.

    Attributes:
        network: Whose features.
        images: Where both classes are.
        classes: Their names.
        num_shots: Images of each class.
        num_seeds: Draws that are averaged.
    """

    kind: ClassVar[str] = "few_shot"

    network: Network
    images: Images
    classes: tuple[str, str]
    num_shots: int = 1
    num_seeds: int = 5


@dataclass(frozen=True)
class ClassDistance:
    """Distance between the embeddings of two classes.

    Attributes:
        network: Whose embeddings.
        images: Where both classes are.
        classes: Their names.
    """

    kind: ClassVar[str] = "class_distance"

    network: Network
    images: Images
    classes: tuple[str, str]


@dataclass(frozen=True)
class Detection:
    """A Mask R-CNN fine-tuned from a network; a published detector is measured as it is.

    Attributes:
        network: The backbone's training, or a published detector.
        train: Annotated images.
        test: What average precision is measured on.
    """

    kind: ClassVar[str] = "detection"

    network: Network
    train: Images
    test: Images


Node = Published | Pretrain | Kept | Linear | Localize | MaskScore | FewShot | ClassDistance | Detection
_NODES = (Published, Pretrain, Kept, Linear, Localize, MaskScore, FewShot, ClassDistance, Detection)
AnyNode = TypeVar("AnyNode", bound=Node)


def needs(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is computed from, directly."""
    values = (getattr(node, field.name) for field in fields(node))
    return tuple(value for value in values if isinstance(value, _NODES))


def is_stage(node: Node) -> bool:
    """Whether a node is computed: published files and checkpoints from the middle of a training are not."""
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
    """The parts of data sets that a node itself reads."""
    found: list[Images] = []
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Images):
            found.append(value)
        elif field.name == "tests":
            found += [images for _, images in value]
    return tuple(dict.fromkeys(found))


def ordered(nodes: Iterable[Node]) -> list[Node]:
    """All nodes that the given ones take, themselves included: each once, after what it needs."""
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
    """A node with everything below it, and then itself, put through a function.

    Args:
        node: The node.
        change: Gives a node's replacement, or the node itself.
    """
    below = {
        field.name: rewrite(value, change)
        for field in fields(node)
        if isinstance(value := getattr(node, field.name), _NODES)
    }
    rebuilt = replace(cast(Any, node), **below) if below else node
    # A stand-in is of a kind that its place takes.
    return cast(AnyNode, change(rebuilt))


def title(node: Node) -> str:
    """What a node is called where stages are listed."""
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
            return f"localize {_where(node.images)}{by} ({described}{only})"
        case Linear():
            return f"linear {_short(node.network)} on {', '.join(_sets(node))}"
        case MaskScore():
            return f"score {title(node.masks)}"
        case FewShot():
            return f"few-shot {' and '.join(node.classes)} {_short(node.network)}"
        case ClassDistance():
            return f"distance of {' and '.join(node.classes)} {_short(node.network)}"
        case Detection():
            return f"detection {_short(node.network)}"


def _described(chosen: Options) -> Iterator[str]:
    """Fields in words, by name; those of the localizer beside the others, and its name unless it is the paper's."""
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


def _where(images: Images) -> str:
    return f"{images.name} {images.part}"


def _sets(node: Linear) -> list[str]:
    return list(dict.fromkeys(images.name for _, images in node.tests))


@dataclass(frozen=True)
class Value:
    """A number that a node computes, in the table's unit.

    Attributes:
        node: The stage.
        paths: Where the number stands in the stage's values: keys from the outside in. Of several numbers it is the
            mean.
    """

    node: Node
    paths: tuple[ValuePath, ...]

    def read(self, values: Mapping[str, Any]) -> float:
        """Takes the number out of the stage's values.

        Raises:
            KeyError: The stage has not computed it.
        """
        return statistics.fmean(_at(values, path) for path in self.paths)


def _at(values: Mapping[str, Any], path: ValuePath) -> float:
    found: Any = values
    for key in path:
        found = found[key]
    return float(found)
