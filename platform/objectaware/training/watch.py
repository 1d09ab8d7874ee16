"""What is watched between epochs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from objectaware.data.images import Images
from objectaware.evaluate.embeddings import knn_accuracy
from objectaware.evaluate.features import compute_features
from objectaware.methods.backbones import Backbone


class KnnWatch:
    """k-NN accuracy of the online backbone within the training images: a tenth of them classified by the rest.

    Args:
        images: The training images.
        labels: Their classes, (N,).
        size: Side in pixels that they are resized to.
        chosen: Indices of those that are looked at.
    """

    def __init__(self, images: Images, labels: NDArray[np.int64], size: int, chosen: NDArray[np.int64]) -> None:
        self._images = images
        self._size = size
        self._chosen = chosen
        self._labels = torch.from_numpy(labels[chosen])

    def __call__(self, backbone: Backbone) -> Mapping[str, float]:
        """Measures it in per cent, as `knn_accuracy`, with the number of images that it is over as `knn_num_images`.

        Images of classes that the rest does not show are left out. Where that leaves nothing to tell apart, both are
        absent.
        """
        device = next(backbone.parameters()).device
        features: Tensor = compute_features(
            backbone, self._images, self._chosen.tolist(), size=self._size, center_crop=False, device=device
        ).values
        num_queries = max(len(features) // 10, 1)
        bank_labels, labels = self._labels[num_queries:], self._labels[:num_queries]
        is_known = torch.isin(labels, bank_labels)  # of the others no neighbour could tell the class
        if not is_known.any() or bool((bank_labels == bank_labels[0]).all()):
            return {}
        accuracy = knn_accuracy(features[num_queries:], bank_labels, features[:num_queries][is_known], labels[is_known])
        return {"knn_accuracy": accuracy, "knn_num_images": float(is_known.sum())}
