"""Learning really happens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from objectaware.config import DataConfig, PretrainConfig
from objectaware.data.scenes import build_scenes
from objectaware.data.storage import Storage
from objectaware.stages.demo import DemoConfig, demo_trainings
from objectaware.training.inputs import open_inputs
from objectaware.training.run import build_method, run_pretraining
from objectaware.training.session import LocalSession
from objectaware.training.watch import KnnWatch

CHANCE = 100 / 9
# Two fifths of the demo's epochs: what is asked of all of them holds before.
NUM_EPOCHS = 12


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demos_pretraining_learns_classes_that_nobody_tells_it(tmp_path: Path) -> None:
    demo = DemoConfig()
    build_scenes(
        tmp_path / "scenes",
        variant=demo.variant,
        num_train=demo.num_train,
        num_val=9,
        image_size=demo.image_size,
        seed=0,
    )
    data = DataConfig(root=str(tmp_path / "scenes"), layout="backgrounds-challenge", variant="original", split="train")
    fields = demo_trainings(demo)[0]
    execution = {**fields["execution"], "evaluation_interval": NUM_EPOCHS, "checkpoint_interval": NUM_EPOCHS}
    config = PretrainConfig.model_validate({**fields, "data": data, "num_epochs": NUM_EPOCHS, "execution": execution})
    session = LocalSession(tmp_path / "train")
    kept = Storage.from_uri(tmp_path / "kept")
    run_pretraining(config, session, cache_folder=tmp_path / "cache", kept_folder=kept)
    learnt = session.history[-1]["knn_accuracy"]

    inputs = open_inputs(config)
    assert inputs.labels is not None
    torch.manual_seed(0)
    untrained = build_method(config, num_classes=0).backbone.eval()
    random = KnnWatch(inputs.images, inputs.labels, config.image_size, inputs.watched)(untrained)["knn_accuracy"]
    print(f"k-NN: learnt {learnt:.1f}, random network {random:.1f}, chance {CHANCE:.1f}")
    assert learnt > 3 * CHANCE
    assert learnt > random
    assert session.history[-1]["loss"] < session.history[-1]["chance_loss"]
