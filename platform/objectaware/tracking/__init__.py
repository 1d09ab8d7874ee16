"""MLflow records of studies and stages: to a local spool first, then by a thread to the server.

The only folder that imports mlflow. Importing it takes about two seconds, so a command imports it inside its
function.
"""

from objectaware.tracking import client_settings  # before mlflow is first imported, which the next ones do
from objectaware.tracking.environment import environment_tags
from objectaware.tracking.runs import RunStatus, Tracker
from objectaware.tracking.store import TrackingStore
from objectaware.tracking.ui import run_ui

__all__ = ["RunStatus", "Tracker", "TrackingStore", "client_settings", "environment_tags", "run_ui"]
