"""The only folder that imports Ray: pretraining on Train, localization on Data, evaluations as tasks."""
