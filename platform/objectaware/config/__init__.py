"""Configuration of the stages: validated once, at the edge; the parts take plain arguments.

A model's fields are its recipe, which decides the result; `execution` decides only how fast and where it is computed.
"""

from objectaware.config.base import DataConfig, Layout, Model
from objectaware.config.contextual import ClassDistanceConfig, ContextualConfig, FewShotConfig
from objectaware.config.detection import DetectionConfig, DetectionExecution
from objectaware.config.evaluate import (
    BackgroundConfig,
    EvaluateExecution,
    FeatureConfig,
    KnnConfig,
    LinearConfig,
    LocalizationConfig,
)
from objectaware.config.localize import (
    PRESETS,
    LocalizeConfig,
    LocalizeExecution,
    Localizer,
)
from objectaware.config.localizers import LocalizersConfig
from objectaware.config.planning import MeasureConfig
from objectaware.config.policies import GROUND_TRUTH
from objectaware.config.pretrain import PretrainConfig, PretrainExecution

__all__ = [
    "GROUND_TRUTH",
    "PRESETS",
    "BackgroundConfig",
    "ClassDistanceConfig",
    "ContextualConfig",
    "DataConfig",
    "DetectionConfig",
    "DetectionExecution",
    "EvaluateExecution",
    "FeatureConfig",
    "FewShotConfig",
    "KnnConfig",
    "Layout",
    "LinearConfig",
    "LocalizationConfig",
    "LocalizeConfig",
    "LocalizeExecution",
    "Localizer",
    "LocalizersConfig",
    "MeasureConfig",
    "Model",
    "PretrainConfig",
    "PretrainExecution",
]
