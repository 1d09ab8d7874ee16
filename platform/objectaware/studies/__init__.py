"""Studies: stages that feed each other, under one run of MLflow."""
