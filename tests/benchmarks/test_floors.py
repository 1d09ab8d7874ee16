from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import floors
from floor_networks import Setup, network_works, step_bytes
from floor_stages import crf_operations, decoding_operations, view_operations
from objectaware.methods.moco import MoCo
from roof import Roof, Work, counted_operations, measure_roof

CPU = torch.device("cpu")
ROOF = Roof({"fp32": 100.0, "bf16": 400.0}, 10.0)


@pytest.mark.parametrize(
    ("operations", "num_bytes", "precision", "floor"),
    [
        (200.0, 10.0, "fp32", (2.0, "operations")),
        (200.0, 10.0, "bf16", (1.0, "bytes")),
        (800.0, 10.0, "bf16", (2.0, "operations")),
        (0.0, 30.0, "fp32", (3.0, "bytes")),
    ],
)
def test_the_longer_of_both_is_the_floor(
    operations: float, num_bytes: float, precision: str, floor: tuple[float, str]
) -> None:
    assert ROOF.floor(Work("case", 1, operations, num_bytes, lambda: None, precision)) == floor


def test_operations_are_counted_forward_and_backward() -> None:
    images, weight = torch.randn(2, 3, 8, 8), torch.randn(5, 3, 3, 3, requires_grad=True)
    forward = 2 * 2 * 5 * 8 * 8 * 3 * 3 * 3
    assert counted_operations(lambda: F.conv2d(images, weight, padding=1)) == forward
    # The gradient of the weights alone, as nothing asks for the images'.
    assert counted_operations(lambda: F.conv2d(images, weight, padding=1).sum().backward()) == 2 * forward
    layer, rows = nn.Linear(7, 4), torch.randn(3, 7)
    with torch.inference_mode():
        assert counted_operations(lambda: layer(rows)) == 2 * 3 * 7 * 4


def test_operations_are_counted_through_a_gradient_of_features() -> None:
    """ContraCAM asks for gradients by `autograd.grad`, which PyTorch's own counter refuses."""
    layer, rows = nn.Linear(7, 4), torch.randn(3, 7, requires_grad=True)
    counted = counted_operations(lambda: torch.autograd.grad(layer(rows).square().sum(), rows))
    assert counted == 2 * (2 * 3 * 7 * 4)


def test_a_step_moves_its_weights_its_average_its_queue_and_its_views() -> None:
    method = MoCo("resnet10_narrow", queue_size=8)
    views = [torch.zeros(2, 3, 32, 32)] * 2
    online = 4 * sum(p.numel() for net in (method.backbone, method.projector) for p in net.parameters())
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in method.buffers())
    assert step_bytes(method, views) == 4 * online + 2 * online + buffers + 2 * 4 * 2 * 3 * 32 * 32


def test_formulas_by_hand() -> None:
    # Of each pixel and iteration: 8 for each of the 3 and 6 corners, 8 for weights, 6 for marginals.
    assert crf_operations(10, 5) == 10 * 5 * (8 * 3 + 8 * 6 + 8 + 6)
    assert decoding_operations(100) == pytest.approx(100 * (12.75 + 7 + 12))
    assert view_operations(224) / (3 * 224**2) == pytest.approx(8 + 14.133 + 0.4 + 46 + 2, abs=1e-3)


@pytest.mark.parametrize(("precision", "is_compiled"), [("fp32", False), ("bf16", True)])
def test_networks_on_any_device(precision: str, is_compiled: bool) -> None:
    setup = Setup(CPU, precision, is_compiled, batch_size=2, image_size=32, queue_size=8)
    works = list(network_works("resnet10_narrow", setup))
    assert all(work.case.endswith(f"channels_last{', compiled' if is_compiled else ''}") for work in works)
    assert [work.case.split(",")[0] for work in works] == ["a step of MoCo v2", "a step of BYOL", "features"]
    moco, byol, features = (work.operations for work in works)
    # MoCo: one view forward and backward, another forward; BYOL: both through both networks. A backward pass costs
    # twice the forward one but for the first layer's gradient by the images.
    assert 3.5 < moco / features < 4.2
    assert byol > 7 * features
    assert all(work.precision == precision and work.num_images == 2 for work in works)
    with torch.compiler.set_stance("force_eager"):  # Inductor takes a minute
        row = floors.measured(works[2], ROOF, CPU, 1)
    assert (row.device, row.bound_by) == ("cpu", ROOF.floor(works[2])[1])
    assert row.share == pytest.approx(row.floor_seconds / row.measured_seconds)
    assert row.images_per_second == pytest.approx(2 / row.measured_seconds)


def test_a_roof_is_measured() -> None:
    roof = measure_roof(CPU, is_quick=True)
    assert set(roof.operations_per_second) == {"fp32"}
    assert roof.operations_per_second["fp32"] > 1e8
    assert roof.bytes_per_second > 1e7


def test_cuda_is_refused_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as status:
        floors.main(["--device", "cuda", "--out", str(tmp_path / "floors.csv")])
    assert status.value.code == 2
    assert "PyTorch finds no CUDA device here" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
