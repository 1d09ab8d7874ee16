"""Mask R-CNN on C4, its parts against brute force and its losses against the definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from objectaware.detection.network import KeyedSampler, MaskRCNN, Target, box_losses, mask_truth, padded
from objectaware.methods.backbones import build_backbone

LABELS = torch.tensor([1, 0, -1, 0, 2, 0, 0, 3, -1, 0])


def _drawn(keys: list[int], labels: list[torch.Tensor], num: int = 6, fraction: float = 0.5) -> list[torch.Tensor]:
    sampler = KeyedSampler(num, fraction)
    sampler.keys = keys
    positives, negatives = sampler(labels)
    return [torch.stack([positive, negative]) for positive, negative in zip(positives, negatives, strict=True)]


def test_positives_are_limited_and_negatives_fill_the_rest() -> None:
    ((positive, negative),) = _drawn([5], [LABELS], num=4)
    assert int(positive.sum()) == 2
    assert int(negative.sum()) == 2
    assert bool((LABELS[positive.bool()] >= 1).all())
    assert bool((LABELS[negative.bool()] == 0).all())


def test_few_positives_leave_room_for_negatives() -> None:
    ((positive, negative),) = _drawn([5], [torch.tensor([1, 0, 0, 0, 0])], num=4)
    assert (int(positive.sum()), int(negative.sum())) == (1, 3)


def test_what_is_drawn_of_an_image_depends_on_its_key_alone() -> None:
    many = torch.zeros(1000, dtype=torch.int64)
    torch.manual_seed(0)
    first, second = _drawn([1, 2], [many, many])
    torch.manual_seed(1)
    (alone,) = _drawn([2], [many])
    assert torch.equal(second, alone)
    assert not torch.equal(first, second)


NUM_CLASSES = 4
LOSSES = {"loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask"}


def _network(name: str = "resnet10_narrow") -> MaskRCNN:
    torch.manual_seed(0)
    return MaskRCNN(build_backbone(name), NUM_CLASSES, num_regions=8, num_train_proposals=50, num_test_proposals=20)


def _target(height: int, width: int, key: int = 1) -> Target:
    masks = torch.zeros(2, height, width, dtype=torch.uint8)
    masks[0, 4:30, 4:30] = 1
    masks[1, 10:40, 20:44] = 1
    boxes = torch.tensor([[4.0, 4.0, 30.0, 30.0], [20.0, 10.0, 44.0, 40.0]])
    return {"boxes": boxes, "labels": torch.tensor([1, 3]), "masks": masks, "key": torch.tensor(key)}


@pytest.fixture(scope="module")
def images() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 48, 64, generator=generator), torch.randn(3, 50, 48, generator=generator)]


# ResNet-50 has the paper's 1024 channels in the map and 2048 in the trunk.
@pytest.mark.parametrize(("name", "channels"), [("resnet18", 256), ("resnet50", 1024), ("resnet10_narrow", 192)])
def test_the_map_is_the_third_stage_s(name: str, channels: int) -> None:
    with torch.device("meta"):
        network = MaskRCNN(build_backbone(name), NUM_CLASSES)
    assert network.proposals.head.conv[0][0].in_channels == channels


def test_five_losses_reach_every_parameter(images: list[Tensor]) -> None:
    network = _network().train()
    losses = network(images, [_target(48, 64), _target(50, 48)])
    assert isinstance(losses, dict)
    assert set(losses) == LOSSES
    torch.autograd.backward(torch.stack(list(losses.values())).sum())
    without = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert without == []


def test_the_losses_of_a_fresh_network_are_those_of_chance(images: list[Tensor]) -> None:
    losses = _network().train()(images, [_target(48, 64), _target(50, 48)])
    assert losses["loss_classifier"].item() == pytest.approx(torch.log(torch.tensor(NUM_CLASSES + 1.0)).item(), abs=0.4)
    assert losses["loss_mask"].item() == pytest.approx(0.693, abs=0.02)


def test_what_is_drawn_depends_on_the_keys_alone(images: list[Tensor]) -> None:
    network = _network().train()

    def loss(key: int) -> float:
        losses = network(images, [_target(48, 64, key), _target(50, 48, key)])
        return float(losses["loss_classifier"].detach())

    torch.manual_seed(0)
    first = loss(1)
    torch.manual_seed(5)
    assert loss(1) == first
    assert loss(2) != first


def test_detections_have_boxes_in_the_picture_and_masks_in_the_boxes(images: list[Tensor]) -> None:
    network = _network().eval()
    network.heads.score_thresh = 0.0
    with torch.no_grad():
        found = network(images)
    for image, objects in zip(images, found, strict=True):
        number = len(objects["boxes"])
        assert 0 < number <= 100
        assert set(objects["labels"].tolist()) <= {1, 2, 3, 4}
        assert bool((objects["boxes"].amin() >= 0) & (objects["boxes"][:, [0, 2]].amax() <= image.shape[2]))
        assert float(objects["boxes"][:, [1, 3]].amax()) <= image.shape[1]
        assert objects["masks"].shape == (number, 1, 14, 14)
        assert bool(((objects["masks"] >= 0) & (objects["masks"] <= 1)).all())


def test_nothing_found_is_an_empty_list_of_objects(images: list[Tensor]) -> None:
    network = _network().eval()
    network.heads.score_thresh = 1.0
    with torch.no_grad():
        assert [len(objects["boxes"]) for objects in network(images)] == [0, 0]


def test_in_bfloat16_boxes_and_losses_have_32_bits(images: list[Tensor]) -> None:
    network = _network().train()
    with torch.autocast("cpu", torch.bfloat16):
        losses = network(images, [_target(48, 64), _target(50, 48)])
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert network.proposals.anchor_generator.cell_anchors[0].dtype == torch.float32


def test_padding_is_to_the_right_and_below(images: list[Tensor]) -> None:
    batch = padded(images)
    assert batch.tensors.shape == (2, 3, 64, 64)
    assert batch.image_sizes == [(48, 64), (50, 48)]
    for image, content in zip(images, batch.tensors, strict=True):
        height, width = image.shape[1:]
        assert torch.equal(content[:, :height, :width], image)
        assert not content[:, height:].any()
        assert not content[:, :, width:].any()


def test_box_losses_by_hand() -> None:
    scores = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    deltas = torch.zeros(2, 12)
    deltas[0, 4:8] = torch.tensor([0.1, 0.0, 0.0, 0.3])  # of class 1
    class_loss, box_loss = box_losses(scores, deltas, torch.tensor([1, 0]), torch.full((2, 4), 0.2))
    expected = -(torch.log_softmax(scores, 1)[0, 1] + torch.log_softmax(scores, 1)[1, 0]) / 2
    assert class_loss.item() == pytest.approx(expected.item())
    assert box_loss.item() == pytest.approx((0.1 + 0.2 + 0.2 + 0.1) / 2)


def test_mask_truth_is_the_mask_within_the_box() -> None:
    masks = torch.zeros(2, 40, 40, dtype=torch.uint8)
    masks[1, 10:30, 10:20] = 1
    truth = mask_truth(masks, torch.tensor([[10.0, 10.0, 30.0, 30.0]]), torch.tensor([1]), 14)
    assert truth.shape == (1, 14, 14)
    assert torch.equal(truth[0, :, :7], torch.ones(14, 7))
    assert not truth[0, :, 7:].any()
