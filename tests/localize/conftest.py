"""The tiny network whose ContraCAM the official code computed (tests/golden/contracam_reference.npz)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

GOLDEN = Path(__file__).parents[1] / "golden"


class TinyBlock(nn.Module):
    def __init__(self, num_inputs: int, num_outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(num_inputs, num_outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(num_outputs)
        self.downsample = nn.Sequential(
            nn.Conv2d(num_inputs, num_outputs, 1, stride, bias=False), nn.BatchNorm2d(num_outputs)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return F.relu(self.bn1(self.conv1(inputs)) + self.downsample(inputs))


class TinyEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(TinyBlock(8, 8, 1))
        self.layer2 = nn.Sequential(TinyBlock(8, 16, 2))
        self.layer3 = nn.Sequential(TinyBlock(16, 24, 2))
        self.layer4 = nn.Sequential(TinyBlock(24, 32, 2))

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(hidden))))


@dataclass(frozen=True)
class Reference:
    """Arrays of the file, and the network built from them."""

    arrays: dict[str, NDArray[np.generic]]
    images: Tensor
    encoder: TinyEncoder
    projector: nn.Module


def _load(module: nn.Module, arrays: dict[str, NDArray[np.generic]], prefix: str) -> None:
    state = {name[len(prefix) :]: torch.from_numpy(a) for name, a in arrays.items() if name.startswith(prefix)}
    missing, unexpected = module.load_state_dict(state, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    module.eval()


@pytest.fixture(scope="session")
def reference() -> Reference:
    with np.load(GOLDEN / "contracam_reference.npz") as archive:
        arrays = dict(archive)
    encoder = TinyEncoder()
    projector = nn.Sequential(nn.Linear(32, 32, bias=False), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
    _load(encoder, arrays, "encoder.")
    _load(projector, arrays, "projector.")
    return Reference(arrays, torch.from_numpy(arrays["images"]).float(), encoder, projector)
