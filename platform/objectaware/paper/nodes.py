"""The stages behind the paper's results, as values that hold the stages that they need.

Two nodes with the same fields are equal, so that a stage that several cells, tables or figures need is planned once. A
node does not say where images are stored or how large a network is. `objectaware.studies.reproduce` turns it into a
stage's configuration, at full scale or as a smoke test.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any, Literal

from objectaware.config import Localizer

ValuePath = tuple[str, ...]
"""Keys from the outside in."""


class Options(dict[str, Any]):
    """Fields of a configuration, nested ones too, as a value that can be compared and hashed. It is never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def options(fields: Mapping[str, object] | None = None, /, **more: object) -> Options:
    """Return fields of a configuration, and further ones, as `Options`."""
    values = {**(fields or {}), **more}
    return Options({name: options(value) if isinstance(value, Mapping) else value for name, value in values.items()})


class ClassName(str):
    """The paper's name of a class."""


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
class ImagesOfClass:
    """Name the images of a part of COCO that show a class.

    Attributes:
        class_name: Name of the class.
        images: The part.
    """

    class_name: ClassName
    images: Images


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
class Planned:
    """Describe a stage that is to be run.

    Attributes:
        kind: Name of the kind (`objectaware.stages.registry`).
        fields: Fields of its configuration. In them, `Images` stand for a data set, `ImagesOfClass` for the paths of
            images, a `ClassName` for the name of a class in the data set, and a node for the address of its outcome.
        description: Its title, in which `{}` stands for the first node that it needs.
        recipe: Name of the file in `jobs/recipes` that holds all other fields, if they are not the defaults.
    """

    kind: str
    fields: Options
    description: str
    recipe: str | None = None


@dataclass(frozen=True)
class Kept:
    """Describe a checkpoint from the middle of a training.

    Attributes:
        training: The training.
        epoch: Number of epochs before the checkpoint.
    """

    training: Planned
    epoch: int


Node = Published | Planned | Kept


def localize(images: Images, network: Node | None, chosen: Mapping[str, Any]) -> Planned:
    """Return the localization of a data set's objects.

    Args:
        images: Images to localize.
        network: Network of the localizer; None for baselines without one.
        chosen: Further fields of `LocalizeConfig`.
    """
    by = "" if network is None else " by {}"
    inputs: dict[str, object] = {"data": images} if network is None else {"data": images, "checkpoint": network}
    description = f"localize {images.name} {images.part}{by} ({', '.join(_described(chosen))})"
    return Planned("localize", options({**inputs, **chosen}), description)


def _described(chosen: Mapping[str, Any]) -> Iterator[str]:
    """Yield all fields in words, sorted by name, with the localizer's name unless it is the default; negatives last."""
    localizer = chosen["localizer"]
    fields = {**chosen, **localizer, "localizer": localizer["name"]}
    for field, value in sorted(fields.items(), key=lambda field: (field[0] == "negatives", field[0])):
        match value:
            case bool():
                yield field if value else f"no {field}"
            case ImagesOfClass():
                yield f"{field} {value.class_name}"
            case str() if field == "localizer" and value != Localizer.default_name:
                yield value
            case int() | float():
                yield f"{field} {value}"


def score(masks: Node, images: Images) -> Planned:
    """Return the scoring of masks against the true ones of the images. Its values are those of the row `found`."""
    # The paper's tables have no baselines with CRF, which would take some 0.2 s per baseline and picture.
    chosen = options(data=images, masks={"found": masks}, picture_baselines=False)
    return Planned("localization", chosen, "score {}")


def linear(network: Node, train: Images, tests: Mapping[str, Images], **holdout: float) -> Planned:
    """Return a linear evaluation.

    Args:
        network: Network that computes the features.
        train: Images that the classifier is fitted to.
        tests: Images of the test sets, by name.
        holdout: `holdout_size` or `holdout_fraction`, if it is not the default.
    """
    sets = dict.fromkeys(images.name for images in tests.values())
    fields = options(checkpoint=network, train=train, tests=tests, **holdout)
    return Planned("linear", fields, f"linear {{}} on {', '.join(sets)}")


def _values(node: object) -> Iterator[object]:
    """Yield the values that a node consists of: those of its fields, also of nested ones."""
    match node:
        case Planned():
            yield from _values(node.fields)
        case Kept():
            yield node.training
        case Published():
            yield node.images
        case Options():
            for value in node.values():
                yield from _values(value) if isinstance(value, Options) else (value,)


def needs(node: Node) -> tuple[Node, ...]:
    """Return the nodes that a node directly needs."""
    return tuple(value for value in _values(node) if isinstance(value, Node))


def stages_below(node: Node) -> tuple[Planned, ...]:
    """Return the stages that a node needs directly; of a checkpoint in the middle of a training, the training."""
    below = (needed.training if isinstance(needed, Kept) else needed for needed in needs(node))
    return tuple(one for one in below if isinstance(one, Planned))


def images_of(node: Node) -> tuple[Images, ...]:
    """Return the parts of data sets that a node itself reads."""
    return tuple(dict.fromkeys(value for value in _values(node) if isinstance(value, Images)))


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


def replaced(value: Any, change: Callable[[Published | Planned], Node]) -> Any:  # noqa: ANN401 - or a field's value
    """Return a node after a change to it and to all nodes that it needs, each after those that it needs itself.

    Args:
        value: The node.
        change: Returns what takes the place of a stage, or of published networks or masks.
    """
    match value:
        case Published():
            return change(value)
        case Kept():
            return replace(value, training=replaced(value.training, change))
        case Planned():
            return change(replace(value, fields=replaced(value.fields, change)))
        case Options():
            return Options({name: replaced(inner, change) for name, inner in value.items()})
    return value


def title(node: Node) -> str:
    """Return the title of a node in lists of stages."""
    match node:
        case Published():
            return f"{node.kind} of others: {node.name}"
        case Kept():
            return f"{title(node.training)} epoch {node.epoch}"
        case Planned():
            return node.description.format(*map(_short, needs(node)))


def _short(node: Node) -> str:
    if isinstance(node, Published) and node.kind == "network":
        return node.name
    return title(node).removeprefix("pretrain ")


@dataclass(frozen=True)
class Value:
    """Name a number that a node computes, in the table's unit.

    Attributes:
        node: The stage.
        paths: Paths to the number in the stage's values, as keys from the outside in. With several paths it is the mean
            of their numbers.
        weights: Paths to the weights of these numbers in the mean; empty if all weigh the same.
    """

    node: Planned
    paths: tuple[ValuePath, ...]
    weights: tuple[ValuePath, ...] = ()

    def read(self, values: Mapping[str, Any]) -> float:
        """Return the number from the stage's values.

        Raises:
            KeyError: The stage has not computed it.
        """
        found: Any = values
        numbers = [reduce(getitem, path, found) for path in self.paths]
        return statistics.fmean(numbers, [reduce(getitem, path, found) for path in self.weights] or None)
