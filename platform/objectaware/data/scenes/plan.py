"""What a picture shows, drawn before any pixel: objects, background, donors of the mixed variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from objectaware.data.scenes.shapes import CLASS_NAMES

NUM_CLASSES = len(CLASS_NAMES)
SceneVariant = Literal["single-object", "multi-object"]
Split = Literal["train", "val"]
SPLITS: tuple[Split, ...] = ("train", "val")
StreamName = Literal["plan", "objects", "background", "mixed_same", "mixed_rand", "mixed_next"]
_STREAMS: tuple[StreamName, ...] = ("plan", "objects", "background", "mixed_same", "mixed_rand", "mixed_next")
# Class c is usually seen with class PARTNERS[c], and so each class has two usual companions.
PARTNERS = tuple((index + 1) % NUM_CLASSES for index in range(NUM_CLASSES))


@dataclass(frozen=True)
class ScenePlan:
    """What one picture shows.

    Attributes:
        classes: Classes of its objects, 0 to 8; the first is the picture's own.
        family: Family of its background, 0 to 8.
        same_family: Family of the background of another picture of the same class.
        random_class: A class drawn uniformly from all nine.
        random_family: Family of the background of a picture of that class.
        next_family: Family of the background of a picture of the next class.
    """

    classes: tuple[int, ...]
    family: int
    same_family: int
    random_class: int
    random_family: int
    next_family: int


def random_stream(seed: int, split: Split, index: int, stream: StreamName) -> np.random.Generator:
    """The random stream for one part of one picture; streams of other arguments are independent of it.

    Args:
        seed: Seed of the data set, at least 0.
        split: The picture's split.
        index: The picture's number in its split.
        stream: The part of the picture that is drawn.
    """
    key = [seed, SPLITS.index(split), index, _STREAMS.index(stream)]
    return np.random.default_rng(np.random.SeedSequence(key))


def _draw_companion(usual: int, correlation: float, generator: np.random.Generator) -> int:
    """`usual` with probability `correlation`, else uniformly one of the other eight."""
    if generator.random() < correlation:
        return usual
    return (usual + int(generator.integers(1, NUM_CLASSES))) % NUM_CLASSES


def draw_plan(seed: int, split: Split, index: int, *, variant: SceneVariant, correlation: float) -> ScenePlan:
    """Draws what picture `index` of a split shows.

    Classes take turns, so that they are balanced. The donors of the mixed variants (Xiao et al. 2021, "Noise
    or Signal", section 3) are backgrounds drawn anew by the law of their class, not those of pictures in the
    set: so a picture depends on its own number alone, and not on how many there are.

    Args:
        seed: Seed of the data set, at least 0.
        split: The picture's split.
        index: The picture's number in its split.
        variant: One object, or two to three of classes that go together.
        correlation: Probability that a class goes with its own family and its own partner, in [0, 1].

    Returns:
        The picture's plan.
    """
    generator = random_stream(seed, split, index, "plan")
    own_class = index % NUM_CLASSES
    family = _draw_companion(own_class, correlation, generator)
    random_class = int(generator.integers(NUM_CLASSES))
    same_family = _draw_companion(own_class, correlation, generator)
    random_family = _draw_companion(random_class, correlation, generator)
    next_family = _draw_companion((own_class + 1) % NUM_CLASSES, correlation, generator)
    classes: tuple[int, ...] = (own_class,)
    if variant == "multi-object":
        partner = _draw_companion(PARTNERS[own_class], correlation, generator)
        third = (own_class, partner)[int(generator.integers(2))]
        classes = (own_class, partner, third)[: int(generator.integers(2, 4))]
    return ScenePlan(classes, family, same_family, random_class, random_family, next_family)
