"""Configuration of the stages. It is validated once, at the edge; the code below takes plain arguments.

A model's fields are its recipe, which decides the result. `execution` decides only where and how fast it is computed.
"""

from objectaware.config.localize import PRESETS, LocalizeConfig, LocalizeExecution, Localizer
from objectaware.config.training import DetectionConfig, DetectionExecution, PretrainConfig, PretrainExecution
from objectaware.config.variants import (
    GROUND_TRUTH,
    MaskedPolicyConfig,
    MethodConfig,
    OptimizerConfig,
    PolicyConfig,
    PolicyInputs,
    ViewConfig,
)
from objectaware.data.dataset import DataConfig
from objectaware.model import Model

__all__ = [
    "GROUND_TRUTH",
    "PRESETS",
    "DataConfig",
    "DetectionConfig",
    "DetectionExecution",
    "LocalizeConfig",
    "LocalizeExecution",
    "Localizer",
    "MaskedPolicyConfig",
    "MethodConfig",
    "Model",
    "OptimizerConfig",
    "PolicyConfig",
    "PolicyInputs",
    "PretrainConfig",
    "PretrainExecution",
    "ViewConfig",
]
