import torch

from objectaware.detection.sampling import KeyedSampler

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
