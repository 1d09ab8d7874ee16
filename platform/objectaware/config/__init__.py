"""Configuration of the stages: validated once, at the edge; the parts take plain arguments.

A model's fields are its recipe, which decides the result; `execution` decides only how fast and where it is computed.
"""

from objectaware.config.base import DataConfig, Layout, Model
from objectaware.config.detection import DetectionConfig, DetectionExecution
from objectaware.config.localize import (
    LOCALIZE_SETTINGS,
    LOCALIZER_DEFAULTS,
    LocalizeConfig,
    LocalizeExecution,
    Localizer,
    localize_setting,
    localizer_fields,
)
from objectaware.config.planning import MeasureConfig
from objectaware.config.policies import GROUND_TRUTH
from objectaware.config.pretrain import PretrainConfig, PretrainExecution

__all__ = [
    "GROUND_TRUTH",
    "LOCALIZER_DEFAULTS",
    "LOCALIZE_SETTINGS",
    "DataConfig",
    "DetectionConfig",
    "DetectionExecution",
    "Layout",
    "LocalizeConfig",
    "LocalizeExecution",
    "Localizer",
    "MeasureConfig",
    "Model",
    "PretrainConfig",
    "PretrainExecution",
    "localize_setting",
    "localizer_fields",
]
