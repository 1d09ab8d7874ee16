"""Record studies and stages in MLflow: write to a local spool first, then send by a thread to the server.

No other folder imports mlflow. Importing it takes about two seconds, so a command imports it inside its function.
"""

# First: it sets the defaults of MLflow's client, and the next ones import mlflow.
from objectaware.tracking.environment import environment_tags
from objectaware.tracking.run import RunStatus, Tracker
from objectaware.tracking.store import TrackingStore, run_ui

__all__ = ["RunStatus", "Tracker", "TrackingStore", "environment_tags", "run_ui"]
