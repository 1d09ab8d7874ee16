"""Pretraining under Ray Train, as the stage runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from objectaware.config import PretrainConfig
from objectaware.data.storage import Storage
from objectaware.distributed.train import train_on_ray
from objectaware.training.pretraining import run_pretraining


def pretrain(config: PretrainConfig, storage: Storage, on_record: Callable[[Mapping[str, Any]], None]) -> str:
    return train_on_ray(run_pretraining, config, storage=storage, on_record=on_record)
