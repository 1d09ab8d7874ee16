"""The only folder that imports Ray: pretraining on Train, localization on Data, evaluations as tasks."""

import os

from objectaware import collector

# Seconds that Ray waits for its dashboard, 60 by default. Ray reads the variable when it is imported.
os.environ.setdefault("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "300")
# Every Ray worker imports this package before it imports PyTorch.
collector.relax()
