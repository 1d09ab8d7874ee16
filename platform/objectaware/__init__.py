"""Object-aware contrastive learning (ContraCAM) as an experiment platform.

The subpackages that carry the method (`methods`, `augment`, `localize`, `evaluate`, `data`) are importable on
their own; Ray is used in `distributed` alone and MLflow in `tracking` alone. Nothing heavy is imported here,
so that `objectaware --help` answers at once.
"""

__version__ = "0.1.0"
