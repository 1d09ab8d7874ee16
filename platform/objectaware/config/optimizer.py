"""The option `optimizer` of a pretraining. Each optimizer is one file in `training/optimizers`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from objectaware.config.variants import Variant

LearningRate = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


class OptimizerConfig(Variant):
    """Base of all optimizers' configuration. Each optimizer has default learning rates of its own.

    Attributes:
        base_learning_rate: Learning rate at a batch size of 256, scaled linearly with the batch size.
        final_learning_rate: Learning rate at the end of the cosine; it is not scaled.
        weight_decay: Weight decay.
    """

    package: ClassVar[str] = "objectaware.training.optimizers"
    default_name: ClassVar[str] = "sgd"
    former_names: ClassVar[Mapping[str, str]] = {"sgd_momentum": "momentum"}

    base_learning_rate: LearningRate
    final_learning_rate: NonNegative
    weight_decay: NonNegative

    def build(self, groups: Iterable[Any]) -> Any:  # noqa: ANN401 - torch and methods are above configuration
        """Build the `torch.optim.Optimizer`. The loop sets the learning rate before each step.

        Args:
            groups: The `objectaware.methods.method.ParameterGroup`s of a method.
        """
        raise NotImplementedError
