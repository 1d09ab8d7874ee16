"""What is watched of each step beside the loss."""

from __future__ import annotations

import torch

from objectaware.evaluate.representation import alignment, feature_std, uniformity
from objectaware.methods.gather import gather_batch, mean_over_workers
from objectaware.methods.method import Method


def observe(method: Method) -> dict[str, float]:
    """Metrics of a method's last forward pass, over the samples of all workers.

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
