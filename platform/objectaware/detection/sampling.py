"""Which anchors and regions of an image the losses are taken of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class KeyedSampler:
    """Draws positives and negatives of each image by a key of the image.

    torchvision's sampler draws from the process's generator, so that a result would depend on how many images the
    worker has seen. It is called in that one's place (`torchvision.models.detection._utils`).

    Args:
        num_samples: Drawn an image, at most.
        positive_fraction: Share of positives, at most; negatives fill the rest.

    Attributes:
        keys: Seed of each image of the next batch.

    Source:
        detectron2, modeling/sampling.py.
    """

    def __init__(self, num_samples: int, positive_fraction: float) -> None:
        self.keys: Sequence[int] = ()
        self._num_samples = num_samples
        self._num_positive = int(num_samples * positive_fraction)

    def __call__(self, labels: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Draws.

        Args:
            labels: Of each image, (n,): from 1 on positive, 0 negative, below 0 neither.

        Returns:
            For each image what was drawn of the positives and of the negatives, uint8 (n,) each.
        """
        positives, negatives = [], []
        for values, key in zip(labels, self.keys, strict=True):
            generator = torch.Generator().manual_seed(key)
            positive = _draw(values >= 1, self._num_positive, generator)
            negative = _draw(values == 0, self._num_samples - int(positive.sum()), generator)
            positives.append(positive)
            negatives.append(negative)
        return positives, negatives


def _draw(candidates: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Up to `number` of the candidates (n,), drawn on the CPU so that every device draws the same."""
    places = torch.where(candidates)[0]
    drawn = torch.randperm(len(places), generator=generator)[:number].to(places.device)
    chosen = torch.zeros_like(candidates, dtype=torch.uint8)
    chosen[places[drawn]] = 1
    return chosen
