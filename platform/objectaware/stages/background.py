"""Stage `background`: linear evaluation on every variant of the Backgrounds Challenge, given only its folder."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from objectaware.config import DataConfig
from objectaware.data.sets.backgrounds_challenge import HOLDOUT_FRACTION
from objectaware.evaluate.linear import VARIANTS
from objectaware.model import Address, Count
from objectaware.stages.features import FeatureConfig
from objectaware.stages.linear import LinearConfig, linear
from objectaware.stages.registry import stage
from objectaware.stages.runner import Context, StageResult


class BackgroundConfig(FeatureConfig):
    """Linear evaluation on every variant of the Backgrounds Challenge.

    Attributes:
        root: Folder that holds `original`, `mixed_same` and the other variants.
        holdout_fraction: Share of the training images that is held out to choose the penalty. The default is the
            paper's.
        seed: Seed of the hold-out.
    """

    root: Address
    holdout_fraction: Annotated[float, Field(gt=0, lt=1)] = HOLDOUT_FRACTION
    seed: Count = 0


def background_linear(config: BackgroundConfig) -> LinearConfig:
    """Return the linear evaluation that measures the reliance on backgrounds.

    It is fitted to `original` and tested on all variants.
    """

    def data(split: str, variant: str) -> DataConfig:
        return DataConfig(root=config.root, layout="backgrounds-challenge", split=split, variant=variant)

    return LinearConfig(
        **{name: getattr(config, name) for name in BackgroundConfig.model_fields if name != "root"},
        train=data("train", "original"),
        tests={variant: data("val", variant) for variant in VARIANTS},
    )


@stage("background", parts=lambda config: [background_linear(config)], outcome=linear.outcome)
def background(context: Context, config: BackgroundConfig, title: str | None) -> StageResult:
    """Measure accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap.

    Returns:
        The values of `linear`.
    """
    return linear(context, background_linear(config), title=title or "background challenge")
