"""Make MLflow's user NEW_USERNAME, or give it the password NEW_PASSWORD if it is there: docker/compose.yaml.

The user adds runs to any experiment (`default_permission` of basic_auth.ini), and deletes only what it has made. The
administrator's name and password are in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
"""

import os

from mlflow.exceptions import MlflowException
from mlflow.server import get_app_client

client = get_app_client("basic-auth", os.environ["MLFLOW_TRACKING_URI"])
name, password = os.environ["NEW_USERNAME"], os.environ["NEW_PASSWORD"]
try:
    client.create_user(name, password)
except MlflowException as error:
    if error.error_code != "RESOURCE_ALREADY_EXISTS":
        raise
    client.update_user_password(name, password)
print(f"MLflow's user {name} is there")
