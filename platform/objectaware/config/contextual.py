"""Configuration of the measures of contextual bias: how well two classes that co-occur are told apart."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from objectaware.config.evaluate import FeatureConfig
from objectaware.data.dataset import DataConfig
from objectaware.model import Positive

ClassPair = tuple[str, str]


class ContextualConfig(FeatureConfig):
    """Two classes of a data set, seen by a network.

    Attributes:
        data: Images of both. With the layout `coco-crop` each object by itself; with `coco` whole pictures that show
            one of the two classes and not the other; with any other labelled layout, images by their label.
        class_names: The two; the paper's are giraffe and zebra.
    """

    data: DataConfig
    class_names: ClassPair = ("giraffe", "zebra")

    @model_validator(mode="after")
    def _two_classes(self) -> Self:
        if self.class_names[0] == self.class_names[1]:
            raise ValueError(f"class_names = {self.class_names[0]} twice: nothing could be told apart")
        return self


class FewShotConfig(ContextualConfig):
    """Error of a classifier that was shown a few images of each class (paper, table multi-bias-epoch).

    Attributes:
        num_shots: Images of each class that the classifier is fitted to; all others are classified.
        seeds: One draw of the shots each.
    """

    num_shots: Positive = 1
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0, 1, 2, 3, 4)


class ClassDistanceConfig(ContextualConfig):
    """Distance between the embeddings of two classes (paper, table and figure multi-bias).

    Attributes:
        num_points: Points of each class in the t-SNE picture, at most; a seeded draw where there are more.
        perplexity: Of t-SNE; van der Maaten and Hinton's usual value, and scikit-learn's.
        seed: Decides the draw and t-SNE.
    """

    num_points: Positive = 500
    perplexity: Annotated[float, Field(gt=0)] = 30.0
    seed: Annotated[int, Field(ge=0)] = 0
