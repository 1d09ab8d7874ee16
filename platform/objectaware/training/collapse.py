"""Trainings that have failed without an error: the loss is no number, or all embeddings are the same."""

from __future__ import annotations

from collections.abc import Mapping

from objectaware.errors import ExplainedError

MIN_FEATURE_STD = 0.01
"""Embeddings that spread less than this share of an even spread, on average over an epoch, have collapsed.

An untrained network with batch norm is far above it (a small MoCo: 0.3). A collapse goes to 0, or to what rounding
to bfloat16 leaves of it (2⁻⁹ at most).
"""


class TrainingDivergedError(ExplainedError):
    """The loss is no longer a number."""


class TrainingCollapsedError(ExplainedError):
    """All images have the same embedding."""


def check_collapse(epoch: int, metrics: Mapping[str, float]) -> None:
    """Checks that an epoch's embeddings differ.

    Args:
        epoch: Epoch, from 0.
        metrics: Of the epoch; `feature_std` is looked at, where a method has it.

    Raises:
        TrainingCollapsedError: They do not.
    """
    spread = metrics.get("feature_std")
    if spread is not None and spread < MIN_FEATURE_STD:
        raise TrainingCollapsedError(
            f"training has collapsed: in epoch {epoch + 1} all images had nearly the same embedding (feature_std = "
            f"{spread:.4f}; 1 is an even spread, below {MIN_FEATURE_STD} there is nothing left to learn from). Lower "
            "optimizer.base_learning_rate or optimizer.weight_decay, set num_warmup_epochs, or raise method.momentum; "
            "and look whether the images differ at all. Then start over with --fresh: the run's checkpoints may have "
            "gone bad before."
        )
