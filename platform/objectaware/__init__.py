"""Object-aware contrastive learning (ContraCAM) as an experiment platform.

The subpackages that carry the method (`methods`, `augment`, `localize`, `evaluate`, `data`) can be imported on
their own. Only `distributed` uses Ray, and only `tracking` uses MLflow. This module imports nothing heavy, so that
`objectaware --help` answers at once.
"""

__version__ = "0.1.0"
