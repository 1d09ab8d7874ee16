"""Rates in round numbers, for tests of plans."""

from __future__ import annotations

from objectaware.planning.model import LinearRates, NetworkRates, Rates, TrainingRates, Work


def rates(**changed: object) -> Rates:
    """A machine of one GPU and four cores, in round numbers."""
    network = NetworkRates(
        backbone="resnet18",
        num_features=512,
        training={"moco": TrainingRates(step=Work(gpu_seconds=0.01), start_seconds=5, epoch_seconds=2)},
        forward=Work(gpu_seconds=0.002),
        iteration={1: Work(gpu_seconds=0.003), 2: Work(gpu_seconds=0.004)},
    )
    fields = {
        "source": "made up",
        "device": "cuda",
        "num_cores": 4,
        "num_gpus": 1,
        "image_size": 224,
        "picture_bytes": 2**20,
        "decoding": 0.02,
        "views": 0.01,
        "reading": 0.03,
        "storing": 0.01,
        "crf": 0.09,
        "row_seconds": 0.001,
        "shown_seconds": 0.05,
        "linear": LinearRates(seconds=3.0, seconds_per_product=1e-7),
        "networks": (network,),
        "start_seconds": {"pretrain": 10.0, "localize": 6.0, "linear": 4.0},
    }
    return Rates.model_validate({**fields, **changed})
