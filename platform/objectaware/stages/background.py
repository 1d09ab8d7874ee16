"""Linear evaluation on every variant of the Backgrounds Challenge, from its folder alone."""

from __future__ import annotations

from objectaware.config import BackgroundConfig, DataConfig, LinearConfig
from objectaware.evaluate.background import VARIANTS
from objectaware.stages.evaluate import run_linear
from objectaware.stages.runner import Context, StageResult


def background_linear(config: BackgroundConfig) -> LinearConfig:
    """The linear evaluation that measures the reliance on backgrounds: fitted to `original`, tested on all variants."""

    def data(split: str, variant: str) -> DataConfig:
        return DataConfig(root=config.root, layout="backgrounds-challenge", split=split, variant=variant)

    return LinearConfig(
        **{name: getattr(config, name) for name in BackgroundConfig.model_fields if name != "root"},
        train=data("train", "original"),
        tests={variant: data("val", variant) for variant in VARIANTS},
    )


def run_background(context: Context, config: BackgroundConfig, *, title: str | None = None) -> StageResult:
    """Measures accuracy on every variant of a Backgrounds Challenge folder, and the BG-Gap; see `run_linear`."""
    return run_linear(context, background_linear(config), title=title or "background challenge")
