"""The only folder that imports Ray: pretraining on Train, localization on Data, evaluations as tasks."""

import os

from objectaware import collector

# Ray reads it when it is imported: the seconds that it waits for its dashboard, 60 by default.
os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "300")
# Ray's workers come here first, on their way to PyTorch.
collector.relax()
