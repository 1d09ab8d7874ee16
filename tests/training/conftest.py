from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from objectaware.training.pretraining import Trainer
from objectaware.training.session import LocalSession
from training_fixtures import make_method, make_trainer


@pytest.fixture
def trainer_in(tmp_path: Path) -> Callable[..., Trainer]:
    def make(folder: str, method: str = "moco", **options: Any) -> Trainer:
        return make_trainer(make_method(method), LocalSession(tmp_path / folder), **options)

    return make
