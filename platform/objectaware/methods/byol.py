"""BYOL: contrastive learning from positives alone, with a predictor and a slowly moving target network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from objectaware.config.variants import MethodConfig
from objectaware.methods.backbones import build_backbone
from objectaware.methods.method import Mixing, MomentumMethod, MomentumSchedule, cosines, normalised, projection_head
from objectaware.model import Fraction


class BYOLConfig(MethodConfig):
    """BYOL (Grill et al. 2020): predicts the projection of a slowly moving network; no negatives.

    Attributes:
        momentum: m of the target network's moving average.
        momentum_schedule: `constant`, as in the paper's code, or `cosine` up to 1 at the end, as in BYOL's paper.
    """

    title: ClassVar = "BYOL"
    takes_mixtures: ClassVar = True
    mix_probability: ClassVar = 0.3  # paper, section 3.3

    name: Literal["byol"] = "byol"
    momentum: Fraction = 0.996
    momentum_schedule: MomentumSchedule = "constant"

    def build(self, backbone: str, *, num_classes: int) -> BYOL:
        """Build the method; it does not use classes."""
        return BYOL(backbone, **self.model_dump(exclude={"name"}))


class BYOL(MomentumMethod):
    """BYOL (Grill et al. 2020) as in the paper's code.

    Args:
        backbone: Name of the backbone.
        projection_size: Width of projection and prediction.
        hidden_size: Width inside projector and predictor.
        momentum: m of the target's moving average.
        momentum_schedule: Schedule of m.

    Shape:
        Two views (N, 3, H, W) each to the loss, a scalar in [−4, 4]; −4 if every prediction equals its target.

    Source:
        official-implementation §2 (the predictor is fed the normalised projection; loss −2(cos + cos)).
    """

    def __init__(
        self,
        backbone: str,
        *,
        projection_size: int = 256,
        hidden_size: int = 4096,
        momentum: float = 0.996,
        momentum_schedule: MomentumSchedule = "constant",
    ) -> None:
        super().__init__(momentum, momentum_schedule)
        self.backbone = build_backbone(backbone)
        self.projector = projection_head(self.backbone.num_features, hidden_size, projection_size)
        self.predictor = projection_head(projection_size, hidden_size, projection_size)
        self.build_target(hidden_size, projection_size)

    @property
    def chance_loss(self) -> float:
        """Return the loss of predictions that are orthogonal to their targets."""
        return 0.0

    def forward(self, views: Sequence[Tensor], *, labels: Tensor | None = None, mixing: Mixing | None = None) -> Tensor:
        """Compute the symmetric loss −2(cos(p₁, y₂) + cos(p₂, y₁)), averaged over the batch.

        Args:
            views: Two views of the same samples, (N, 3, H, W) each.
            labels: Not used.
            mixing: The mixture in view 1, if there is one. Each cosine is then λ times the cosine with the sample's
                own view 2 plus 1 − λ times the cosine with its partner's view 2, in both terms
                (official-implementation §2: "mixes view 1 and mirrors λ in the second term").
        """
        view1, view2 = views
        projection1, projection2 = self._project(view1), self._project(view2)
        self.embeddings = projection1.detach(), projection2.detach()
        prediction1, prediction2 = self._predict(projection1), self._predict(projection2)
        self.move_target()
        with torch.no_grad():
            target1, target2 = self.target(view1), self.target(view2)
        agreement = cosines(prediction1, target2, mixing) + cosines(target1, prediction2, mixing)  # (N,)
        return -2 * agreement.mean()

    def _project(self, view: Tensor) -> Tensor:
        return normalised(self.projector(self.backbone(view)))

    def _predict(self, projection: Tensor) -> Tensor:
        return normalised(self.predictor(projection))
