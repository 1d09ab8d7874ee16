"""A method of somebody else's package, which an entry point names, trains like those of this package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

pytestmark = pytest.mark.slow  # three processes that import PyTorch

METHOD = '''
from typing import ClassVar, Literal

import torch
from pydantic import Field
from typing import Annotated

from objectaware.config.variants import MethodConfig
from objectaware.methods.backbones import build_backbone
from objectaware.methods.method import Method


class BarlowTwinsConfig(MethodConfig):
    """Barlow Twins (Zbontar et al. 2021).

    Attributes:
        redundancy_weight: Weight of the correlations of different components.
    """

    title: ClassVar = "Barlow Twins"
    name: Literal["barlow_twins"] = "barlow_twins"
    redundancy_weight: Annotated[float, Field(gt=0, le=1)] = 0.005

    def build(self, backbone, *, num_classes):
        return BarlowTwins(backbone, self.redundancy_weight)


class BarlowTwins(Method):
    def __init__(self, backbone, weight):
        super().__init__()
        self.backbone = build_backbone(backbone)
        self.projector = torch.nn.Linear(self.backbone.num_features, 16)
        self.weight = weight

    @property
    def chance_loss(self):
        return 16.0

    def forward(self, views, *, labels=None, mixing=None):
        first, second = (torch.nn.functional.batch_norm(self.projector(self.backbone(one)), None, None, training=True)
                         for one in views)
        self.embeddings = tuple(torch.nn.functional.normalize(one.detach(), dim=1) for one in (first, second))
        correlation = first.T @ second / len(first)
        on = (correlation.diagonal() - 1).square().sum()
        off = correlation.square().sum() - correlation.diagonal().square().sum()
        return on + self.weight * off
'''
TRAINING = """
import sys
from pathlib import Path

import yaml

from objectaware.config import PretrainConfig
from objectaware.training.pretraining import run_pretraining
from objectaware.training.session import LocalSession

folder = Path(sys.argv[1])
config = PretrainConfig.model_validate(yaml.safe_load((folder / "recipe.yaml").read_text()))
session = LocalSession(folder / "session")
run_pretraining(config, session)
print(config.method.model_dump(), session.restored() is not None)
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which the other package is installed, as pip leaves it."""
    site = tmp_path / "site"
    information = site / "barlow_objects-1.0.dist-info"
    information.mkdir(parents=True)
    (site / "barlow_objects.py").write_text(METHOD)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: barlow-objects\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[objectaware.variants]\nbarlow_twins = barlow_objects\n")
    package = Path(__file__).parents[1] / "platform"
    return {"PYTHONPATH": f"{site}:{package}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}


def _recipe(folder: Path, **method: object) -> Path:
    (folder / "photos").mkdir(exist_ok=True)
    for number in range(8):
        pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
    fields = {
        "data": {"root": str(folder / "photos")},
        "method": {"name": "barlow_twins", **method},
        "backbone": "resnet10_narrow",
        "image_size": 32,
        "batch_size": 8,
        "num_epochs": 1,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(fields))
    return folder / "recipe.yaml"


def test_it_is_found_and_trained(tmp_path: Path, installed: dict[str, str]) -> None:
    _recipe(tmp_path, redundancy_weight=0.01)
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    done = subprocess.run(command, env=installed, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{'name': 'barlow_twins', 'redundancy_weight': 0.01} True"


def test_the_command_line_validates_its_fields(tmp_path: Path, installed: dict[str, str]) -> None:
    arguments = ["pretrain", str(_recipe(tmp_path)), "--method.redundancy_weight", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "objectaware.cli", *arguments], env=installed, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "redundancy_weight = 2" in done.stderr


def test_without_the_package_the_name_is_not_known(tmp_path: Path, installed: dict[str, str]) -> None:
    alone = {**installed, "PYTHONPATH": installed["PYTHONPATH"].rpartition(":")[2]}
    done = subprocess.run(
        [sys.executable, "-m", "objectaware.cli", "pretrain", str(_recipe(tmp_path))],
        env=alone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "barlow_twins" in done.stderr
