"""What is watched: metrics of each step, k-NN accuracy between epochs, and trainings that failed silently."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.data.images import Images
from objectaware.errors import ExplainedError
from objectaware.evaluate.features import alignment, compute_features, feature_std, knn_accuracy, uniformity
from objectaware.methods.backbones import Backbone
from objectaware.methods.gather import gather_batch, mean_over_workers
from objectaware.methods.method import Method

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
    """Check that an epoch's embeddings differ.

    Args:
        epoch: Epoch, from 0.
        metrics: Metrics of the epoch; `feature_std` is checked, if the method has it.

    Raises:
        TrainingCollapsedError: The embeddings are nearly the same.
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


def observe(method: Method) -> dict[str, float]:
    """Compute metrics of a method's last forward pass, over the samples of all workers.

    Args:
        method: After a forward pass; called on every worker.

    Returns:
        `alignment`, `uniformity` and `feature_std` of the embeddings where the method has some, the latter two of
        the first view; `top1_accuracy` in per cent where it classifies.
    """
    if method.embeddings is not None:
        first, second = gather_batch(torch.stack(method.embeddings, dim=1)).unbind(dim=1)
        return {
            "alignment": alignment(first, second),
            "uniformity": uniformity(first),
            "feature_std": feature_std(first),
        }
    return {} if method.top1_accuracy is None else {"top1_accuracy": float(mean_over_workers(method.top1_accuracy))}


class KnnWatch:
    """Measure k-NN accuracy of the online backbone within the training images: a tenth of them classified by the rest.

    Args:
        images: The training images.
        labels: Their classes, (N,).
        size: Side in pixels that they are resized to.
        chosen: Indices of the images to use.
    """

    def __init__(self, images: Images, labels: NDArray[np.int64], size: int, chosen: NDArray[np.int64]) -> None:
        self._images = images
        self._size = size
        self._chosen = chosen
        self._labels = torch.from_numpy(labels[chosen])

    def __call__(self, backbone: Backbone) -> Mapping[str, float]:
        """Return it in per cent, as `knn_accuracy`, with the number of classified images as `knn_num_images`.

        Images of classes that the rest does not show are left out. If fewer than two classes remain, both metrics are
        absent.
        """
        device = next(backbone.parameters()).device
        features: Tensor = compute_features(
            backbone, self._images, self._chosen.tolist(), size=self._size, center_crop=False, device=device
        ).values
        num_queries = max(len(features) // 10, 1)
        bank_labels, labels = self._labels[num_queries:], self._labels[:num_queries]
        is_known = torch.isin(labels, bank_labels)  # no neighbour could have the class of the others
        if not is_known.any() or bool((bank_labels == bank_labels[0]).all()):
            return {}
        accuracy = knn_accuracy(features[num_queries:], bank_labels, features[:num_queries][is_known], labels[is_known])
        return {"knn_accuracy": accuracy, "knn_num_images": float(is_known.sum())}
