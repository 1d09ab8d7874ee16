import torch
from torch import nn

from objectaware.methods.workers import SplitBatchNorm, interleave, split_batch_norm, undo_interleave


def test_each_part_is_normalised_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(8, 3, 4, 4, generator=generator)
    split, plain = SplitBatchNorm(3, 2), nn.BatchNorm2d(3)
    expected = torch.cat([plain(batch[:4]), plain(batch[4:])])
    torch.testing.assert_close(split(batch), expected)


def test_running_statistics_move_by_the_mean_of_the_parts() -> None:
    batch = torch.randn(64, 3, 4, 4, generator=torch.Generator().manual_seed(0)) + 2
    split = SplitBatchNorm(3, 4)
    parts = [nn.BatchNorm2d(3) for _ in range(4)]
    for _ in range(3):
        split(batch)
        for part, norm in zip(batch.chunk(4), parts, strict=True):
            norm(part)
    for name in ("running_mean", "running_var"):
        mean = torch.stack([getattr(norm, name) for norm in parts]).mean(dim=0)
        torch.testing.assert_close(getattr(split, name), mean)
    assert split.num_batches_tracked == 3
    assert split.eval()(batch).shape == batch.shape


def test_interleaving_deals_every_part_to_all_others_and_is_undone() -> None:
    order = interleave(torch.arange(16), 4)
    for part in order.chunk(4):
        assert sorted((part // 4).tolist()) == [0, 1, 2, 3]
    assert torch.equal(undo_interleave(order, 4), torch.arange(16))


def test_a_network_keeps_its_weights() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(nn.BatchNorm2d(4)))
    nn.init.uniform_(network[1].weight)
    weight = network[1].weight.clone()
    converted = split_batch_norm(network, 2)
    assert isinstance(converted[1], SplitBatchNorm)
    assert isinstance(converted[2][0], SplitBatchNorm)
    assert torch.equal(converted[1].weight, weight)
