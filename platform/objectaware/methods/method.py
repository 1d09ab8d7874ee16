"""What the training loop asks of a method."""

from __future__ import annotations

from torch import Tensor, nn

from objectaware.methods.backbones import Backbone


class Method(nn.Module):
    """Base of what can be trained: a module from a batch's views to a loss.

    Attributes:
        backbone: Images (N, 3, H, W) to pooled features (N, C); what is kept of the training.
        momentum: m of the moving average of a target network, which the loop sets before each forward pass; None
            for a method without one.
        embeddings: Of the last forward pass, both views' embeddings of unit length, (n, D) each, of this worker's
            samples, without gradient; None for a method without any.
        top1_accuracy: Per cent of the last forward pass's images of this worker that were classified rightly; None
            for a method without classifier.
        keeps_batch_norm_local: Whether batch statistics are those of a worker's own samples on purpose.
    """

    backbone: Backbone
    momentum: float | None = None
    embeddings: tuple[Tensor, Tensor] | None = None
    top1_accuracy: Tensor | None = None
    keeps_batch_norm_local: bool = False

    @property
    def chance_loss(self) -> float:
        """Loss of a network that has learnt nothing."""
        raise NotImplementedError
