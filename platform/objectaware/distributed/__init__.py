"""The only folder that imports Ray: pretraining on Train, localization on Data, evaluations as tasks."""

from objectaware import collector

# Ray's workers come here first, on their way to PyTorch.
collector.relax()
