"""Losses of mixed views, against the definitions written out."""

import math

import pytest
import torch
import torch.nn.functional as F

from objectaware.methods.byol import BYOL
from objectaware.methods.method import Mixing
from objectaware.methods.moco import MoCo, mixed_infonce

MIXING = Mixing(torch.tensor([0.9, 0.6, 0.75, 0.5], dtype=torch.float64), torch.tensor([1, 0, 3, 2]))


def _units(number: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(number, 16, generator=generator, dtype=torch.float64), dim=1)


def _views() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 32, 32, generator=generator), torch.randn(4, 3, 32, 32, generator=generator)


def test_a_weight_of_one_is_infonce_with_all_candidates() -> None:
    """Golden check 16: i-Mix with λ = 1 is the InfoNCE with N + K candidates."""
    query, keys, queue = _units(4, 0), _units(4, 1), _units(10, 2)
    mixing = Mixing(torch.ones(4, dtype=torch.float64), MIXING.partner)
    logits = query @ torch.cat([keys, queue]).T / 0.2
    expected = F.cross_entropy(logits, torch.arange(4))
    loss = mixed_infonce(query, keys, queue, mixing, first_place=0, temperature=0.2)
    torch.testing.assert_close(loss, expected, atol=1e-14, rtol=0)


def test_each_query_is_drawn_to_both_keys_by_its_own_weight() -> None:
    query, keys, queue = _units(4, 0), _units(8, 1), _units(10, 2)
    logits = query @ torch.cat([keys, queue]).T / 0.2
    own = F.cross_entropy(logits, torch.arange(4, 8), reduction="none")
    other = F.cross_entropy(logits, 4 + MIXING.partner, reduction="none")
    loss = mixed_infonce(query, keys, queue, MIXING, first_place=4, temperature=0.2)
    torch.testing.assert_close(loss, (MIXING.weight * own + (1 - MIXING.weight) * other).mean())


def test_moco_compares_mixed_queries_with_the_batchs_keys_and_the_queue() -> None:
    torch.manual_seed(0)
    method = MoCo("resnet10_narrow", queue_size=10, temperature=0.2).eval()
    queue, views = method.queue.clone(), _views()
    query = F.normalize(method.projector(method.backbone(views[0])), dim=1)
    keys = F.normalize(method.target_projector(method.target_backbone(views[1])), dim=1)
    loss = method(views, mixing=MIXING)
    torch.testing.assert_close(loss, mixed_infonce(query, keys, queue, MIXING, first_place=0, temperature=0.2))
    assert torch.equal(method.queue[:4], keys)
    assert method.chance_loss == pytest.approx(math.log(14))


def test_byol_mirrors_the_weights_in_its_second_term() -> None:
    torch.manual_seed(0)
    method = BYOL("resnet10_narrow", hidden_size=32, projection_size=16).eval()
    views = _views()
    prediction1, prediction2 = (method._predict(method._project(view)) for view in views)
    target1, target2 = (method.target(view) for view in views)
    expected = torch.tensor(0.0)
    for place, (weight, partner) in enumerate(zip(MIXING.weight.float(), MIXING.partner, strict=True)):
        for source, share in ((place, weight), (int(partner), 1 - weight)):
            cosines = prediction1[place] @ target2[source] + target1[place] @ prediction2[source]
            expected = expected - 2 * share * cosines
    torch.testing.assert_close(method(views, mixing=MIXING), expected / 4)


def test_byol_with_weights_of_one_is_byol() -> None:
    torch.manual_seed(0)
    method = BYOL("resnet10_narrow", hidden_size=32, projection_size=16).eval()
    torch.testing.assert_close(method(_views(), mixing=Mixing(torch.ones(4), MIXING.partner)), method(_views()))
