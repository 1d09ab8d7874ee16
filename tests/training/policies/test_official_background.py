"""`compat="official"` of the background policies: who is mixed with whose background, and what is remembered."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from objectaware.augment.background import foreground_bounds, strip_background
from objectaware.training.policies.background_mixup import OfficialBackground

SIZE = 12


def _policy(*, probability: float = 1.0, hard: bool = False) -> OfficialBackground:
    return OfficialBackground([].__getitem__, probability=probability, threshold=0.2, hard=hard)


def _batch(number: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Views, and soft masks of one object each."""
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(number, 3, SIZE, SIZE, generator=generator)
    masks = torch.randint(0, 40, (number, 1, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    masks[:, :, 5:9, 4:7] = torch.randint(60, 256, (number, 1, 4, 3), generator=generator, dtype=torch.uint8)
    return views, masks


def _draws(gates: list[float], order: list[float], picks: float = 0.0) -> torch.Tensor:
    draws = torch.zeros(len(gates), 4, dtype=torch.float64)
    draws[:, 0], draws[:, 1], draws[:, 3] = torch.tensor(gates), picks, torch.tensor(order)
    return draws


def _background(view: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    (bounds,) = foreground_bounds(mask >= 51)
    assert bounds is not None
    return strip_background(view, bounds)


def test_a_view_is_weighed_against_its_partners_background() -> None:
    views, masks = _batch()
    order = [0.5, 0.1, 0.9, 0.3, 0.8, 0.2]  # sorted: places 1, 5, 3, 0, 4, 2
    mixed, mixing = _policy().mix_batch(views, _draws([0.0] * 6, order), masks)
    assert mixing is None
    for place, donor in enumerate([1, 5, 3, 0, 4, 2]):
        weight = masks[place].float() / 255
        expected = weight * views[place] + (1 - weight) * _background(views[donor], masks[donor])
        torch.testing.assert_close(mixed[place], expected)
        low, high = torch.minimum(views[place], mixed[place]), torch.maximum(views[place], mixed[place])
        assert (low <= views[place]).all()
        assert (views[place] <= high).all()


def test_hardmix_pastes_where_the_mask_reaches_the_threshold() -> None:
    views, masks = _batch()
    mixed, _ = _policy(hard=True).mix_batch(views, _draws([0.0] * 6, [0.1, 0.0, 0.3, 0.2, 0.5, 0.4]), masks)
    for place, donor in enumerate([1, 0, 3, 2, 5, 4]):
        expected = torch.where(masks[place] >= 51, views[place], _background(views[donor], masks[donor]))
        torch.testing.assert_close(mixed[place], expected)


def test_whoever_does_not_take_part_neither_mixes_nor_gives() -> None:
    """The partner of the first view gives nothing, and there is no earlier background to take in its place."""
    views, masks = _batch(3)
    mixed, _ = _policy(probability=0.5).mix_batch(views, _draws([0.2, 0.7, 0.3], [0.2, 0.1, 0.3]), masks)
    assert torch.equal(mixed[0], views[0])
    assert torch.equal(mixed[1], views[1])
    assert not torch.equal(mixed[2], views[2])  # its own partner


def test_an_earlier_background_stands_in_for_a_partner_that_gives_none() -> None:
    policy = _policy(probability=0.5)
    earlier, earlier_masks = _batch(2, seed=5)
    policy.mix_batch(earlier, _draws([0.1, 0.1], [0.1, 0.2]), earlier_masks)
    views, masks = _batch(2)
    mixed, _ = policy.mix_batch(views, _draws([0.2, 0.7], [0.2, 0.1], picks=0.6), masks)
    weight = masks[0].float() / 255
    expected = weight * views[0] + (1 - weight) * _background(earlier[1], earlier_masks[1])
    torch.testing.assert_close(mixed[0], expected)


def test_the_last_fifty_backgrounds_are_kept() -> None:
    policy = _policy()
    for step in range(11):
        views, masks = _batch(5)
        policy.mix_batch(torch.full_like(views, float(step)), _draws([0.0] * 5, [0.1, 0.2, 0.3, 0.4, 0.5]), masks)
    state = policy.state()
    assert state["num_made"] == 55
    assert sorted(set(state["backgrounds"][:, 0, 0, 0].tolist())) == list(range(1, 11))


@pytest.mark.parametrize("hard", [False, True])
def test_views_stay_without_chance_mask_or_room_beside_the_object(hard: bool) -> None:
    """Golden check 12, and the official code's silent cases."""
    views, masks = _batch(4)
    order = [0.2, 0.1, 0.4, 0.3]
    mixed, _ = _policy(probability=0.0, hard=hard).mix_batch(views, _draws([0.0] * 4, order), masks)
    assert torch.equal(mixed, views)
    for unusable in (torch.zeros_like(masks), torch.full_like(masks, 255)):
        mixed, _ = _policy(hard=hard).mix_batch(views, _draws([0.0] * 4, order), unusable)
        assert torch.equal(mixed, views)


def test_a_restored_policy_goes_on_as_if_it_had_not_been_stopped() -> None:
    whole = _policy(probability=0.5)
    stopped = _policy(probability=0.5)
    generator = np.random.default_rng(0)
    results: list[list[torch.Tensor]] = [[], []]
    for step in range(6):
        views, masks = _batch(6, seed=step)
        draws = torch.from_numpy(generator.random((6, 4)))
        if step == 3:
            state = {name: value.clone() for name, value in stopped.state().items()}
            stopped = _policy(probability=0.5)
            stopped.load_state(state)
        for result, policy in zip(results, (whole, stopped), strict=True):
            result.append(policy.mix_batch(views, draws, masks)[0])
    assert torch.equal(*(torch.stack(result) for result in results))


def test_workers_have_a_state_of_one_shape_from_the_first_step_on() -> None:
    """A worker none of whose samples took part would otherwise leave the others waiting in the collection."""
    views, masks = _batch(4)
    states = []
    for gate in (0.0, 0.9):
        policy = _policy(probability=0.5)
        policy.mix_batch(views, _draws([gate] * 4, [0.1, 0.2, 0.3, 0.4]), masks)
        states.append({name: value.shape for name, value in policy.state().items()})
    assert states[0] == states[1]
