"""Policies mixup and cutmix: what they make of a batch, and what they tell the loss."""

from __future__ import annotations

import numpy as np
import torch

from objectaware.augment.mixup_cutmix import mixup
from objectaware.training.policies.base import NUM_MIX_DRAWS, Policy
from objectaware.training.policies.cutmix import CutMix
from objectaware.training.policies.mixup import Mixup

DRAWS = torch.from_numpy(np.random.default_rng(0).random((8, NUM_MIX_DRAWS)))
VIEWS = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_mixup_tells_the_loss_the_weights_that_it_mixed_with() -> None:
    mixed, mixing = Mixup().mix_batch(VIEWS, DRAWS, None)
    assert mixing is not None
    assert torch.equal(mixing.partner, torch.tensor([1, 0, 3, 2, 5, 4, 7, 6]))
    assert len(mixing.weight.unique()) == 8
    assert mixing.weight.min() >= 0.5
    assert torch.equal(mixed, mixup(VIEWS, mixing.partner, mixing.weight))


def test_cutmix_tells_the_loss_the_shares_of_the_pixels() -> None:
    mixed, mixing = CutMix().mix_batch(VIEWS, DRAWS, None)
    assert mixing is not None
    own = (mixed == VIEWS).all(dim=1).float().mean(dim=(1, 2))
    torch.testing.assert_close(mixing.weight, own)
    other = (mixed == VIEWS[mixing.partner]).all(dim=1).float().mean(dim=(1, 2))
    torch.testing.assert_close(1 - mixing.weight, other)
    assert len(mixing.weight.unique()) > 4


def test_each_half_of_a_batch_mixes_as_the_whole() -> None:
    for policy in (Mixup(), CutMix()):
        whole, _ = policy.mix_batch(VIEWS, DRAWS, None)
        halves = [policy.mix_batch(VIEWS[part], DRAWS[part], None)[0] for part in (slice(0, 4), slice(4, 8))]
        assert torch.equal(torch.cat(halves), whole)


def test_the_official_partners_are_a_permutation_of_the_batch() -> None:
    policies: tuple[Policy, ...] = (Mixup(official=True), CutMix(official=True))
    for policy in policies:
        _, mixing = policy.mix_batch(VIEWS, DRAWS, None)
        assert mixing is not None
        assert sorted(mixing.partner.tolist()) == list(range(8))
        assert not torch.equal(mixing.partner[mixing.partner], torch.arange(8))


def test_the_official_cutmix_has_one_box_a_batch() -> None:
    mixed, mixing = CutMix(official=True).mix_batch(VIEWS, DRAWS, None)
    assert mixing is not None
    assert len(mixing.weight.unique()) == 1
    changed = (mixed != VIEWS).any(dim=1)  # (N, H, W)
    moved = changed[mixing.partner != torch.arange(8)]
    assert torch.equal(moved, moved[:1].expand_as(moved))


def test_the_official_moco_weighs_its_mean_loss_with_the_mean_weight() -> None:
    mixed, mixing = Mixup(official=True, average_weights=True).mix_batch(VIEWS, DRAWS, None)
    own, own_mixing = Mixup(official=True).mix_batch(VIEWS, DRAWS, None)
    assert mixing is not None
    assert own_mixing is not None
    assert torch.equal(mixed, own)  # the pictures keep their own weights
    assert torch.equal(mixing.weight, own_mixing.weight.mean().expand(8))
