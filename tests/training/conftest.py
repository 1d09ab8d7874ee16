from collections.abc import Callable
from pathlib import Path

import pytest

from objectaware.training.loop import Trainer
from objectaware.training.session import LocalSession
from training_fixtures import make_method, make_trainer


@pytest.fixture
def trainer_in(tmp_path: Path) -> Callable[..., Trainer]:
    def make(folder: str, method: str = "moco", num_epochs: int = 2, policy: str = "none") -> Trainer:
        session = LocalSession(tmp_path / folder)
        return make_trainer(make_method(method), session, num_epochs=num_epochs, policy=policy)

    return make
