import math

import pytest
import torch
import torch.nn.functional as F

from objectaware.errors import InputError
from objectaware.methods.moco import MoCo


@pytest.fixture
def method() -> MoCo:
    torch.manual_seed(0)
    return MoCo("resnet10_narrow", queue_size=10, momentum=0.9, temperature=0.2)


@pytest.fixture
def views() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(4, 3, 32, 32, generator=generator), torch.randn(4, 3, 32, 32, generator=generator)


def test_loss_is_infonce_of_equation_1(method: MoCo, views: tuple[torch.Tensor, torch.Tensor]) -> None:
    method.eval()
    queue = method.queue.clone()
    query = F.normalize(method.projector(method.backbone(views[0])), dim=1)
    key = F.normalize(method.target_projector(method.target_backbone(views[1])), dim=1)
    positive = torch.exp((query * key).sum(dim=1) / 0.2)
    negative = torch.exp(query @ queue.T / 0.2).sum(dim=1)
    expected = -torch.log(positive / (positive + negative)).mean()
    torch.testing.assert_close(method(views), expected)


def test_similarities_keep_32_bits_under_autocast(method: MoCo, views: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The networks compute in bfloat16; the unit vectors' products must not."""
    method.eval()
    method.temperature = 0.01  # makes the rounding of a similarity visible
    with torch.autocast("cpu", torch.bfloat16):
        query = method.projector(method.backbone(views[0]))
        key = method.target_projector(method.target_backbone(views[1]))
    assert query.dtype == torch.bfloat16
    query, key = (F.normalize(embedding.float(), dim=1) for embedding in (query, key))
    # Negatives as close as the positive, or they would not count.
    method.queue.copy_(F.normalize(key.mean(dim=0) + 0.02 * torch.randn(10, 128), dim=1))
    logits = torch.cat([(query * key).sum(dim=1, keepdim=True), query @ method.queue.T], dim=1) / 0.01
    with torch.autocast("cpu", torch.bfloat16):
        loss = method(views)
    assert loss > 0.1
    torch.testing.assert_close(loss, F.cross_entropy(logits, torch.zeros(4, dtype=torch.int64)))


def test_logits_of_random_vectors_have_the_known_mean() -> None:
    """Golden check 14: K = 65536, d = 128, τ = 0.2 give a mean logsumexp of the negatives of 11.188."""
    generator = torch.Generator().manual_seed(0)
    queue = F.normalize(torch.randn(65536, 128, generator=generator), dim=1)
    query = F.normalize(torch.randn(64, 128, generator=generator), dim=1)
    assert torch.logsumexp(query @ queue.T / 0.2, dim=1).mean() == pytest.approx(11.188, abs=0.005)


def test_keys_replace_the_oldest_and_wrap_around(method: MoCo) -> None:
    method.queue.zero_()
    for step in range(1, 4):
        method._enqueue(torch.full((4, 128), float(step)))
    # Ten places, three batches of four: the third one overwrites the first two places.
    assert method.queue[:, 0].tolist() == [3, 3, 1, 1, 2, 2, 2, 2, 3, 3]
    assert method.queue_pointer == 2


def test_a_batch_larger_than_the_queue_leaves_its_newest_keys(method: MoCo) -> None:
    method._enqueue(torch.arange(13.0)[:, None].expand(13, 128))
    assert sorted(method.queue[:, 0].tolist()) == list(range(3, 13))


def test_the_key_network_follows_by_the_closed_form_of_its_average(method: MoCo) -> None:
    """θ + mⁿ(θ̄₀ − θ) after n steps at fixed θ; a momentum of 1 would leave it where it was."""
    online = next(method.backbone.parameters())
    target = next(method.target_backbone.parameters())
    with torch.no_grad():
        online.add_(1.0)
    start = target.clone()
    views = torch.randn(4, 3, 32, 32)
    for _ in range(5):
        method._keys(views)
    torch.testing.assert_close(target, online + 0.9**5 * (start - online))


def test_a_momentum_of_one_is_found(method: MoCo) -> None:
    """The planted bug that the test above is there for."""
    method.momentum = 1.0
    with pytest.raises(AssertionError, match="not close"):
        test_the_key_network_follows_by_the_closed_form_of_its_average(method)


def test_shuffled_keys_are_normalised_with_other_samples_than_their_queries() -> None:
    torch.manual_seed(0)
    method = MoCo("resnet10_narrow", queue_size=10, num_batch_norm_splits=2)
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    changed = images.clone()
    changed[6] += 1.0
    query, key = (F.normalize(method.projector(method.backbone(images)), dim=1), method._keys(images))
    query_after = F.normalize(method.projector(method.backbone(changed)), dim=1)
    key_after = method._keys(changed)
    # Queries of 0 … 3 and 4 … 7 share statistics; keys of the even and of the odd samples, back in order.
    moved = (query_after - query).norm(dim=1) > 1e-4
    assert moved.tolist() == [False] * 4 + [True] * 4
    assert ((key_after - key).norm(dim=1) > 1e-4).tolist() == [True, False] * 4


def test_gradients_reach_the_online_network_alone(method: MoCo, views: tuple[torch.Tensor, torch.Tensor]) -> None:
    method(views).backward()
    assert all(parameter.grad is not None for parameter in method.backbone.parameters())
    assert all(parameter.grad is None for parameter in method.target_backbone.parameters())


def test_chance_level(method: MoCo) -> None:
    assert method.chance_loss == pytest.approx(math.log(11))


def test_an_empty_queue_is_refused() -> None:
    with pytest.raises(InputError, match="queue_size = 0"):
        MoCo("resnet10_narrow", queue_size=0)
