"""SimSiam: learning from positives alone, with a predictor and a stop-gradient, but no second network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor, nn

from objectaware.config.variants import MethodConfig
from objectaware.methods.backbones import build_backbone
from objectaware.methods.method import Method, Mixing, ParameterGroup, cosines, normalised, projection_head
from objectaware.model import Positive


class SimSiamConfig(MethodConfig):
    """SimSiam (Chen & He 2021): predicts the projection of the other view; no negatives, no second network.

    Attributes:
        projection_size: Width of the projection, inside its head and out of it.
        bottleneck_size: Width inside the predictor.
        constant_predictor_rate: Whether the predictor keeps the initial learning rate (`--fix-pred-lr` of the
            authors' code).
    """

    title: ClassVar = "SimSiam"

    name: Literal["simsiam"] = "simsiam"
    projection_size: Positive = 2048
    bottleneck_size: Positive = 512
    constant_predictor_rate: bool = False

    def build(self, backbone: str, *, num_classes: int) -> SimSiam:
        """Build the method; it does not use classes."""
        return SimSiam(backbone, **self.model_dump(exclude={"name"}))


class SimSiam(Method):
    """SimSiam (Chen & He 2021).

    Args:
        backbone: Name of the backbone.
        projection_size: Width of projection and prediction, and inside the projector.
        bottleneck_size: Width inside the predictor.
        constant_predictor_rate: Whether the predictor's learning rate does not follow the schedule.

    Shape:
        Two views (N, 3, H, W) each to the loss, a scalar in [−1, 1]; −1 if every prediction equals its target.

    Source:
        Chen & He 2021, §3 and §4.4 (a projector of three layers, all with batch norm; a predictor of two layers with
        a bottleneck and a batch norm inside). facebookresearch/simsiam, simsiam/builder.py: the last batch norm of the
        projector has no weights.
    """

    def __init__(
        self,
        backbone: str,
        *,
        projection_size: int = 2048,
        bottleneck_size: int = 512,
        constant_predictor_rate: bool = False,
    ) -> None:
        super().__init__()
        self._constant_predictor_rate = constant_predictor_rate
        self.backbone = build_backbone(backbone)
        self.projector = nn.Sequential(
            nn.Linear(self.backbone.num_features, projection_size, bias=False),
            nn.BatchNorm1d(projection_size),
            nn.ReLU(inplace=True),
            nn.Linear(projection_size, projection_size, bias=False),
            nn.BatchNorm1d(projection_size),
            nn.ReLU(inplace=True),
            nn.Linear(projection_size, projection_size, bias=False),
            nn.BatchNorm1d(projection_size, affine=False),
        )
        self.predictor = projection_head(projection_size, bottleneck_size, projection_size)

    @property
    def chance_loss(self) -> float:
        """Return the loss of predictions that are orthogonal to their targets."""
        return 0.0

    def parameter_groups(self) -> list[ParameterGroup]:
        """Return the parameters in groups. The predictor's groups may keep a constant learning rate."""
        return [
            *self.groups_of(self.backbone, self.projector),
            *self.groups_of(self.predictor, has_constant_rate=self._constant_predictor_rate),
        ]

    def forward(self, views: Sequence[Tensor], *, labels: Tensor | None = None, mixing: Mixing | None = None) -> Tensor:
        """Compute the loss −(cos(p₁, z₂) + cos(p₂, z₁)) / 2, averaged over the batch, without gradient through z.

        Args:
            views: Two views of the same samples, (N, 3, H, W) each.
            labels: Not used.
            mixing: None.
        """
        assert mixing is None, "the configuration refuses mixtures"
        projection1, projection2 = (self.projector(self.backbone(view)) for view in views)
        prediction1, prediction2 = (normalised(self.predictor(one)) for one in (projection1, projection2))
        target1, target2 = normalised(projection1.detach()), normalised(projection2.detach())
        self.embeddings = target1, target2
        return -(cosines(prediction1, target2, None) + cosines(prediction2, target1, None)).mean() / 2
