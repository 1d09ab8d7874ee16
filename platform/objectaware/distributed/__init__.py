"""The only folder that imports Ray: pretraining on Train, localization on Data, evaluations as tasks."""

import os

from objectaware.process import relax_collector

# Ray reads some of these variables when it is imported. A variable that the user has set keeps its value.
ENVIRONMENT = {
    # Seconds that Ray waits for its dashboard, 60 by default.
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
    # Importing PyTorch in several workers at once takes longer than the default of 60 s on a loaded machine.
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "180",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # Ctrl-C is an ordinary KeyboardInterrupt; Tune's own handler ends the search as if it were done.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Trials are recorded by their events. Nobody needs CSV and TensorBoard files in a temporary folder.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # With its new display Tune writes tables and paths in a temporary folder, whatever `verbose` says.
    "RAY_AIR_NEW_OUTPUT": "0",
    # Seconds in which the thread of a finished trial ends before its process runs the next one; 2 by default.
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "60",
    # Epochs have no score yet, and the score has no epoch.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
}

for _name, _value in ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
# Every Ray worker imports this package before it imports PyTorch.
relax_collector()
